// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// convert is cvt's value: bits of in.Type's size.
func (e *emitter) convert(in *ir.Instr) string {
	to, from := in.Type, in.Type2
	a := e.bits(in.Args[0], from)
	if half, two := halves[to]; two && len(in.Args) == 2 {
		b := e.bits(in.Args[1], from)
		return fmt.Sprintf("(uint)%s << 16 | (uint)%s", paren(e.floatToFloat(in, half, from, a)), paren(e.floatToFloat(in, half, from, b)))
	}
	switch {
	case to == ir.E4M3x2 || to == ir.E5M2x2 || from == ir.E4M3x2 || from == ir.E5M2x2:
		return e.minifloat(in)
	case !to.Float() && !from.Float():
		return e.intToInt(in, a)
	case !to.Float():
		return e.floatToInt(in, a)
	case !from.Float():
		return e.intToFloat(in, a)
	}
	return e.floatToFloat(in, to, from, a)
}

func (e *emitter) intToInt(in *ir.Instr, a string) string {
	to, from := in.Type, in.Type2
	if from.Signed() {
		a = fmt.Sprintf("as_%s(%s)", stype(from), a)
	}
	if !in.Mods.Sat {
		return fmt.Sprintf("(%s)%s", ctype(to), paren(a))
	}
	return fmt.Sprintf("(%s)convert_%s_sat(%s)", ctype(to), typeName(to), a)
}

// typeName is t's C type, signed or not.
func typeName(t ir.Type) string {
	if t.Signed() {
		return stype(t)
	}
	return ctype(t)
}

// floatToInt rounds to an integral value, and clamps that to the type.
func (e *emitter) floatToInt(in *ir.Instr, a string) string {
	to, from := in.Type, in.Type2
	round := map[ir.Round]string{ir.RNI: "rint", ir.RMI: "floor", ir.RPI: "ceil"}[in.Mods.Round]
	if round == "" {
		round = "trunc"
	}
	width := "f32"
	if from == ir.F64 {
		width = "f64"
	}
	letter, size := "u", 32
	if to.Signed() {
		letter = "s"
	}
	if to.Size() == 8 {
		size = 64
	}
	x := fmt.Sprintf("hg_%s_%s%d(%s(%s))", width, letter, size, round, e.number(in, from, a))
	if from == ir.F64 && to.Size() < 4 && !to.Signed() {
		// NaN is the highest bit of the small type.
		v := e.number(in, from, a)
		return fmt.Sprintf("(%s)(isnan(%s) ? %s : convert_%s_sat(%s))", ctype(to), v, literal(to, 1<<(8*to.Size()-1)), ctype(to), x)
	}
	if to.Size() < 4 {
		x = fmt.Sprintf("(%s)convert_%s_sat(%s)", ctype(to), typeName(to), x)
	}
	return e.narrow(to, x)
}

func (e *emitter) intToFloat(in *ir.Instr, a string) string {
	to, from := in.Type, in.Type2
	if from.Signed() {
		a = fmt.Sprintf("as_%s(%s)", stype(from), a)
	}
	if mode := roundings[in.Mods.Round]; mode != 0 || formats[to].p < 24 {
		sign, magnitude := "0", "(ulong)"+a
		if from.Signed() {
			sign = a + " < 0"
			magnitude = fmt.Sprintf("abs((long)%s)", a)
		}
		x := fmt.Sprintf("(%s)hg_soft_int(%s, %s, %s, %d)", ctype(to), sign, magnitude, formats[to], mode)
		return e.finishBits(in, to, x)
	}
	c := "float"
	if to == ir.F64 {
		c = "double"
	}
	plain := *in
	plain.Mods.FTZ = false
	return e.finish(&plain, to, fmt.Sprintf("(%s)%s", c, a))
}

// floatToFloat converts between formats, or rounds to an integral value.
func (e *emitter) floatToFloat(in *ir.Instr, to, from ir.Type, a string) string {
	mode := roundings[in.Mods.Round]
	if to == ir.TF32 {
		x := fmt.Sprintf("hg_to_tf32(%s, %d)", a, mode)
		if in.Mods.Relu {
			x = fmt.Sprintf("as_uint(hg_relu_f32(as_float(%s)))", x)
		}
		return x
	}
	// .ftz is about single precision only.
	plain, after := *in, *in
	plain.Mods.FTZ = in.Mods.FTZ && from == ir.F32
	after.Mods.FTZ = in.Mods.FTZ && to == ir.F32
	if integral := in.Mods.Round >= ir.RNI; !integral && to == from {
		after.Mods.FTZ = false
		return e.finishBits(&after, to, e.flushedBits(&plain, from, a))
	} else if integral {
		name := map[ir.Round]string{ir.RNI: "rint", ir.RZI: "trunc", ir.RMI: "floor", ir.RPI: "ceil"}[in.Mods.Round]
		x := fmt.Sprintf("%s(%s)", name, e.number(&plain, from, a))
		return e.finish(&after, to, e.widen(to, from, x))
	}
	if mode != 0 || (from == ir.F64 && to != ir.F32 && to != ir.F64) {
		x := fmt.Sprintf("(%s)hg_soft_cvt((ulong)%s, %s, %s, %d)", ctype(to), paren(e.flushedBits(&plain, from, a)), formats[from], formats[to], mode)
		return e.finishBits(&after, to, x)
	}
	x := e.widen(to, from, e.number(&plain, from, a))
	if to == ir.F64 {
		x = fmt.Sprintf("as_double(hg_bits_f64(%s))", x)
	}
	return e.finish(&after, to, x)
}

// widen makes a value the float or double that to's finish takes.
func (e *emitter) widen(to, from ir.Type, x string) string {
	switch {
	case to == ir.F64 && from != ir.F64:
		return "(double)" + paren(x)
	case to != ir.F64 && from == ir.F64:
		return "(float)" + paren(x)
	}
	return x
}

// minifloat converts two 8-bit numbers to or from halves or floats.
func (e *emitter) minifloat(in *ir.Instr) string {
	to, from := in.Type, in.Type2
	relu := fmt.Sprint(in.Mods.Relu)
	name := map[ir.Type]string{ir.E4M3x2: "e4m3", ir.E5M2x2: "e5m2"}
	if n, ok := name[from]; ok {
		a := e.bits(in.Args[0], ir.B16)
		return fmt.Sprintf("hg_from_%s((uchar)%s, %s) | hg_from_%s((uchar)(%s >> 8), %s) << 16", n, a, relu, n, a, relu)
	}
	n := name[to]
	if from == ir.F16x2 || from == ir.BF16x2 {
		half := halves[from]
		a := e.bits(in.Args[0], ir.B32)
		return fmt.Sprintf("(ushort)(hg_to_%s(hg_from_%s((ushort)%s), %s) | hg_to_%s(hg_from_%s((ushort)(%s >> 16)), %s) << 8)", n, half, a, relu, n, half, a, relu)
	}
	return fmt.Sprintf("(ushort)(hg_to_%s(as_float(%s), %s) << 8 | hg_to_%s(as_float(%s), %s))",
		n, e.bits(in.Args[0], ir.B32), relu, n, e.bits(in.Args[1], ir.B32), relu)
}
