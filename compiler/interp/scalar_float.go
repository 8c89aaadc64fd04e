// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// formatOf is nil for types that are not floating point numbers.
func formatOf(t ir.Type) *format {
	switch t {
	case ir.F64:
		return binary64
	case ir.F32:
		return binary32
	case ir.F16:
		return binary16
	case ir.BF16:
		return bfloat16
	}
	return nil
}

func f32(x uint64) float32    { return math.Float32frombits(uint32(x)) }
func bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }
func f64(x uint64) float64    { return math.Float64frombits(x) }
func bits64(x float64) uint64 { return math.Float64bits(x) }

// An arithmetic operation: exact for every format and mode, and how the host
// does it in the usual one. Go rounds each operation to the nearest where the
// result is converted, so both are the same; the tests compare them.
type arithmetic struct {
	soft   func(f *format, a, b uint64, r ir.Round) uint64
	single func(a, b float32) float32
	double func(a, b float64) float64
}

var (
	addition = arithmetic{
		(*format).add,
		func(a, b float32) float32 { return a + b },
		func(a, b float64) float64 { return a + b },
	}
	subtraction = arithmetic{
		(*format).sub,
		func(a, b float32) float32 { return a - b },
		func(a, b float64) float64 { return a - b },
	}
	multiplication = arithmetic{
		(*format).mul,
		func(a, b float32) float32 { return a * b },
		func(a, b float64) float64 { return a * b },
	}
	division = arithmetic{
		(*format).div,
		func(a, b float32) float32 { return a / b },
		func(a, b float64) float64 { return a / b },
	}
)

// floatOp is an operation on two numbers, with its rounding and modifiers. .approx
// and .full are rounded to the nearest: within any error that PTX allows them.
func floatOp(in *ir.Instr, op arithmetic) scalar {
	if f, pair := halfwise(in, func(one *ir.Instr) scalar { return floatOp(one, op) }); pair {
		return f
	}
	f, r := formatOf(in.Type), in.Mods.Round
	if f == nil {
		return nil
	}
	var s scalar
	switch {
	case f == binary32 && nearest(r):
		s = func(a, b, _, _ uint64) uint64 {
			x := op.single(f32(a), f32(b))
			if x != x {
				return binary32.nan
			}
			return bits32(x)
		}
	case f == binary64 && nearest(r):
		s = func(a, b, _, _ uint64) uint64 {
			x := op.double(f64(a), f64(b))
			if x != x {
				return op.soft(f, a, b, r)
			}
			return bits64(x)
		}
	default:
		m := ones(in.Type)
		s = func(a, b, _, _ uint64) uint64 { return op.soft(f, a&m, b&m, r) }
	}
	return modified(in, f, s)
}

func nearest(r ir.Round) bool { return r == ir.NoRound || r == ir.RN }

// modified adds .ftz, .sat and .relu.
func modified(in *ir.Instr, f *format, s scalar) scalar {
	if s == nil {
		return nil
	}
	if in.Mods.FTZ {
		exact := s
		s = func(a, b, c, d uint64) uint64 {
			return f.flush(exact(f.flush(a), f.flush(b), f.flush(c), d))
		}
	}
	return clamped(in, f, s)
}

// clamped adds .sat and .relu to what has a result of format f.
func clamped(in *ir.Instr, f *format, s scalar) scalar {
	free := s
	switch {
	case in.Mods.Sat:
		return func(a, b, c, d uint64) uint64 { return f.saturate(free(a, b, c, d)) }
	case in.Mods.Relu:
		return func(a, b, c, d uint64) uint64 { return f.relu(free(a, b, c, d)) }
	}
	return s
}

// saturate clamps to [0, 1]; NaN becomes 0.
func (f *format) saturate(x uint64) uint64 {
	one := uint64(f.bias()) << f.frac
	switch {
	case f.isNaN(x) || x&f.sign() != 0:
		return 0
	case x > one:
		return one
	}
	return x
}

// relu clamps what is negative to 0; NaN becomes the canonical one.
func (f *format) relu(x uint64) uint64 {
	switch {
	case f.isNaN(x):
		return f.nan
	case x&f.sign() != 0:
		return 0
	}
	return x
}

// buildFma is for Fma, and for Mad of floating point types, which is the same.
func buildFma(in *ir.Instr) scalar {
	if f, pair := halfwise(in, buildFma); pair {
		return f
	}
	f, r := formatOf(in.Type), in.Mods.Round
	if f == nil {
		return nil
	}
	m := ones(in.Type)
	s := func(a, b, c, _ uint64) uint64 { return f.fma(a&m, b&m, c&m, r) }
	if nearest(r) && f == binary64 {
		s = func(a, b, c, _ uint64) uint64 {
			x := math.FMA(f64(a), f64(b), f64(c))
			if x != x {
				return f.fma(a, b, c, r)
			}
			return bits64(x)
		}
	}
	if nearest(r) && f == binary32 {
		s = fma32
	}
	return modified(in, f, s)
}

// fma32 is the fused operation by that of the host for double precision: its
// product is exact there. Where the sum lies in the middle between two numbers
// of single precision, what was rounded off decides.
func fma32(a, b, c, _ uint64) uint64 {
	p := float64(f32(a)) * float64(f32(b))
	x := p + float64(f32(c))
	if x != x {
		return binary32.nan
	}
	u := bits64(x)
	// Halfway: the 29 bits that single precision has not are a one and zeroes.
	// Subnormal results round elsewhere: the exact way for them, but for zero.
	if u&(1<<29-1) == 1<<28 || math.Abs(x) < 0x1p-125 && x != 0 {
		return binary32.fma(a&0xffffffff, b&0xffffffff, c&0xffffffff, ir.RN)
	}
	return bits32(float32(x))
}

func buildSqrt(in *ir.Instr) scalar {
	f, r := formatOf(in.Type), in.Mods.Round
	if f != binary32 && f != binary64 {
		return nil
	}
	return modified(in, f, func(a, _, _, _ uint64) uint64 {
		switch {
		case !nearest(r) || f.isNaN(a) || a&f.sign() != 0:
			return f.sqrt(a, r)
		case f == binary32:
			return bits32(float32(math.Sqrt(float64(f32(a)))))
		}
		return bits64(math.Sqrt(f64(a)))
	})
}

func buildRcp(in *ir.Instr) scalar {
	f, r := formatOf(in.Type), in.Mods.Round
	if f != binary32 && f != binary64 {
		return nil
	}
	if f == binary64 && in.Mods.Approx {
		return grossly(func(x float64) float64 { return 1 / x })
	}
	one := uint64(f.bias()) << f.frac
	return modified(in, f, func(a, _, _, _ uint64) uint64 { return f.div(one, a, r) })
}

// buildSign is for Abs and Neg, which change the sign and nothing else.
func buildSign(in *ir.Instr) scalar {
	if f, pair := halfwise(in, buildSign); pair {
		return f
	}
	f := formatOf(in.Type)
	if f == nil {
		return nil
	}
	m, abs := ones(in.Type), in.Op == ir.Abs
	return func(a, _, _, _ uint64) uint64 {
		a &= m
		if in.Mods.FTZ {
			a = f.flush(a)
		}
		if abs {
			return a &^ f.sign()
		}
		return a ^ f.sign()
	}
}

// buildCopysign has the sign of a and the rest of b.
func buildCopysign(in *ir.Instr) scalar {
	f := formatOf(in.Type)
	if f == nil {
		return nil
	}
	m := ones(in.Type)
	return func(a, b, _, _ uint64) uint64 { return b&m&^f.sign() | a&f.sign() }
}

// floatMinMax prefers numbers to NaN, unless Mods.NaN, and knows that -0 < 0.
func floatMinMax(in *ir.Instr) scalar {
	f := formatOf(in.Type)
	if f == nil {
		return nil
	}
	m, larger, mods := ones(in.Type), in.Op == ir.Max, in.Mods
	s := func(a, b, _, _ uint64) uint64 {
		a, b = a&m, b&m
		if mods.FTZ {
			a, b = f.flush(a), f.flush(b)
		}
		var sign uint64
		if mods.XorSign {
			sign = (a ^ b) & f.sign()
			a, b = a&^f.sign(), b&^f.sign()
		}
		switch x, y := f.isNaN(a), f.isNaN(b); {
		case x && y, mods.NaN && (x || y):
			return f.canonical()
		case x:
			return b | sign
		case y:
			return a | sign
		}
		if (f.order(a) < f.order(b)) == larger {
			a = b
		}
		return a | sign
	}
	return clamped(in, f, s)
}

// canonical is the NaN that is positive in every format.
func (f *format) canonical() uint64 {
	if f.payload {
		return f.inf() | 1<<(f.frac-1)
	}
	return f.nan
}

// order is a number that grows with x, which is no NaN; -0 is below 0.
func (f *format) order(x uint64) int64 {
	if x&f.sign() != 0 {
		return -1 - int64(x&^f.sign())
	}
	return int64(x)
}
