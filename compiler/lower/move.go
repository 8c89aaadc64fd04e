// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

func (f *function) mov() {
	vec := f.vecMod()
	t := f.typeFor(ir.Mov)
	a := f.args(2, 2)
	if f.err != nil {
		return
	}
	if vec > 1 {
		to, from := f.vector(&a[0], vec), f.vector(&a[1], vec)
		f.moveAll(t, to, from)
		return
	}
	switch into, outOf := a[0].Kind == ptx.Vector, a[1].Kind == ptx.Vector; {
	case into && outOf:
		whole := f.temp(t)
		f.pack(t, whole, &a[1])
		f.unpack(t, &a[0], ir.R(whole))
	case into:
		f.unpack(t, &a[0], f.src(&a[1], t))
	case outOf:
		f.pack(t, f.dst(&a[0], t), &a[1])
	default:
		dst := f.dst(&a[0], t)
		f.op(ir.Mov, t, ir.Mods{}, dst, f.src(&a[1], t))
	}
}

// moveAll moves as if all were read before one is written.
func (f *function) moveAll(t ir.Type, to, from []ptx.Operand) {
	temps := make([]ir.Reg, len(from))
	for i := range from {
		temps[i] = f.temp(t)
		f.op(ir.Mov, t, ir.Mods{}, temps[i], f.src(&from[i], t))
	}
	for i := range to {
		if d := f.dst(&to[i], t); d != ir.NoReg {
			f.op(ir.Mov, t, ir.Mods{}, d, ir.R(temps[i]))
		}
	}
}

// part is the type of one of n parts of a value of type t.
func (f *function) part(t ir.Type, o *ptx.Operand) ir.Type {
	n := len(o.Elems)
	if bits(t) && (n == 2 || n == 4 || n == 8) && t.Size()%n == 0 {
		switch t.Size() / n {
		case 1:
			return ir.B8
		case 2:
			return ir.B16
		case 4:
			return ir.B32
		case 8:
			return ir.B64
		}
	}
	f.failAt(o, "a value of type .%s does not have %d parts", t, n)
	return ir.NoType
}

func (f *function) pack(t ir.Type, dst ir.Reg, o *ptx.Operand) {
	p := f.part(t, o)
	f.op(ir.Pack, t, ir.Mods{}, dst, f.sources(o.Elems, p)...)
}

func (f *function) unpack(t ir.Type, o *ptx.Operand, whole ir.Operand) {
	p := f.part(t, o)
	in := &ir.Instr{Op: ir.Unpack, Type: t, Args: []ir.Operand{whole}}
	for i := range o.Elems {
		in.Dst = append(in.Dst, f.dst(&o.Elems[i], p))
	}
	f.emit(in)
}

// vecMod takes .v2, .v4 or .v8; 1 without.
func (f *function) vecMod() int {
	n, word := pick(&f.mods, map[string]int{"v2": 2, "v4": 4, "v8": 8})
	if word == "" {
		return 1
	}
	return n
}

// precision orders floating point types: a conversion to a smaller one rounds.
var precision = map[ir.Type]int{
	ir.E5M2x2: 1, ir.E4M3x2: 1, ir.F16: 3, ir.F16x2: 3, ir.BF16: 2, ir.BF16x2: 2, ir.TF32: 4, ir.F32: 5, ir.F64: 6,
}

func (f *function) cvt() {
	if f.mods.flag("pack") {
		f.cvtPack()
		return
	}
	var m ir.Mods
	m.Round, _ = pick(&f.mods, rounds)
	m.FTZ, m.Relu = f.mods.flag("ftz"), f.mods.flag("relu")
	sat, finite := f.mods.flag("sat"), f.mods.flag("satfinite")
	m.Sat = sat || finite
	t := f.typeFor(ir.Cvt)
	t2 := f.typ()
	// Mods.Sat means the one for some types, and the other for the rest.
	packed := t == ir.F16x2 || t == ir.BF16x2 || t == ir.E4M3x2 || t == ir.E5M2x2
	half := t == ir.F16 || t == ir.BF16
	if sat && (packed || t == ir.TF32) || finite && !packed && t != ir.TF32 && (!half || t2 != ir.F32) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	if finite && half {
		f.cvtFinite(m, t)
		return
	}
	if f.err == nil && (!ir.Cvt.Takes(t2) || bits(t) || bits(t2)) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	f.checkRound(m, t, t2)
	a := f.args(2, 3)
	in := &ir.Instr{Op: ir.Cvt, Type: t, Type2: t2, Mods: m, Dst: []ir.Reg{f.wideDst(&a[0], t)}, Args: []ir.Operand{f.wideSrc(&a[1], t2)}}
	if packs := t2 == ir.F32 && (t == ir.F16x2 || t == ir.BF16x2 || t == ir.E4M3x2 || t == ir.E5M2x2); packs != (len(f.in.Args) == 3) {
		f.fail(f.in.Pos, "%s has %d operands", clip(f.in.Opcode()), len(f.in.Args))
	} else if packs {
		in.Args = append(in.Args, f.src(&a[2], t2))
	}
	f.emit(in)
}

// checkRound finds conversions that don't say how they round, or that don't
// round and say how.
func (f *function) checkRound(m ir.Mods, t, t2 ir.Type) {
	toInt := m.Round >= ir.RNI
	wrong := ""
	switch {
	case f.err != nil:
	case !t.Float() && !t2.Float():
		if m.Round != ir.NoRound || m.FTZ || m.Relu {
			wrong = "integers are not rounded"
		}
	case !t.Float():
		if !toInt {
			wrong = "a conversion to an integer takes .rni, .rzi, .rmi or .rpi"
		}
	case !t2.Float():
		if toInt || m.Round == ir.NoRound || m.Round == ir.RNA {
			wrong = "a conversion from an integer takes .rn, .rz, .rm or .rp"
		}
	case toInt:
		if t != t2 {
			wrong = "only within one type numbers are rounded to integers"
		}
	case precision[t] < precision[t2] && m.Round == ir.NoRound && t != ir.TF32:
		wrong = "it does not say how it rounds"
	case m.Round == ir.RNA && t != ir.TF32:
		wrong = ".rna is for .tf32"
	}
	if wrong != "" {
		f.fail(f.in.Pos, "%s: %s", clip(f.in.Opcode()), wrong)
	}
}

// cvtFinite makes a number of half the size, which is not infinite: it is one of
// a pair, where Sat means that.
func (f *function) cvtFinite(m ir.Mods, t ir.Type) {
	pair := map[ir.Type]ir.Type{ir.F16: ir.F16x2, ir.BF16: ir.BF16x2}[t]
	f.checkRound(m, pair, ir.F32)
	a := f.args(2, 2)
	both := f.temp(ir.B32)
	f.emit(&ir.Instr{Op: ir.Cvt, Type: pair, Type2: ir.F32, Mods: m, Dst: []ir.Reg{both}, Args: []ir.Operand{ir.Imm(0), f.src(&a[1], ir.F32)}})
	f.emit(&ir.Instr{Op: ir.Unpack, Type: ir.B32, Dst: []ir.Reg{f.dst(&a[0], t), ir.NoReg}, Args: []ir.Operand{ir.R(both)}})
}

func (f *function) cvtPack() {
	if !f.mods.flag("sat") {
		f.fail(f.in.Pos, "cvt.pack lacks .sat")
	}
	t := f.typeFor(ir.CvtPack)
	t2 := f.typ()
	three := f.mods.flag("b32")
	if t2 != ir.S32 || three == (t.Size() == 2) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	n := 3
	if three {
		n = 4
	}
	a := f.args(n, n)
	in := &ir.Instr{Op: ir.CvtPack, Type: t, Type2: t2, Mods: ir.Mods{Sat: true}, Dst: []ir.Reg{f.dst(&a[0], ir.B32)}, Args: f.sources(a[1:3], ir.S32)}
	if three {
		in.Args = append(in.Args, f.src(&a[3], ir.B32))
	}
	f.emit(in)
}
