// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var regPrefix = map[ir.Type]string{ir.Pred: "p", ir.B8: "rb", ir.B16: "rs", ir.B32: "r", ir.B64: "rd", ir.B128: "rq"}

// regName is a register's name: PTX's usual letters and its number. Registers of
// functions that were inlined can have the same name, so that is not used.
func regName(f *ir.Func, r ir.Reg) string {
	if r == ir.NoReg {
		return "_"
	}
	return "%" + regPrefix[f.Regs[r].Type] + strconv.Itoa(int(r))
}

// varNames gives a kernel's parameters and variables names that are valid in PTX
// and different from one another and from what the module declares.
func varNames(f *ir.Func, vars []*ir.Var, declared map[string]bool) map[*ir.Var]string {
	names := map[*ir.Var]string{}
	taken := map[string]bool{}
	maps.Copy(taken, declared)
	add := func(v *ir.Var) {
		base := strings.Map(func(r rune) rune {
			if r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
				return r
			}
			return '_'
		}, v.Name)
		name := base
		for i := 1; taken[name]; i++ {
			name = fmt.Sprintf("%s_%d", base, i)
		}
		taken[name] = true
		names[v] = name
	}
	for _, p := range f.Params {
		add(&p.Var)
	}
	for _, v := range vars {
		add(v)
	}
	return names
}

// varAddress is a variable's address and what is added to it.
func (e *emitter) varAddress(v *ir.Var, offset int64) string {
	name := ""
	switch at, static := e.plan.Shared.Offsets[v]; {
	case static && v.Size > 0:
		name, offset = sharedArray, offset+at
	case v.Space == ir.Local:
		name, offset = localArray, offset+e.plan.Local.Offsets[v]
	default:
		name = e.varName(v)
	}
	if offset == 0 {
		return name
	}
	return fmt.Sprintf("%s+%d", name, offset)
}

func (e *emitter) varName(v *ir.Var) string {
	if name, own := e.names[v]; own {
		return name
	}
	return v.Name
}

// block prints a block's instructions, with the checks at its pause points.
func (e *emitter) block(b *ir.Block) error {
	for i, in := range b.Instrs {
		e.source(b, i)
		switch point := e.barrierPoint(b, i); {
		case in.Op == ir.Gather:
			continue
		case in.Op == ir.Poll:
			e.poll(b)
			continue
		case e.meets(point):
			e.meet(in, point)
			continue
		case point > 0:
			if err := e.barrier(in, point); err != nil {
				return err
			}
			continue
		}
		if err := e.instr(b, in); err != nil {
			return fmt.Errorf("line %d: %w", in.Pos.Line, err)
		}
	}
	return nil
}

func (e *emitter) guard(in *ir.Instr) string {
	switch {
	case in.Guard == ir.NoReg:
		return ""
	case in.GuardNot:
		return "@!" + regName(e.fn, in.Guard) + " "
	}
	return "@" + regName(e.fn, in.Guard) + " "
}

func (e *emitter) instr(b *ir.Block, in *ir.Instr) error {
	if in.Op.Terminator() {
		return e.terminator(b, in)
	}
	if name, known := systemCalls[in.Op]; known {
		e.systemCall(name, in)
		return nil
	}
	text, err := e.text(in)
	if err != nil {
		return err
	}
	if u := e.unrolled[b]; u != nil && u.sunk[in] {
		return nil
	}
	e.line("%s%s;", e.guard(in), text)
	return nil
}

// systemCalls are the functions of the driver that are printed as calls again. A
// module that uses one declares it.
var systemCalls = map[ir.Op]string{ir.Printf: "vprintf", ir.Assertfail: "__assertfail"}

func (e *emitter) systemCall(name string, in *ir.Instr) {
	after := e.label()
	if guard := e.guard(in); guard != "" {
		e.line("%sbra %s;", invert(guard), after)
	}
	e.line("{")
	var args []string
	for i, a := range in.Args {
		arg, t := fmt.Sprintf("hg_argument%d", i), "b64"
		if in.Op == ir.Assertfail && i == 2 { // the line
			t = "b32"
		}
		e.line(".param .%s %s;", t, arg)
		e.line("st.param.%s [%s], %s;", t, arg, e.operand(a))
		args = append(args, arg)
	}
	result := ""
	if in.Op == ir.Printf {
		e.line(".param .b32 hg_printed;")
		result = "(hg_printed), "
	}
	// Not uni: perhaps only some threads of a warp come here.
	e.line("call %s%s, (%s);", result, name, strings.Join(args, ", "))
	if len(in.Dst) > 0 && in.Dst[0] != ir.NoReg {
		e.line("ld.param.b32 %s, [hg_printed];", regName(e.fn, in.Dst[0]))
	}
	e.line("}")
	e.place(after)
}

// printable tells of the first instruction that can't be printed.
func (e *emitter) printable() error {
	for _, b := range e.fn.Blocks {
		for _, in := range b.Instrs {
			if in.Op.Terminator() || systemCalls[in.Op] != "" || in.Op == ir.Gather || in.Op == ir.Poll || in.Op == ir.Bar && in.Text == "" {
				continue // printed otherwise
			}
			if _, err := e.text(in); err != nil {
				return fmt.Errorf("line %d: %w", in.Pos.Line, err)
			}
		}
	}
	return nil
}

// text returns an instruction without its guard.
func (e *emitter) text(in *ir.Instr) (string, error) {
	if in.Text == "" {
		return e.made(in)
	}
	var out strings.Builder
	for rest := in.Text; ; {
		i := strings.IndexByte(rest, '$')
		if i < 0 || i+1 == len(rest) {
			out.WriteString(rest)
			return out.String(), nil
		}
		out.WriteString(rest[:i])
		which := rest[i+1]
		rest = rest[i+2:]
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		n, err := strconv.Atoi(rest[:digits])
		switch {
		case which == 'd' && err == nil && n < len(in.Dst):
			out.WriteString(regName(e.fn, in.Dst[n]))
		case which == 'a' && err == nil && n < len(in.Args) && in.Args[n].Kind == ir.VarOperand:
			// What the text adds to it comes into one number with its place.
			more, end := addend(rest[digits:])
			out.WriteString(e.varAddress(in.Args[n].Var, int64(in.Args[n].Imm)+more))
			digits += end
		case which == 'a' && err == nil && n < len(in.Args):
			out.WriteString(e.operand(in.Args[n]))
		default:
			return "", fmt.Errorf("BUG: no operand %q in %q", rest[:digits], in.Text)
		}
		rest = rest[digits:]
	}
}

// addend reads "+12" or "+-4" at the beginning of a text, and returns its length.
func addend(s string) (value int64, length int) {
	if !strings.HasPrefix(s, "+") {
		return 0, 0
	}
	length = 1
	for length < len(s) && (s[length] >= '0' && s[length] <= '9' || length == 1 && s[length] == '-') {
		length++
	}
	value, err := strconv.ParseInt(s[1:length], 10, 64)
	if err != nil {
		return 0, 0
	}
	return value, length
}

func (e *emitter) operand(o ir.Operand) string {
	switch o.Kind {
	case ir.RegOperand:
		if o.Not {
			return "!" + regName(e.fn, o.Reg)
		}
		return regName(e.fn, o.Reg)
	case ir.VarOperand:
		return e.varAddress(o.Var, int64(o.Imm))
	case ir.FuncOperand:
		return o.Func.Name
	case ir.SregOperand:
		return e.sreg(o.Sreg)
	}
	return strconv.FormatInt(int64(o.Imm), 10)
}

func (e *emitter) sreg(s ir.Sreg) string {
	if s == ir.WarpSz {
		return "WARP_SZ"
	}
	return "%" + s.String()
}

// terminator prints the end of a block. Blocks are printed in their order, so
// what goes on with the next one needs no branch.
func (e *emitter) terminator(b *ir.Block, in *ir.Instr) error {
	switch in.Op {
	case ir.Br:
		next := e.blocks[b] + 1
		if e.stays(b, in) {
			e.branch("", b, in.Targets[1], next)
			break
		}
		e.branch(e.guard(in), b, in.Targets[0], next)
		if in.Guard != ir.NoReg {
			e.branch("", b, in.Targets[1], next)
		}
	case ir.Brx:
		e.branchIndexed(b, in)
	case ir.Ret, ir.Exit:
		e.line("exit;")
	case ir.Trap:
		e.line("trap;")
		e.line("exit;")
	default:
		return fmt.Errorf("BUG: %s does not end a block", in.Op)
	}
	return nil
}

// branchIndexed prints a brx. Its back-edges lead over a branch each.
func (e *emitter) branchIndexed(from *ir.Block, in *ir.Instr) {
	list := e.label()
	targets := make([]string, len(in.Targets))
	edges := map[*ir.Block]string{}
	var back []*ir.Block
	for i, t := range in.Targets {
		targets[i] = e.target(from, t)
		if e.backEdgePoint(from, t) == 0 {
			continue
		}
		if edges[t] == "" {
			edges[t] = e.label()
			back = append(back, t)
		}
		targets[i] = edges[t]
	}
	e.out.WriteString(list + ": .branchtargets " + strings.Join(targets, ", ") + ";\n")
	e.line("brx.idx %s, %s;", e.operand(in.Args[0]), list)
	for _, t := range back {
		e.place(edges[t])
		e.branch("", from, t, 0)
	}
}

func (e *emitter) branch(guard string, from, to *ir.Block, next int) {
	if label, more := e.nextRound(from, to); more {
		e.line("%sbra %s;", guard, label)
		return
	}
	if point := e.backEdgePoint(from, to); point > 0 {
		around := e.label()
		if guard != "" {
			e.line("%sbra %s;", invert(guard), around)
		}
		e.backEdge(point, to)
		e.place(around)
		return
	}
	label := e.target(from, to)
	if e.round == 0 && guard == "" && next < len(e.fn.Blocks) && label == blockLabel(next) {
		return
	}
	e.line("%sbra %s;", guard, label)
}

func invert(guard string) string {
	if strings.HasPrefix(guard, "@!") {
		return "@" + guard[2:]
	}
	return "@!" + guard[1:]
}

// bits is a type for which an immediate number is what its bits are. Integers keep
// theirs, which says how they are widened.
func bits(t ir.Type) ir.Type {
	if t.Float() {
		return t.Bits()
	}
	return t
}

// single prints arithmetic of f32, which the front end makes of that of pairs
// (f32x2) and of operands that are widened first (add.f32.f16). Its numbers are
// the bits of floats.
func single(in *ir.Instr, operands []string) (string, bool) {
	rounds := [...]string{ir.RN: ".rn", ir.RZ: ".rz", ir.RM: ".rm", ir.RP: ".rp"}
	m := in.Mods
	if m != (ir.Mods{Round: m.Round, FTZ: m.FTZ, Sat: m.Sat}) || m.Round == ir.NoRound || int(m.Round) >= len(rounds) {
		return "", false
	}
	opcode := in.Op.String() + rounds[m.Round]
	if m.FTZ {
		opcode += ".ftz"
	}
	if m.Sat {
		opcode += ".sat"
	}
	for i, a := range in.Args {
		if a.Kind == ir.ImmOperand {
			operands[len(in.Dst)+i] = fmt.Sprintf("0f%08X", uint32(a.Imm))
		}
	}
	return opcode + ".f32 " + strings.Join(operands, ", "), true
}

// made prints an instruction that a pass made.
func (e *emitter) made(in *ir.Instr) (string, error) {
	args := make([]string, len(in.Args))
	for i, a := range in.Args {
		args[i] = e.operand(a)
	}
	dst := make([]string, len(in.Dst))
	for i, d := range in.Dst {
		dst[i] = regName(e.fn, d)
	}
	address := func() string {
		if in.Args[0].Kind == ir.VarOperand {
			return "[" + e.varAddress(in.Args[0].Var, int64(in.Args[0].Imm)+in.Offset) + "]"
		}
		return fmt.Sprintf("[%s+%d]", args[0], in.Offset)
	}
	space := ""
	if in.Mods.Space != ir.Generic {
		space = "." + in.Mods.Space.String()
	}
	plain := func(opcode string) string { return opcode + " " + strings.Join(append(dst, args...), ", ") }
	if in.Type == ir.F32 && (in.Op == ir.Add || in.Op == ir.Sub || in.Op == ir.Mul || in.Op == ir.Fma) {
		if text, ok := single(in, append(dst, args...)); ok {
			return text, nil
		}
	}
	switch in.Op {
	case ir.Mov:
		if in.Type == ir.B8 || in.Type.Size() == 1 && in.Type != ir.Pred {
			break // there are no such registers but for loads, stores and cvt
		}
		t := in.Type
		if in.Args[0].Kind != ir.SregOperand && t != ir.Pred {
			t = t.Bits()
		}
		return plain("mov." + t.String()), nil
	case ir.Add, ir.Sub, ir.And, ir.Or, ir.Xor, ir.Not, ir.Shl, ir.Shr, ir.Selp, ir.Neg, ir.Max:
		if in.Mods != (ir.Mods{}) {
			break
		}
		return plain(in.Op.String() + "." + in.Type.String()), nil
	case ir.Mul, ir.Mad:
		halves := [...]string{ir.Lo: ".lo", ir.Hi: ".hi", ir.Wide: ".wide"}
		if in.Mods != (ir.Mods{Half: in.Mods.Half}) || in.Mods.Half == ir.NoHalf {
			break
		}
		return plain(in.Op.String() + halves[in.Mods.Half] + "." + in.Type.String()), nil
	case ir.Pack:
		return fmt.Sprintf("mov.%s %s, {%s}", in.Type, dst[0], strings.Join(args, ", ")), nil
	case ir.Unpack:
		return fmt.Sprintf("mov.%s {%s}, %s", in.Type, strings.Join(dst, ", "), args[0]), nil
	case ir.Cvt:
		widened := in.Type == ir.F32 && (in.Type2 == ir.F16 || in.Type2 == ir.BF16)
		if in.Mods != (ir.Mods{}) || (in.Type.Float() || in.Type2.Float()) && !widened || len(args) != 1 {
			break
		}
		return plain(fmt.Sprintf("cvt.%s.%s", in.Type, in.Type2)), nil
	case ir.Activemask:
		return plain("activemask.b32"), nil
	case ir.Cvta:
		return plain("cvta" + space + ".u64"), nil
	case ir.CvtaTo:
		return plain("cvta.to" + space + ".u64"), nil
	case ir.Isspacep:
		return plain("isspacep" + space), nil
	case ir.Ld, ir.St:
		if in.Mods != (ir.Mods{Space: in.Mods.Space, Vec: in.Mods.Vec}) {
			break
		}
		opcode, values := fmt.Sprintf("%s%s.%s", in.Op, space, bits(in.Type)), dst
		if in.Op == ir.St {
			values = args[1:]
		}
		all := strings.Join(values, ", ")
		if in.Mods.Vec > 1 {
			opcode, all = fmt.Sprintf("%s%s.v%d.%s", in.Op, space, in.Mods.Vec, bits(in.Type)), "{"+all+"}"
		}
		if in.Op == ir.St {
			return fmt.Sprintf("%s %s, %s", opcode, address(), all), nil
		}
		return fmt.Sprintf("%s %s, %s", opcode, all, address()), nil
	case ir.Setp:
		if in.Mods != (ir.Mods{Cmp: in.Mods.Cmp}) || len(dst) != 1 {
			break
		}
		cmps := [...]string{ir.EQ: "eq", ir.NE: "ne", ir.LT: "lt", ir.LE: "le", ir.GT: "gt", ir.GE: "ge"}
		if int(in.Mods.Cmp) >= len(cmps) || cmps[in.Mods.Cmp] == "" {
			break
		}
		return plain("setp." + cmps[in.Mods.Cmp] + "." + in.Type.String()), nil
	}
	return "", fmt.Errorf("%s is in a form that is not printed as PTX again", in.Op)
}
