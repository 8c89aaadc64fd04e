// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// String returns the module's text form. Parse makes the same module of it; its
// grammar is in docs/ir.md.
func (m *Module) String() string {
	p := &printer{}
	if m.Target != "" {
		p.line("target %s", strconv.Quote(m.Target))
	}
	for _, f := range m.Files {
		p.line("file %s", strconv.Quote(f))
	}
	for _, v := range m.Vars {
		p.variable("", v, "@")
	}
	for i, f := range m.Funcs {
		if i > 0 || p.out.Len() > 0 {
			p.line("")
		}
		p.function(f)
	}
	return p.out.String()
}

// String returns the function's text form.
func (f *Func) String() string {
	p := &printer{}
	p.function(f)
	return p.out.String()
}

// Text returns an instruction of f in the text form.
func (f *Func) Text(in *Instr) string {
	p := &printer{f: f, own: ownVars(f)}
	p.instr(in)
	return p.out.String()
}

type printer struct {
	out strings.Builder
	f   *Func
	own map[*Var]bool
}

func (p *printer) put(s string) { p.out.WriteString(s) }

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(&p.out, format+"\n", args...)
}

func (p *printer) variable(indent string, v *Var, sigil string) {
	p.put(indent + "var " + v.Space.String() + " " + sigil + v.Name)
	p.sizes(v)
	if v.Extern {
		p.put(" extern")
	}
	if v.Init != nil {
		p.put(" = " + strconv.Quote(hex.EncodeToString(v.Init)))
	}
	p.put("\n")
	for _, a := range v.Addresses {
		p.put(indent + "  address " + strconv.FormatInt(a.Offset, 10))
		if a.Generic {
			p.put(" generic")
		}
		switch {
		case a.Var != nil:
			p.put(" @" + a.Var.Name)
		case a.Func != nil:
			p.put(" @" + a.Func.Name)
		}
		p.addend(a.Addend)
		p.put("\n")
	}
}

func (p *printer) sizes(v *Var) {
	fmt.Fprintf(&p.out, " %d align %d", v.Size, v.Align)
}

func (p *printer) addend(n int64) {
	if n != 0 {
		fmt.Fprintf(&p.out, "%+d", n)
	}
}

func (p *printer) function(f *Func) {
	p.f, p.own = f, ownVars(f)
	word := "func"
	if f.Kernel {
		word = "kernel"
	}
	p.put(word + " @" + f.Name)
	p.pos(f.Pos)
	p.line(" {")
	p.attrs(&f.Attrs)
	for _, r := range f.NVIDIAOnly {
		p.put("  nvidia_only " + strconv.Quote(r.Text))
		p.pos(r.Pos)
		p.put("\n")
	}
	for _, list := range []struct {
		word   string
		params []*Parameter
	}{{"param", f.Params}, {"result", f.Results}} {
		for _, v := range list.params {
			p.put("  " + list.word + " $" + v.Name)
			p.sizes(&v.Var)
			if v.Offset != 0 {
				fmt.Fprintf(&p.out, " at %d", v.Offset)
			}
			p.put("\n")
		}
	}
	for _, v := range f.Vars {
		p.variable("  ", v, "$")
	}
	p.registers(f.Regs)
	for _, s := range f.Stacks {
		p.line("  stack $%s %%%s %d", varName(s.Var), f.Regs[s.Top].Name, s.Above)
	}
	for _, b := range f.Blocks {
		p.line("%s:", b.Name)
		for _, in := range b.Instrs {
			p.put("  ")
			p.instr(in)
			p.put("\n")
		}
	}
	p.line("}")
}

func (p *printer) attrs(a *Attrs) {
	for _, v := range []struct {
		word string
		n    [3]uint32
	}{{"max_threads", a.MaxThreads}, {"req_threads", a.ReqThreads}, {"cluster", a.Cluster}} {
		if v.n != ([3]uint32{}) {
			p.line("  %s %d %d %d", v.word, v.n[0], v.n[1], v.n[2])
		}
	}
	if a.MinBlocks != 0 {
		p.line("  min_blocks %d", a.MinBlocks)
	}
	if a.MaxRegs != 0 {
		p.line("  max_regs %d", a.MaxRegs)
	}
}

// regsInLine is how many registers a line declares.
const regsInLine = 16

func (p *printer) registers(regs []RegInfo) {
	for i := 0; i < len(regs); {
		p.put("  reg " + typeWord(regs[i].Type))
		first := i
		for ; i < len(regs) && i < first+regsInLine && regs[i].Type == regs[first].Type; i++ {
			p.put(" %" + regs[i].Name)
		}
		p.put("\n")
	}
}

func (p *printer) instr(in *Instr) {
	if in.Guard != NoReg {
		p.put("@")
		if in.GuardNot {
			p.put("!")
		}
		p.reg(in.Guard)
		p.put(" ")
	}
	for i, r := range in.Dst {
		if i > 0 {
			p.put(", ")
		}
		p.reg(r)
	}
	if len(in.Dst) > 0 {
		p.put(" = ")
	}
	if in.Op >= numOps {
		fmt.Fprintf(&p.out, "?%d", in.Op)
		return
	}
	p.put(opNames[in.Op] + in.Mods.words(in.Op))
	if in.Type != NoType || in.Type2 != NoType {
		p.put("." + typeWord(in.Type))
	}
	if in.Type2 != NoType {
		p.put("." + typeWord(in.Type2))
	}
	sep := " "
	p.callee(in)
	if in.Callee != nil {
		sep = ", "
	}
	for i := range in.Args {
		p.put(sep)
		sep = ", "
		if i == 0 && opTable[in.Op].address {
			p.put("[")
			p.operand(&in.Args[i])
			p.addend(in.Offset)
			p.put("]")
			continue
		}
		p.operand(&in.Args[i])
	}
	for _, b := range in.Targets {
		p.put(sep + blockName(b))
		sep = ", "
	}
	p.lists(in)
	p.pos(in.Pos)
	if in.Text != "" {
		p.put(" " + strconv.Quote(in.Text))
	}
}

func (p *printer) callee(in *Instr) {
	if in.Callee != nil {
		p.put(" @" + in.Callee.Name)
	}
}

// lists writes what a call passes, takes, and may call.
func (p *printer) lists(in *Instr) {
	if in.Op != Call {
		return
	}
	p.vars("(", in.CallArgs)
	p.vars(" -> (", in.CallResults)
	if len(in.Callees) > 0 {
		p.put(" of")
		sep := " "
		for _, f := range in.Callees {
			p.put(sep + "@" + funcName(f))
			sep = ", "
		}
	}
}

// What is wrong prints too, for the verifier's errors.
const nothing = "?nil"

func blockName(b *Block) string {
	if b == nil {
		return nothing
	}
	return b.Name
}

func funcName(f *Func) string {
	if f == nil {
		return nothing
	}
	return f.Name
}

func varName(v *Var) string {
	if v == nil {
		return nothing
	}
	return v.Name
}

func (p *printer) vars(open string, vars []*Var) {
	p.put(open)
	for i, v := range vars {
		if i > 0 {
			p.put(", ")
		}
		p.put("$" + varName(v))
	}
	p.put(")")
}

func (p *printer) reg(r Reg) {
	switch {
	case r == NoReg:
		p.put("_")
	case p.f != nil && r >= 0 && int(r) < len(p.f.Regs):
		p.put("%" + p.f.Regs[r].Name)
	default:
		fmt.Fprintf(&p.out, "?%d", r)
	}
}

// smallImm and what is above it is written in hexadecimal.
const smallImm = 1 << 16

func (p *printer) operand(a *Operand) {
	switch a.Kind {
	case RegOperand:
		if a.Not {
			p.put("!")
		}
		p.reg(a.Reg)
	case ImmOperand:
		if a.Imm < smallImm {
			fmt.Fprintf(&p.out, "%d", a.Imm)
			return
		}
		fmt.Fprintf(&p.out, "%#x", a.Imm)
	case VarOperand:
		p.varOperand(a)
	case FuncOperand:
		p.put("@" + funcName(a.Func))
	case SregOperand:
		if a.Sreg < numSregs {
			p.put(sregNames[a.Sreg])
			return
		}
		fallthrough
	default:
		fmt.Fprintf(&p.out, "?%d", a.Kind)
	}
}

func (p *printer) varOperand(a *Operand) {
	name := "@" + varName(a.Var)
	if p.own[a.Var] {
		name = "$" + varName(a.Var)
	}
	if a.Imm == 0 {
		p.put(name)
		return
	}
	p.put("(" + name)
	p.addend(int64(a.Imm))
	p.put(")")
}

// ownVars are the variables that belong to the function: a "$" is before them.
func ownVars(f *Func) map[*Var]bool {
	own := make(map[*Var]bool, len(f.Params)+len(f.Results)+len(f.Vars))
	for _, p := range f.Params {
		own[&p.Var] = true
	}
	for _, p := range f.Results {
		own[&p.Var] = true
	}
	for _, v := range f.Vars {
		own[v] = true
	}
	return own
}

// pos writes a position: " !12:3" in the PTX, " !12:3/1:45" with the source's
// file and line.
func (p *printer) pos(at Pos) {
	if at == (Pos{}) {
		return
	}
	fmt.Fprintf(&p.out, " !%d:%d", at.Line, at.Col)
	if at.File != 0 || at.SrcLine != 0 {
		fmt.Fprintf(&p.out, "/%d:%d", at.File, at.SrcLine)
	}
}
