// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// format is a floating point format: its precision and its exponent's bits, as
// the helpers in softfloat.cl take them.
type format struct{ p, eb int }

var formats = map[ir.Type]format{
	ir.F16: {11, 5}, ir.BF16: {8, 8}, ir.TF32: {24, 8}, ir.F32: {24, 8}, ir.F64: {53, 11},
}

// roundings are softfloat.cl's modes.
var roundings = map[ir.Round]int{
	ir.NoRound: 0, ir.RN: 0, ir.RZ: 1, ir.RM: 2, ir.RP: 3, ir.RNA: 4,
	ir.RNI: 0, ir.RZI: 1, ir.RMI: 2, ir.RPI: 3,
}

func (f format) String() string { return fmt.Sprintf("%d, %d", f.p, f.eb) }

// floating is the value of a floating point operation with one result, an
// unsigned expression of the result's size.
func (e *emitter) floating(in *ir.Instr) (x string, ok bool) {
	if t, two := halves[in.Type]; two {
		lo, ok := e.scalarFloat(in, t, e.lane(in, 0))
		hi, _ := e.scalarFloat(in, t, e.lane(in, 16))
		return fmt.Sprintf("(uint)%s | (uint)%s << 16", paren(lo), paren(hi)), ok
	}
	args := make([]string, len(in.Args))
	for i, o := range in.Args {
		args[i] = e.bits(o, in.Type)
	}
	return e.scalarFloat(in, in.Type, args)
}

// halves are the types of two numbers in a register.
var halves = map[ir.Type]ir.Type{ir.F16x2: ir.F16, ir.BF16x2: ir.BF16}

// lane are the operands' parts that begin at a bit.
func (e *emitter) lane(in *ir.Instr, shift int) []string {
	args := make([]string, len(in.Args))
	for i, o := range in.Args {
		if o.Kind == ir.RegOperand && e.f.Regs[o.Reg].Type == ir.Pred {
			args[i] = e.bits(o, ir.Pred)
			continue
		}
		args[i] = fmt.Sprintf("(ushort)(%s >> %d)", e.bits(o, ir.B32), shift)
	}
	return args
}

// scalarFloat is an operation of type t on operands' bits.
func (e *emitter) scalarFloat(in *ir.Instr, t ir.Type, args []string) (string, bool) {
	f := fmt.Sprintf
	switch in.Op {
	case ir.Neg, ir.Abs:
		return e.signChange(in, t, args[0]), true
	case ir.Copysign:
		top := literal(t, 1<<(8*t.Size()-1))
		return f("(%s & ~%s) | (%s & %s)", args[1], top, args[0], top), true
	}
	if t == ir.F64 && in.Mods.Approx && (in.Op == ir.Rcp || in.Op == ir.Rsqrt && in.Mods.FTZ) {
		return f("hg_gross_%s(%s)", in.Op, args[0]), true
	}
	if x, ok := e.softly(in, t, args); ok {
		return e.finishBits(in, t, x), true
	}
	v := make([]string, len(args))
	for i := range args {
		v[i] = e.number(in, t, args[i])
	}
	one := "1.0f"
	if t == ir.F64 {
		one = "1.0"
	}
	width := t
	if t != ir.F64 {
		width = ir.F32
	}
	var x string
	switch in.Op {
	case ir.Add:
		x = v[0] + " + " + v[1]
	case ir.Sub:
		x = v[0] + " - " + v[1]
	case ir.Mul:
		x = v[0] + " * " + v[1]
	case ir.Fma, ir.Mad:
		x = f("fma(%s, %s, %s)", v[0], v[1], v[2])
	case ir.Div:
		x = v[0] + " / " + v[1]
	case ir.Rcp:
		x = one + " / " + v[0]
	case ir.Sqrt:
		x = f("sqrt(%s)", v[0])
	case ir.Rsqrt:
		x = f("hg_rsqrt_%s(%s)", width, v[0])
	case ir.Sin, ir.Cos:
		x = f("%s(%s)", in.Op, v[0])
	case ir.Lg2:
		x = f("hg_lg2_f32(%s)", v[0])
	case ir.Ex2:
		x = f("exp2(%s)", v[0])
	case ir.Tanh:
		x = f("tanh(%s)", v[0])
	case ir.Min, ir.Max:
		x = e.extreme(in, width, v)
	default:
		return "", false
	}
	return e.finish(in, t, x), true
}

// number is an operand's value, a float or a double.
func (e *emitter) number(in *ir.Instr, t ir.Type, bits string) string {
	var x string
	switch t {
	case ir.F64:
		x = fmt.Sprintf("as_double(%s)", bits)
	case ir.F16, ir.BF16:
		x = fmt.Sprintf("hg_from_%s(%s)", t, bits)
	default:
		x = fmt.Sprintf("as_float(%s)", bits)
	}
	return e.flush(in, t, x)
}

// flush makes a subnormal number zero if the instruction has .ftz.
func (e *emitter) flush(in *ir.Instr, t ir.Type, x string) string {
	if !in.Mods.FTZ {
		return x
	}
	return fmt.Sprintf("hg_ftz_%s(%s)", t, x)
}

// finish makes the result's bits of a value: flushed, saturated, rounded.
func (e *emitter) finish(in *ir.Instr, t ir.Type, x string) string {
	width := "f32"
	if t == ir.F64 {
		width = "f64"
	}
	if t == ir.F16 || t == ir.BF16 {
		x = fmt.Sprintf("hg_to_%s(%s)", t, x)
		if !in.Mods.FTZ && !in.Mods.Sat && !in.Mods.Relu {
			return x
		}
		x = fmt.Sprintf("hg_from_%s(%s)", t, x)
	}
	x = e.flush(in, t, x)
	if in.Mods.Sat {
		x = fmt.Sprintf("hg_sat_%s(%s)", width, x)
	}
	if in.Mods.Relu {
		x = fmt.Sprintf("hg_relu_f32(%s)", x)
	}
	switch t {
	case ir.F64:
		return fmt.Sprintf("as_ulong(%s)", x)
	case ir.F16, ir.BF16:
		return fmt.Sprintf("hg_to_%s(%s)", t, x)
	}
	return fmt.Sprintf("hg_bits_f32(%s)", x)
}

// finishBits is finish for a result that is bits and has been rounded.
func (e *emitter) finishBits(in *ir.Instr, t ir.Type, x string) string {
	if !in.Mods.FTZ && !in.Mods.Sat && !in.Mods.Relu {
		return x
	}
	plain := ir.Instr{Mods: ir.Mods{}}
	return e.finish(in, t, e.number(&plain, t, x))
}

// flushedBits are an operand's bits, flushed if the instruction has .ftz.
func (e *emitter) flushedBits(in *ir.Instr, t ir.Type, bits string) string {
	if !in.Mods.FTZ {
		return bits
	}
	f := formats[t]
	return fmt.Sprintf("(%s)hg_flush(%s, %s)", ctype(t), bits, f)
}

// softly is an operation that OpenCL has not with this rounding or in this format.
func (e *emitter) softly(in *ir.Instr, t ir.Type, args []string) (string, bool) {
	mode, soft := roundings[in.Mods.Round], in.Mods.Round > ir.RN
	switch {
	case in.Op == ir.Fma && t == ir.F16:
		return fmt.Sprintf("hg_fma_f16(%s, %s, %s)", e.flushedBits(in, t, args[0]), e.flushedBits(in, t, args[1]), e.flushedBits(in, t, args[2])), true
	case t == ir.BF16 && (in.Op == ir.Fma || in.Op == ir.Mul):
	case !soft:
		return "", false
	}
	a := make([]string, len(args))
	for i := range args {
		a[i] = "(ulong)" + paren(e.flushedBits(in, t, args[i]))
	}
	f := formats[t]
	var x string
	switch in.Op {
	case ir.Add, ir.Sub, ir.Mul, ir.Div:
		x = fmt.Sprintf("hg_soft_%s(%s, %s, %s, %d)", in.Op, a[0], a[1], f, mode)
	case ir.Rcp:
		one := uint64(1)<<(f.eb-1) - 1
		x = fmt.Sprintf("hg_soft_div(%s, %s, %s, %d)", literal(ir.B64, one<<(f.p-1)), a[0], f, mode)
	case ir.Sqrt:
		x = fmt.Sprintf("hg_soft_sqrt(%s, %s, %d)", a[0], f, mode)
	case ir.Fma, ir.Mad:
		x = fmt.Sprintf("hg_soft_fma(%s, %s, %s, %s, %d)", a[0], a[1], a[2], f, mode)
	default:
		return "", false
	}
	return fmt.Sprintf("(%s)%s", ctype(t), x), true
}

// signChange is neg or abs: the sign's bit, after a flush.
func (e *emitter) signChange(in *ir.Instr, t ir.Type, bits string) string {
	top := literal(t, 1<<(8*t.Size()-1))
	x := e.flushedBits(in, t, bits)
	if in.Op == ir.Neg {
		return fmt.Sprintf("(%s)(%s ^ %s)", ctype(t), x, top)
	}
	return fmt.Sprintf("(%s)(%s & ~%s)", ctype(t), x, top)
}

// extreme is min or max of two or three numbers.
func (e *emitter) extreme(in *ir.Instr, width ir.Type, v []string) string {
	name := fmt.Sprintf("hg_%s", in.Op)
	if in.Mods.NaN {
		name += "_nan"
	}
	if in.Mods.XorSign {
		name += "_xorsign"
	}
	x := v[0]
	for _, y := range v[1:] {
		x = fmt.Sprintf("%s_%s(%s, %s)", name, width, x, y)
	}
	return x
}
