// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func TestFloatModifiers(t *testing.T) {
	const tiny, nan = 0x00000001, 0x7fffffff
	minusTiny, one := uint64(0x80000001), bits32(1)
	for _, c := range []struct {
		name    string
		op      ir.Op
		typ     ir.Type
		mods    ir.Mods
		a, b, c uint64
		want    uint64
	}{
		{"inputs flushed", ir.Add, ir.F32, ir.Mods{FTZ: true}, tiny, minusTiny, 0, 0},
		{"not flushed", ir.Add, ir.F32, ir.Mods{}, tiny, tiny, 0, 2},
		{"result flushed", ir.Mul, ir.F32, ir.Mods{FTZ: true}, bits32(-0x1p-100), bits32(0x1p-40), 0, 0x80000000},
		{"subnormal result", ir.Mul, ir.F32, ir.Mods{}, bits32(-0x1p-100), bits32(0x1p-40), 0, 0x80000000 | 1<<9},
		{"flushed and rounded", ir.Mul, ir.F32, ir.Mods{FTZ: true, Round: ir.RP}, bits32(0x1p-100), bits32(0x1p-40), 0, 0},
		{"saturated", ir.Add, ir.F32, ir.Mods{Sat: true}, one, one, 0, one},
		{"saturated below", ir.Sub, ir.F32, ir.Mods{Sat: true}, one, bits32(2), 0, 0},
		{"saturated minus zero", ir.Mul, ir.F32, ir.Mods{Sat: true}, 0x80000000, one, 0, 0},
		{"saturated NaN", ir.Fma, ir.F32, ir.Mods{Sat: true}, 0x7f800000, 0, one, 0},
		{"saturated within", ir.Fma, ir.F32, ir.Mods{Sat: true}, bits32(0.5), bits32(0.5), bits32(0.25), bits32(0.5)},
		{"relu", ir.Fma, ir.F16, ir.Mods{Relu: true}, half(1), half(-1), 0, 0},
		{"relu NaN", ir.Fma, ir.BF16, ir.Mods{Relu: true}, 0x7f80, 0, 0, 0x7fff},
		{"half", ir.Add, ir.F16, ir.Mods{}, half(2048), half(1), 0, half(2048)},
		{"half, tie to even", ir.Add, ir.F16, ir.Mods{}, half(2050), half(1), 0, half(2052)},
		{"half overflows", ir.Mul, ir.F16, ir.Mods{}, half(60000), half(2), 0, 0x7c00},
		{"half subnormal flushed", ir.Mul, ir.F16, ir.Mods{FTZ: true}, 0x0400, 0x3800, 0, 0},
		{"half fused", ir.Fma, ir.F16, ir.Mods{}, 0x3c01, 0x3c01, 0xbc02, 0x0010},
		{"min of zeroes", ir.Min, ir.F32, ir.Mods{}, 0, 0x80000000, 0, 0x80000000},
		{"max of zeroes", ir.Max, ir.F32, ir.Mods{}, 0x80000000, 0, 0, 0},
		{"min of a NaN", ir.Min, ir.F32, ir.Mods{}, 0x7fc00001, one, 0, one},
		{"min of NaNs", ir.Min, ir.F32, ir.Mods{}, 0x7fc00001, 0xffc00000, 0, nan},
		{"min.NaN", ir.Min, ir.F32, ir.Mods{NaN: true}, 0x7fc00001, one, 0, nan},
		{"max.ftz", ir.Max, ir.F32, ir.Mods{FTZ: true}, tiny, minusTiny, 0, 0},
		{"min.xorsign", ir.Min, ir.F32, ir.Mods{XorSign: true}, bits32(-3), bits32(2), 0, bits32(-2)},
		{"max.xorsign", ir.Max, ir.F32, ir.Mods{XorSign: true}, bits32(-3), bits32(-2), 0, bits32(3)},
		{"max double", ir.Max, ir.F64, ir.Mods{}, bits64(-3), bits64(-2), 0, bits64(-2)},
		{"min of negative doubles", ir.Min, ir.F64, ir.Mods{}, bits64(-3), bits64(-2), 0, bits64(-3)},
		{"neg", ir.Neg, ir.F32, ir.Mods{}, one, 0, 0, bits32(-1)},
		{"neg.ftz", ir.Neg, ir.F32, ir.Mods{FTZ: true}, tiny, 0, 0, 0x80000000},
		{"abs", ir.Abs, ir.F64, ir.Mods{}, bits64(-2), 0, 0, bits64(2)},
		{"copysign", ir.Copysign, ir.F32, ir.Mods{}, bits32(-1), bits32(7), 0, bits32(-7)},
		{"sqrt", ir.Sqrt, ir.F32, ir.Mods{Round: ir.RN}, bits32(2), 0, 0, bits32(float32(math.Sqrt2))},
		{"sqrt up", ir.Sqrt, ir.F32, ir.Mods{Round: ir.RP}, bits32(2), 0, 0, 0x3fb504f4},
		{"sqrt down", ir.Sqrt, ir.F32, ir.Mods{Round: ir.RM}, bits32(2), 0, 0, 0x3fb504f3},
		{"rcp", ir.Rcp, ir.F32, ir.Mods{Round: ir.RN}, bits32(3), 0, 0, bits32(1.0 / 3)},
		{"rcp up", ir.Rcp, ir.F64, ir.Mods{Round: ir.RP}, bits64(3), 0, 0, bits64(1.0/3) + 1},
		{"rcp of zero", ir.Rcp, ir.F32, ir.Mods{Approx: true, FTZ: true}, 0x80000001, 0, 0, 0xff800000},
		{"mad is fused", ir.Mad, ir.F32, ir.Mods{}, 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
	} {
		f := scalarOf(&ir.Instr{Op: c.op, Type: c.typ, Mods: c.mods, Args: make([]ir.Operand, 2)})
		if f == nil {
			t.Errorf("%s: not there", c.name)
			continue
		}
		if got := f(c.a, c.b, c.c, 0); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.want)
		}
	}
}

// Approximate functions are within PTX's error (ISA 9.7.3.14 to 9.7.3.22).
func TestApproximations(t *testing.T) {
	r := seeded()
	relative := func(e float64) func(got, want float64) bool {
		return func(got, want float64) bool { return math.Abs(got-want) <= e*math.Abs(want) }
	}
	absolute := func(e float64) func(got, want float64) bool {
		return func(got, want float64) bool { return math.Abs(got-want) <= e }
	}
	for _, c := range []struct {
		op     ir.Op
		lo, hi float64
		exact  func(float64) float64
		within func(got, want float64) bool
	}{
		{ir.Ex2, -100, 100, math.Exp2, relative(0x1p-22)},
		{ir.Lg2, 2, 1e30, math.Log2, relative(0x1p-22)},
		{ir.Lg2, 0.5, 2, math.Log2, absolute(0x1p-22)},
		{ir.Sin, -math.Pi, math.Pi, math.Sin, absolute(0x1p-20)},
		{ir.Cos, -math.Pi, math.Pi, math.Cos, absolute(0x1p-20)},
		{ir.Rsqrt, 1e-30, 1e30, func(x float64) float64 { return 1 / math.Sqrt(x) }, relative(0x1p-22)},
		{ir.Tanh, -5, 5, math.Tanh, relative(0x1p-11)},
	} {
		f := scalarOf(&ir.Instr{Op: c.op, Type: ir.F32, Mods: ir.Mods{Approx: true}})
		for range 1000 {
			x := bits32(float32(c.lo + (c.hi-c.lo)*r.Float64()))
			if got, want := float64(f32(f(x, 0, 0, 0))), c.exact(float64(f32(x))); !c.within(got, want) {
				t.Errorf("%s %g: got %g, want %g", c.op, f32(x), got, want)
			}
		}
	}
	const inf, ninf, nan = 0x7f800000, 0xff800000, 0x7fffffff
	for _, c := range []struct {
		op      ir.Op
		ftz     bool
		a, want uint64
	}{
		{ir.Ex2, false, ninf, 0},
		{ir.Ex2, false, inf, inf},
		{ir.Ex2, false, 0x80000000, bits32(1)},
		{ir.Lg2, false, 0, ninf},
		{ir.Lg2, false, bits32(-1), nan},
		{ir.Lg2, true, 1, ninf},
		{ir.Rsqrt, false, 0x80000000, ninf},
		{ir.Rsqrt, false, 0, inf},
		{ir.Rsqrt, false, inf, 0},
		{ir.Rsqrt, false, bits32(-1), nan},
		{ir.Sin, false, inf, nan},
		{ir.Sin, false, 0x80000000, 0x80000000},
		{ir.Cos, true, 1, bits32(1)},
		{ir.Tanh, false, ninf, bits32(-1)},
		{ir.Ex2, false, 0x7fc00001, nan},
		{ir.Ex2, true, bits32(-130), 0},
	} {
		f := scalarOf(&ir.Instr{Op: c.op, Type: ir.F32, Mods: ir.Mods{Approx: true, FTZ: c.ftz}})
		if got := f(c.a, 0, 0, 0); got != c.want {
			t.Errorf("%s %#x: got %#x, want %#x", c.op, c.a, got, c.want)
		}
	}
	gross := scalarOf(&ir.Instr{Op: ir.Rcp, Type: ir.F64, Mods: ir.Mods{Approx: true, FTZ: true}})
	for range 1000 {
		x := math.Ldexp(1+r.Float64(), r.IntN(1000)-500)
		got := gross(bits64(x), 0, 0, 0)
		if got&0xffffffff != 0 || math.Abs(f64(got)*x-1) > 0x1p-19 {
			t.Errorf("rcp.approx.ftz.f64 %g: got %g", x, f64(got))
		}
	}
	if got := gross(1<<63|1, 0, 0, 0); got != bits64(math.Inf(-1)) {
		t.Errorf("rcp.approx.ftz.f64 of a negative subnormal: got %#x", got)
	}
}

func TestComparisons(t *testing.T) {
	const nan = 0x7fc00000
	one, two := bits32(1), bits32(2)
	for _, c := range []struct {
		typ  ir.Type
		cmp  ir.Cmp
		ftz  bool
		a, b uint64
		want bool
	}{
		{ir.S32, ir.LT, false, 0xffffffff, 0, true},
		{ir.U32, ir.LT, false, 0xffffffff, 0, false},
		{ir.S16, ir.GE, false, 0x18000, 0x7fff, false},
		{ir.U16, ir.EQ, false, 0x18000, 0x8000, true},
		{ir.B64, ir.NE, false, 1, 1 << 40, true},
		{ir.S64, ir.LE, false, 1 << 63, 0, true},
		{ir.U64, ir.GT, false, 1 << 63, 0, true},
		{ir.F32, ir.LT, false, one, two, true},
		{ir.F32, ir.LT, false, two, one, false},
		{ir.F32, ir.LT, false, bits32(-2), bits32(-1), true},
		{ir.F32, ir.EQ, false, 0, 0x80000000, true},
		{ir.F32, ir.LT, false, 0x80000000, 0, false},
		{ir.F32, ir.EQ, false, nan, nan, false},
		{ir.F32, ir.NE, false, nan, one, false},
		{ir.F32, ir.NEU, false, nan, one, true},
		{ir.F32, ir.EQU, false, nan, one, true},
		{ir.F32, ir.LTU, false, two, one, false},
		{ir.F32, ir.LTU, false, two, nan, true},
		{ir.F32, ir.GE, false, nan, one, false},
		{ir.F32, ir.GEU, false, one, one, true},
		{ir.F32, ir.NUM, false, one, two, true},
		{ir.F32, ir.NUM, false, one, nan, false},
		{ir.F32, ir.NAN, false, nan, one, true},
		{ir.F32, ir.NE, false, 1, 0, true},
		{ir.F32, ir.NE, true, 1, 0x80000002, false},
		{ir.F64, ir.GT, false, bits64(-1), bits64(-2), true},
		{ir.F16, ir.LE, false, 0x3c00, 0x3c00, true},
		{ir.BF16, ir.LT, false, 0xbf80, 0x3f80, true},
	} {
		if got := compare(c.typ, c.cmp, c.ftz)(c.a, c.b); got != c.want {
			t.Errorf("compare %d of %s %#x, %#x: got %v", c.cmp, c.typ, c.a, c.b, got)
		}
	}
	values := []uint64{0, 0x80000000, one, bits32(-1), 1, 0x7f800000, 0xff800000, nan}
	for what, want := range map[ir.Test][8]bool{
		ir.Finite:     {true, true, true, true, true, false, false, false},
		ir.Infinite:   {false, false, false, false, false, true, true, false},
		ir.Number:     {true, true, true, true, true, true, true, false},
		ir.NotANumber: {false, false, false, false, false, false, false, true},
		ir.Normal:     {true, true, true, true, false, false, false, false},
		ir.Subnormal:  {false, false, false, false, true, false, false, false},
	} {
		for i, x := range values {
			if got := test(ir.F32, what)(x); got != want[i] {
				t.Errorf("testp %d of %#x: got %v", what, x, got)
			}
		}
	}
}
