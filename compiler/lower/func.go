// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// symbol is what a name means: one of these.
type symbol struct {
	reg     *register
	v       *ir.Var
	fn      *ir.Func
	label   *ir.Block
	proto   *ptx.Prototype
	targets *ptx.TargetList
	texture bool

	// Of functions: the declaration that counts, whether it has a body, and
	// whether its address is taken.
	decl           *ptx.Func
	defined, taken bool
}

// register is a register of a type, or a vector of them.
type register struct {
	typ  ir.Type // as declared
	regs []ir.Reg
}

// scope is what is declared between braces.
type scope struct {
	names map[string]*symbol
	// ranges are the parameterized registers, %r<10>, by what stands before the
	// number. Each becomes a register when it is first named.
	ranges map[string]*ptx.Regs
	counts map[string]int64
}

// function makes a function's blocks.
type function struct {
	*lowerer
	decl   *ptx.Func
	f      *ir.Func
	scopes []*scope
	// block is where instructions are appended; nil after a terminator.
	block *ir.Block
	carry ir.Reg
	// paramRegs are parameters and results that the program has in registers.
	resultRegs map[*ir.Var]*register
	// copies are local variables with what a parameter holds, for parameters
	// whose address is taken.
	copies map[*ir.Var]*ir.Var
	// Names that are taken, of registers, variables and blocks.
	regNames, varNames, blockNames names
	// indirect are the calls whose Callees are found when all functions are made.
	indirect []*ir.Instr

	// targets counts the targets of brx.
	targets int

	// What concerns the instruction at hand.
	in       *ptx.Instr
	mods     modList
	guard    ir.Reg
	guardNot bool
}

func newFunction(l *lowerer, src *ptx.Func) *function {
	return &function{
		lowerer: l, decl: src, f: l.globals.names[src.Name].fn, carry: ir.NoReg,
		resultRegs: map[*ir.Var]*register{}, copies: map[*ir.Var]*ir.Var{},
		regNames: names{}, varNames: names{}, blockNames: names{},
	}
}

// names are those that are taken, with the number to try next for each.
type names map[string]int

// unique returns name, or name with a number behind it that is free.
func (used names) unique(name string) string {
	n, taken := used[name]
	if !taken {
		used[name] = 1
		return name
	}
	for {
		free := name + "$" + itoa(n)
		n++
		if _, taken := used[free]; !taken {
			used[name], used[free] = n, 1
			return free
		}
	}
}

func (f *function) lower() {
	f.in = &ptx.Instr{Pos: f.decl.Pos}
	f.guard = ir.NoReg
	f.block = f.newBlock("entry")
	f.f.Blocks = append(f.f.Blocks, f.block)
	outer := f.push()
	f.bindParams(outer)
	f.scope(f.decl.Body)
	f.in = &ptx.Instr{Pos: f.decl.Pos}
	f.guard = ir.NoReg
	if f.block != nil {
		f.ret() // running off the end
	}
}

func (f *function) push() *scope {
	s := &scope{names: map[string]*symbol{}, ranges: map[string]*ptx.Regs{}, counts: map[string]int64{}}
	f.scopes = append(f.scopes, s)
	return s
}

func (f *function) bindParams(s *scope) {
	for i, p := range f.f.Params {
		src := f.decl.Params[i]
		f.varNames[p.Name] = 1
		sym := &symbol{v: &p.Var}
		if opaque(src.Type) {
			sym = &symbol{texture: true}
		}
		if src.Space == "reg" {
			r := f.declareReg(src.Name, typeOf(src.Type), 1)
			f.emit(&ir.Instr{Op: ir.Ld, Type: slotType(r.typ), Mods: ir.Mods{Space: ir.Param}, Dst: r.regs, Args: []ir.Operand{varOperand(&p.Var)}})
			sym = &symbol{reg: r}
		}
		s.names[src.Name] = sym
	}
	for i, p := range f.f.Results {
		src := f.decl.Results[i]
		p.Name = f.varNames.unique(p.Name)
		sym := &symbol{v: &p.Var}
		if src.Space == "reg" {
			r := f.declareReg(src.Name, typeOf(src.Type), 1)
			f.resultRegs[&p.Var] = r
			sym = &symbol{reg: r}
		}
		if old := s.names[src.Name]; old != nil {
			f.fail(src.Pos, "%s is declared twice", clip(src.Name))
		}
		s.names[src.Name] = sym
	}
}

// slotType is how a register's value lies in a parameter.
func slotType(t ir.Type) ir.Type {
	if t == ir.Pred {
		return ir.B8
	}
	return t.Bits()
}

func varOperand(v *ir.Var) ir.Operand { return ir.Operand{Kind: ir.VarOperand, Var: v, Reg: ir.NoReg} }

func (f *function) newBlock(name string) *ir.Block {
	return &ir.Block{Name: f.blockNames.unique(name)}
}

// start goes on in b, which follows in the text: what came before falls into it.
func (f *function) start(b *ir.Block) {
	if f.block != nil {
		f.block.Instrs = append(f.block.Instrs, &ir.Instr{Op: ir.Br, Guard: ir.NoReg, Targets: []*ir.Block{b}, Pos: f.pos(f.in.Pos)})
	}
	f.f.Blocks = append(f.f.Blocks, b)
	f.block = b
}

// emit appends an instruction, for the threads for which the guard holds.
func (f *function) emit(in *ir.Instr) {
	if f.block == nil {
		f.start(f.newBlock("unreachable"))
	}
	in.Guard, in.GuardNot = f.guard, f.guardNot
	in.Pos = f.pos(f.in.Pos)
	f.block.Instrs = append(f.block.Instrs, in)
}

// end appends a terminator. With a guard, the others go on behind it.
func (f *function) end(in *ir.Instr) {
	if f.guard == ir.NoReg {
		f.emit(in)
		f.block = nil
		return
	}
	next := f.newBlock("next")
	then := in.Targets[:min(1, len(in.Targets))]
	var apart []*ir.Block
	if in.Op != ir.Br {
		b := f.newBlock("then")
		in.Guard, in.Pos = ir.NoReg, f.pos(f.in.Pos)
		b.Instrs = []*ir.Instr{in}
		then, apart = []*ir.Block{b}, []*ir.Block{b}
	}
	f.emit(&ir.Instr{Op: ir.Br, Targets: append(then[:1:1], next)})
	f.f.Blocks = append(append(f.f.Blocks, apart...), next)
	f.block = next
}

// ret ends the function: results that the program has in registers are stored.
func (f *function) ret() {
	for _, p := range f.f.Results {
		r := f.resultRegs[&p.Var]
		if r == nil {
			continue
		}
		f.emit(&ir.Instr{Op: ir.St, Type: slotType(r.typ), Mods: ir.Mods{Space: ir.Param}, Args: []ir.Operand{varOperand(&p.Var), ir.R(r.regs[0])}})
	}
	f.end(&ir.Instr{Op: ir.Ret})
}

// scope lowers what is between braces. Its labels are known before they come.
func (f *function) scope(src *ptx.Scope) {
	s := f.push()
	for _, st := range src.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			f.declareIn(s, st.Pos, st.Name, &symbol{label: f.newBlock(st.Name)})
		case *ptx.Prototype:
			f.declareIn(s, st.Pos, st.Name, &symbol{proto: st})
		case *ptx.TargetList:
			f.declareIn(s, st.Pos, st.Name, &symbol{targets: st})
		}
	}
	for _, st := range src.Stmts {
		if f.err != nil {
			return
		}
		f.stmt(s, st)
	}
	f.scopes = f.scopes[:len(f.scopes)-1]
}

func (f *function) declareIn(s *scope, pos ptx.Pos, name string, sym *symbol) {
	if s.names[name] != nil || f.fromRange(s, name) != nil {
		f.fail(pos, "%s is declared twice", clip(name))
	}
	s.names[name] = sym
}

func (f *function) stmt(s *scope, st ptx.Stmt) {
	switch st := st.(type) {
	case *ptx.Instr:
		f.instr(st)
	case *ptx.Label:
		f.start(s.names[st.Name].label)
	case *ptx.Scope:
		f.scope(st)
	case *ptx.Regs:
		f.declareRegs(s, st)
	case *ptx.Var:
		f.declareLocal(s, st)
	}
}

func (f *function) declareRegs(s *scope, d *ptx.Regs) {
	t := typeOf(d.Type)
	if t == ir.NoType || opaque(d.Type) {
		f.fail(d.Pos, "a register has no type .%s", d.Type)
		return
	}
	for _, n := range d.Names {
		if n.Count != 0 {
			if s.ranges[n.Name] != nil { // one named %r beside %r<4>, which is %r0 to %r3, is another one
				f.fail(n.Pos, "%s is declared twice", clip(n.Name))
				return
			}
			s.ranges[n.Name], s.counts[n.Name] = d, n.Count
			continue
		}
		f.declareIn(s, n.Pos, n.Name, &symbol{reg: f.declareReg(n.Name, t, max(d.Vec, 1))})
	}
}

// declareReg makes a register, or those of a vector.
func (f *function) declareReg(name string, t ir.Type, n int) *register {
	r := &register{typ: t}
	for i := range n {
		own := strings.TrimPrefix(name, "%") // the text form puts one before each
		if n > 1 {
			own += "$" + itoa(i)
		}
		r.regs = append(r.regs, ir.Reg(len(f.f.Regs)))
		f.f.Regs = append(f.f.Regs, ir.RegInfo{Name: f.regNames.unique(own), Type: t.Bits()})
	}
	return r
}

// temp makes a register that the program doesn't have.
func (f *function) temp(t ir.Type) ir.Reg { return f.declareReg("%t", t, 1).regs[0] }

func (f *function) declareLocal(s *scope, d *ptx.Var) {
	if opaque(d.Type) || d.Space == "tex" {
		f.declareIn(s, d.Pos, d.Name, &symbol{texture: true})
		return
	}
	if d.Init != nil && d.Space != "global" && d.Space != "const" {
		f.fail(d.Pos, "%s can't have an initializer", clip(d.Name))
		return
	}
	v := &ir.Var{Space: spaces[d.Space]}
	v.Size, v.Align = f.sizeOf(d)
	switch d.Space {
	case "global", "const":
		// A static variable of a function: one for all, under a name of its own.
		v.Name = f.staticName(d.Name)
		f.m.Vars = append(f.m.Vars, v)
		f.globals.names[v.Name] = &symbol{v: v}
		static := *d
		static.Name = v.Name
		f.initialize(&static)
	case "shared":
		if d.Linkage&ptx.Extern != 0 || v.Size == 0 {
			v.Name, v.Extern = f.staticName(d.Name), d.Linkage&ptx.Extern != 0
			f.m.Vars = append(f.m.Vars, v)
			break
		}
		fallthrough
	default:
		v.Name = f.varNames.unique(d.Name)
		f.f.Vars = append(f.f.Vars, v)
	}
	f.declareIn(s, d.Pos, d.Name, &symbol{v: v})
}

// staticName is a module's name for a function's variable.
func (f *function) staticName(name string) string {
	own := f.f.Name + "$" + name
	for n := 1; f.globals.names[own] != nil; n++ {
		own = f.f.Name + "$" + name + "$" + itoa(n)
	}
	f.globals.names[own] = &symbol{}
	return own
}

// lookup finds what a name means, from the innermost braces outwards.
func (f *function) lookup(name string) *symbol {
	for _, s := range slices.Backward(f.scopes) {
		if sym := s.names[name]; sym != nil {
			return sym
		}
		if sym := f.fromRange(s, name); sym != nil {
			return sym
		}
	}
	if sym := f.globals.names[name]; sym != nil && (sym.v != nil || sym.fn != nil || sym.texture) {
		return sym
	}
	return nil
}

// fromRange makes the register %r7 of %r<10>, when it is first named.
func (f *function) fromRange(s *scope, name string) *symbol {
	if len(s.ranges) == 0 {
		return nil
	}
	var number, place int64 = 0, 1
	for i := len(name) - 1; i > 0 && name[i] >= '0' && name[i] <= '9' && place < 1e10; i-- {
		number += int64(name[i]-'0') * place
		place *= 10
		if name[i] == '0' && i != len(name)-1 {
			continue // a number has no zero in front
		}
		d := s.ranges[name[:i]]
		if d == nil || number >= s.counts[name[:i]] {
			continue
		}
		sym := &symbol{reg: f.declareReg(name, typeOf(d.Type), max(d.Vec, 1))}
		s.names[name] = sym
		return sym
	}
	return nil
}

// resolveIndirect gives indirect calls without a list what they may call:
// functions with the same parameters whose address is taken.
func (l *lowerer) resolveIndirect(made []*function) {
	for _, f := range made {
		for _, in := range f.indirect {
			for _, c := range l.m.Funcs {
				sym := l.globals.names[c.Name]
				if !c.Kernel && sym != nil && sym.fn == c && sym.taken && sameSlots(in.CallArgs, c.Params) && sameSlots(in.CallResults, c.Results) {
					in.Callees = append(in.Callees, c)
				}
			}
		}
	}
}

func sameSlots(vars []*ir.Var, params []*ir.Parameter) bool {
	if len(vars) != len(params) {
		return false
	}
	for i, v := range vars {
		if v.Size != params[i].Size {
			return false
		}
	}
	return true
}

func (f *function) nvidiaOnly(reason string) {
	f.f.NVIDIAOnly = append(f.f.NVIDIAOnly, ir.Reason{Pos: f.pos(f.in.Pos), Text: f.in.Opcode() + ": " + reason})
}

// instr lowers one instruction.
func (f *function) instr(in *ptx.Instr) {
	f.in = in
	f.guard, f.guardNot = ir.NoReg, false
	if in.Guard != "" {
		p := f.predicate(&ptx.Operand{Name: in.Guard, Line: in.Pos.Line, Col: in.Pos.Col})
		f.guard, f.guardNot = p.Reg, in.GuardNot
	}
	if class, reason := ptx.Classify(in.Op, in.Mods); class == ptx.NVIDIAOnly {
		f.nvidiaOnly(reason)
		return
	}
	h := handlers[in.Op]
	if h == nil {
		// The parser lets no unknown opcode pass.
		panic("BUG: " + in.Op + " runs everywhere and is not lowered")
	}
	if len(in.Mods) > maxMods {
		f.fail(in.Pos, "%s has too many modifiers", in.Op)
		return
	}
	f.mods = modList{words: in.Mods}
	reasons := len(f.f.NVIDIAOnly)
	block, first := f.block, 0
	if block != nil {
		first = len(block.Instrs)
	}
	h(f)
	if len(f.f.NVIDIAOnly) > reasons || f.err != nil {
		return
	}
	if word := f.mods.unused(); word != "" {
		f.fail(in.Pos, "%s can't have the modifier .%s", clip(in.Opcode()), clip(word))
		return
	}
	// The instruction itself is the last one; those before it made its operands.
	if block != nil && block == f.block && len(block.Instrs) > first {
		made := block.Instrs[first:]
		made[len(made)-1].Text = f.text(in, made)
	}
}
