// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

func (f *function) failAt(o *ptx.Operand, format string, args ...any) {
	p := f.in.Pos
	if o.Line != 0 {
		p.Line, p.Col = o.Line, o.Col
	}
	f.fail(p, format, args...)
}

// args checks the number of operands, and returns that many in any case.
func (f *function) args(least, most int) []ptx.Operand {
	a := f.in.Args
	if n := len(a); n < least || n > most {
		f.fail(f.in.Pos, "%s has %d operands, not %s", clip(f.in.Opcode()), n, fromTo(least, most))
	}
	for len(a) < most {
		a = append(slices.Clip(a), ptx.Operand{Kind: ptx.Sink})
	}
	return a
}

func fromTo(least, most int) string {
	if least == most {
		return itoa(least)
	}
	return itoa(least) + " to " + itoa(most)
}

// agree tells whether a register that is declared with one type can be an
// operand of the other: one of them has no meaning but bits, both are integers,
// or they are the same.
func agree(declared, t ir.Type) bool {
	switch {
	case declared == ir.Pred || t == ir.Pred:
		return declared == t
	case declared.Float() && t.Float():
		return declared == t || declared == ir.F32 && t == ir.TF32
	case declared.Float():
		return bits(t)
	case t.Float():
		return bits(declared)
	}
	return true
}

func bits(t ir.Type) bool { return t >= ir.B8 && t <= ir.B128 }

// register returns the register that o names.
func (f *function) register(o *ptx.Operand) (ir.Reg, ir.Type) {
	if o.Kind != ptx.Name || o.Num.Bits != 0 {
		f.failAt(o, "a register is expected")
		return ir.NoReg, ir.NoType
	}
	sym := f.lookup(o.Name)
	switch {
	case sym == nil:
		f.failAt(o, "%s is not declared", clip(o.Name))
	case sym.reg == nil:
		f.failAt(o, "%s is no register", clip(o.Name))
	case o.Suffix != "":
		return f.component(o, sym.reg)
	case len(sym.reg.regs) > 1:
		f.failAt(o, "%s is a vector", clip(o.Name))
	default:
		return sym.reg.regs[0], sym.reg.typ
	}
	return ir.NoReg, ir.NoType
}

func (f *function) component(o *ptx.Operand, r *register) (ir.Reg, ir.Type) {
	i := map[string]int{"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
	n, ok := i[o.Suffix]
	if !ok || n >= len(r.regs) || len(r.regs) == 1 {
		f.failAt(o, "%s has no component .%s", clip(o.Name), clip(o.Suffix))
		return ir.NoReg, ir.NoType
	}
	return r.regs[n], r.typ
}

// typed returns the register that o names, which must fit t.
func (f *function) typed(o *ptx.Operand, t ir.Type, wider bool) ir.Reg {
	r, declared := f.register(o)
	if f.err != nil || t == ir.NoType {
		return r
	}
	fits := declared.Size() == t.Size() || wider && declared.Size() > t.Size() && !declared.Float() && (!t.Float() || bits(declared))
	if !fits || !agree(declared, t) && !wider || wider && !agree(declared, t) && declared.Size() == t.Size() {
		f.failAt(o, "%s is declared as .%s and can't be an operand of type .%s", clip(o.Name), declared, t)
	}
	return r
}

// dst returns the register that is written; NoReg for "_".
func (f *function) dst(o *ptx.Operand, t ir.Type) ir.Reg {
	if o.Kind == ptx.Sink {
		return ir.NoReg
	}
	return f.typed(o, t, false)
}

// wideDst is dst where the register may be larger than the type.
func (f *function) wideDst(o *ptx.Operand, t ir.Type) ir.Reg {
	if o.Kind == ptx.Sink {
		return ir.NoReg
	}
	return f.typed(o, t, true)
}

// src returns a value of type t.
func (f *function) src(o *ptx.Operand, t ir.Type) ir.Operand { return f.value(o, t, false) }

// wideSrc is src where a register may be larger than the type.
func (f *function) wideSrc(o *ptx.Operand, t ir.Type) ir.Operand { return f.value(o, t, true) }

func (f *function) value(o *ptx.Operand, t ir.Type, wider bool) ir.Operand {
	switch {
	case f.err != nil:
	case t == ir.Pred:
		return f.predicate(o)
	case o.Neg || o.Not:
		f.failAt(o, "a sign is not allowed here")
	case o.Kind == ptx.Num:
		bits, ok := immediate(o.Num, t)
		if !ok {
			f.failAt(o, "%s is no value of type .%s", o.Num, t)
		}
		return ir.Imm(bits)
	case o.Kind == ptx.Name:
		if s, ok := sregs[sregName(o)]; ok && o.Num.Bits == 0 {
			return f.special(o, s, t)
		}
		if sym := f.lookup(o.Name); sym != nil && sym.reg == nil {
			return f.symbolAddress(o, sym, t)
		}
		return ir.R(f.typed(o, t, wider))
	default:
		f.failAt(o, "a register or a number is expected")
	}
	return ir.Imm(0)
}

// predicate returns a predicate, perhaps inverted, or 0 or 1.
func (f *function) predicate(o *ptx.Operand) ir.Operand {
	if o.Kind == ptx.Num && !o.Num.Float() {
		bits, _ := immediate(o.Num, ir.Pred)
		return ir.Imm(bits)
	}
	r, declared := f.register(o)
	if f.err == nil && declared != ir.Pred {
		f.failAt(o, "%s is declared as .%s and is no predicate", clip(o.Name), declared)
	}
	p := ir.R(r)
	p.Not = o.Not
	return p
}

// symbolAddress is the address of a variable or of a function as a value.
func (f *function) symbolAddress(o *ptx.Operand, sym *symbol, t ir.Type) ir.Operand {
	wrong := t.Float() || o.Suffix != ""
	switch {
	case sym.v != nil && (t.Size() == 8 || t.Size() == 4 && windowed(sym.v.Space)) && !wrong:
		a := varOperand(f.stored(o, sym.v))
		a.Imm = o.Num.Bits
		return f.moved(a, t)
	case sym.fn != nil && t.Size() == 8 && !wrong && o.Num.Bits == 0:
		sym.taken = true
		if sym.fn.Kernel {
			f.nvidiaOnly("a kernel's address is for kernels that launch others")
		}
		return f.moved(ir.Operand{Kind: ir.FuncOperand, Func: sym.fn, Reg: ir.NoReg}, t)
	case sym.texture:
		f.nvidiaOnly("textures and surfaces are not imitated")
		return ir.Imm(0)
	}
	f.failAt(o, "%s is no value of type .%s", clip(o.Name), t)
	return ir.Imm(0)
}

// moved is an address that only mov can have, in a register for the others.
func (f *function) moved(a ir.Operand, t ir.Type) ir.Operand {
	if f.in.Op == "mov" || f.in.Op == "cvta" && a.Kind == ir.VarOperand {
		return a
	}
	r := f.temp(t)
	f.op(ir.Mov, t.Bits(), ir.Mods{}, r, a)
	return ir.R(r)
}

// windowed tells of spaces whose addresses begin at 0.
func windowed(s ir.Space) bool { return s == ir.Shared || s == ir.Local || s == ir.Param }

// stored returns where a variable is whose address is taken. PTX has a
// function's parameters in registers, perhaps: one whose address is taken is
// copied to local memory (PTX ISA, mov).
func (f *function) stored(o *ptx.Operand, v *ir.Var) *ir.Var {
	if v.Space != ir.Param || f.f.Kernel {
		return v
	}
	for i, p := range f.f.Params {
		if &p.Var != v {
			continue
		}
		if f.copies[v] == nil {
			f.copies[v] = f.copyParam(f.decl.Params[i], v)
		}
		return f.copies[v]
	}
	f.failAt(o, "the address of %s, which a call passes, can't be taken", clip(v.Name))
	return v
}

// copyParam makes a local variable with the parameter's bytes, at the entry.
func (f *function) copyParam(src *ptx.Var, v *ir.Var) *ir.Var {
	c := &ir.Var{Name: f.varNames.unique(v.Name + "$copy"), Space: ir.Local, Size: v.Size, Align: max(v.Align, 8)}
	f.f.Vars = append(f.f.Vars, c)
	const most = 4096
	if v.Size > most {
		f.fail(src.Pos, "a parameter whose address is taken has %d bytes at most", most)
		return c
	}
	var copied []*ir.Instr
	for at := int64(0); at < v.Size; {
		t := widest(v.Size-at, at|v.Align)
		r := f.temp(t)
		copied = append(copied,
			&ir.Instr{Op: ir.Ld, Type: t, Mods: ir.Mods{Space: ir.Param}, Dst: []ir.Reg{r}, Args: []ir.Operand{varOperand(v)}, Offset: at, Guard: ir.NoReg, Pos: f.f.Pos},
			&ir.Instr{Op: ir.St, Type: t, Mods: ir.Mods{Space: ir.Local}, Args: []ir.Operand{varOperand(c), ir.R(r)}, Offset: at, Guard: ir.NoReg, Pos: f.f.Pos})
		at += int64(t.Size())
	}
	entry := f.f.Blocks[0]
	entry.Instrs = append(copied, entry.Instrs...)
	return c
}

// widest is the largest type that fits into size bytes and is aligned at a
// multiple of the lowest bit of at.
func widest(size, at int64) ir.Type {
	for _, t := range []ir.Type{ir.B64, ir.B32, ir.B16} {
		if n := int64(t.Size()); n <= size && at&(n-1) == 0 {
			return t
		}
	}
	return ir.B8
}

// addr returns the address that o means in the space, and what is added to it.
// Without a space, a variable's own is returned.
func (f *function) addr(o *ptx.Operand, space ir.Space) (ir.Operand, int64, ir.Space) {
	switch {
	case f.err != nil:
		return ir.Imm(0), 0, space
	case o.Kind != ptx.Address || o.Elems != nil:
		f.failAt(o, "an address in brackets is expected")
		return ir.Imm(0), 0, space
	case o.Name == "":
		return ir.Imm(o.Num.Bits), 0, space
	}
	offset := int64(o.Num.Bits)
	sym := f.lookup(o.Name)
	switch {
	case sym == nil:
		f.failAt(o, "%s is not declared", clip(o.Name))
	case sym.texture:
		f.nvidiaOnly("textures and surfaces are not imitated")
	case sym.v != nil:
		v := sym.v
		if c := f.copies[v]; c != nil && space == ir.Local {
			v = c
		}
		if space == ir.Generic {
			space = v.Space
		}
		if v.Space != space {
			f.failAt(o, "%s is in .%s memory and not in .%s", clip(o.Name), v.Space, space)
		}
		return varOperand(v), offset, space
	case sym.reg != nil && len(sym.reg.regs) == 1:
		at, offset := f.pointer(o, sym.reg, offset, space)
		return at, offset, space
	default:
		f.failAt(o, "%s is no address", clip(o.Name))
	}
	return ir.Imm(0), 0, space
}

// pointer is a register as an address: of 64 bits, or of 32 where addresses are
// small, in which case the offset is added in 32 bits too.
func (f *function) pointer(o *ptx.Operand, r *register, offset int64, space ir.Space) (ir.Operand, int64) {
	if r.typ.Float() || r.typ == ir.Pred || r.typ.Size() != 8 && (r.typ.Size() != 4 || !windowed(space)) {
		f.failAt(o, "%s is declared as .%s and is no address of .%s memory", clip(o.Name), r.typ, space)
	}
	at := ir.R(r.regs[0])
	if r.typ.Size() == 8 {
		return at, offset
	}
	if offset != 0 {
		sum := f.temp(ir.B32)
		f.op(ir.Add, ir.S32, ir.Mods{}, sum, at, ir.Imm(uint64(uint32(offset))))
		at = ir.R(sum)
	}
	whole := f.temp(ir.B64)
	f.emit(&ir.Instr{Op: ir.Cvt, Type: ir.U64, Type2: ir.U32, Dst: []ir.Reg{whole}, Args: []ir.Operand{at}})
	return ir.R(whole), 0
}

// vector returns the operands that o stands for: its elements, or itself.
func (f *function) vector(o *ptx.Operand, n int) []ptx.Operand {
	list := []ptx.Operand{*o}
	switch o.Kind {
	case ptx.Vector:
		list = o.Elems
	case ptx.Name:
		if sym := f.lookup(o.Name); sym != nil && sym.reg != nil && len(sym.reg.regs) > 1 && o.Suffix == "" {
			list = nil
			for i := range sym.reg.regs {
				c := *o
				c.Suffix = "xyzw"[i%4 : i%4+1]
				list = append(list, c)
			}
		}
	}
	if n > 0 && len(list) != n {
		f.failAt(o, "%d elements are expected, not %d", n, len(list))
		for len(list) < n {
			list = append(list, ptx.Operand{Kind: ptx.Sink})
		}
		list = list[:n]
	}
	return list
}
