// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// seeded numbers are the same in each run.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(5, 1993)) }

var formats = map[string]*format{
	"f64": binary64, "f32": binary32, "f16": binary16, "bf16": bfloat16, "tf32": tfloat32, "e5m2": e5m2, "e4m3": e4m3,
}

var modes = []ir.Round{ir.RN, ir.RZ, ir.RM, ir.RP, ir.RNA}

// random is a number of the format: often one where something special happens.
func (f *format) random(r *rand.Rand) uint64 {
	x := r.Uint64() & (2*f.sign() - 1)
	switch r.IntN(10) {
	case 0: // few bits, so that results are exact or halfway
		x &^= 1<<(f.frac*3/4) - 1
	case 1: // subnormal, or zero
		x &= f.sign() | (1<<f.frac - 1)
	case 2: // around 1
		x = x&(f.sign()|3) + uint64(f.bias())<<f.frac
	case 3:
		special := []uint64{0, f.inf(), f.nan, f.top(), 1, 1 << f.frac, 1<<f.frac - 1}
		x = x&f.sign() ^ special[r.IntN(len(special))]
	case 4: // near the middle
		x = x&(f.sign()|1<<f.frac-1) | uint64(f.bias()-2+r.IntN(5))<<f.frac
	}
	return x
}

// value is the exact number, which must be finite.
func (f *format) value(x uint64) *big.Float {
	e := int(x &^ f.sign() >> f.frac)
	m := x & (1<<f.frac - 1)
	if e == 0 {
		e = 1
	} else {
		m |= 1 << f.frac
	}
	v := new(big.Float).SetPrec(4000).SetUint64(m)
	v.SetMantExp(v, e-f.bias()-int(f.frac))
	if x&f.sign() != 0 {
		v.Neg(v)
	}
	return v
}

// nearestTo is the format's number for v, found by another way than round's: the
// two numbers on both sides of it, by bisection, and then which one the mode
// wants. v is not zero.
func (f *format) nearestTo(v *big.Float, mode ir.Round) uint64 {
	abs := new(big.Float).Abs(v)
	neg := v.Sign() < 0
	var sign uint64
	if neg {
		sign = f.sign()
	}
	lo, hi := uint64(0), f.top()+1 // numbers are ordered as their bits are
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; f.value(mid).Cmp(abs) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	if f.value(lo).Cmp(abs) == 0 {
		return sign | lo
	}
	// f.value(hi) is what would come after the largest number too.
	after := f.value(lo)
	step := new(big.Float).Sub(f.value(lo), f.value(max(lo, 1)-1))
	if lo < f.top() {
		after = f.value(hi)
	} else {
		after.Add(after, step)
	}
	middle := new(big.Float).Add(f.value(lo), after)
	middle.Quo(middle, big.NewFloat(2))
	up := false
	switch c := abs.Cmp(middle); mode {
	case ir.RN:
		up = c > 0 || c == 0 && lo&1 != 0
	case ir.RNA:
		up = c >= 0
	case ir.RM:
		up = neg
	case ir.RP:
		up = !neg
	}
	if !up {
		return sign | lo
	}
	if hi > f.top() {
		if f.finite {
			return sign | f.nan
		}
		return sign | f.inf()
	}
	return sign | hi
}

func (f *format) isFinite(x uint64) bool { return !f.isNaN(x) && !f.isInf(x) }

// Every operation in every format and mode, compared with exact arithmetic.
func TestExactRounding(t *testing.T) {
	ops := map[string]struct {
		got   func(f *format, a, b, c uint64, r ir.Round) uint64
		exact func(a, b, c *big.Float) *big.Float // nil: not a number
	}{
		"add": {
			func(f *format, a, b, _ uint64, r ir.Round) uint64 { return f.add(a, b, r) },
			func(a, b, _ *big.Float) *big.Float { return a.Add(a, b) },
		},
		"sub": {
			func(f *format, a, b, _ uint64, r ir.Round) uint64 { return f.sub(a, b, r) },
			func(a, b, _ *big.Float) *big.Float { return a.Sub(a, b) },
		},
		"mul": {
			func(f *format, a, b, _ uint64, r ir.Round) uint64 { return f.mul(a, b, r) },
			func(a, b, _ *big.Float) *big.Float { return a.Mul(a, b) },
		},
		"fma": {
			func(f *format, a, b, c uint64, r ir.Round) uint64 { return f.fma(a, b, c, r) },
			func(a, b, c *big.Float) *big.Float { return a.Add(a.Mul(a, b), c) },
		},
		"div": {
			func(f *format, a, b, _ uint64, r ir.Round) uint64 { return f.div(a, b, r) },
			func(a, b, _ *big.Float) *big.Float {
				if b.Sign() == 0 {
					return nil
				}
				return a.Quo(a, b)
			},
		},
		"sqrt": {
			func(f *format, a, _, _ uint64, r ir.Round) uint64 { return f.sqrt(a, r) },
			func(a, _, _ *big.Float) *big.Float {
				if a.Sign() <= 0 {
					return nil
				}
				return a.SetPrec(300).Sqrt(a)
			},
		},
	}
	r := seeded()
	for name, f := range formats {
		for op, o := range ops {
			for range 400 {
				a, b, c := f.random(r), f.random(r), f.random(r)
				if !f.isFinite(a) || !f.isFinite(b) || !f.isFinite(c) {
					continue
				}
				want := o.exact(f.value(a), f.value(b), f.value(c))
				if want == nil {
					continue
				}
				for _, mode := range modes {
					got := o.got(f, a, b, c, mode)
					if want.Sign() == 0 {
						if !f.isZero(got) {
							t.Errorf("%s.%s %#x, %#x, %#x, mode %d: got %#x, want zero", op, name, a, b, c, mode, got)
						}
						continue
					}
					if w := f.nearestTo(want, mode); got != w {
						t.Errorf("%s.%s %#x, %#x, %#x, mode %d: got %#x, want %#x", op, name, a, b, c, mode, got, w)
					}
				}
			}
		}
	}
}

// Conversions between all formats, compared with exact arithmetic.
func TestExactConversion(t *testing.T) {
	r := seeded()
	for from, f := range formats {
		for to, g := range formats {
			for range 200 {
				a := f.random(r)
				if !f.isFinite(a) || f.isZero(a) {
					continue
				}
				for _, mode := range modes {
					if got, want := f.convert(a, g, mode), g.nearestTo(f.value(a), mode); got != want {
						t.Errorf("%s to %s of %#x, mode %d: got %#x, want %#x", from, to, a, mode, got, want)
					}
				}
			}
		}
	}
}

// The host's arithmetic rounds to the nearest: what runs fast is the same as what
// is exact, and both are what the host does, with special values too.
func TestHostArithmetic(t *testing.T) {
	r := seeded()
	ops := map[ir.Op]arithmetic{ir.Add: addition, ir.Sub: subtraction, ir.Mul: multiplication, ir.Div: division}
	for op, o := range ops {
		for typ, f := range map[ir.Type]*format{ir.F32: binary32, ir.F64: binary64} {
			fast := scalarOf(&ir.Instr{Op: op, Type: typ, Mods: ir.Mods{Round: ir.RN}})
			for range 20000 {
				a, b := f.random(r), f.random(r)
				got, want := fast(a, b, 0, 0), o.soft(f, a, b, ir.RN)
				if got != want {
					t.Errorf("%s.%s %#x, %#x: fast %#x, exact %#x", op, typ, a, b, got, want)
				}
			}
		}
	}
}

func TestFusedMultiplyAdd(t *testing.T) {
	r := seeded()
	for typ, f := range map[ir.Type]*format{ir.F32: binary32, ir.F64: binary64} {
		fast := scalarOf(&ir.Instr{Op: ir.Fma, Type: typ})
		for range 50000 {
			a, b, c := f.random(r), f.random(r), f.random(r)
			if r.IntN(4) == 0 { // the sum cancels, or nearly so
				c = f.mul(a, b, ir.RN) ^ f.sign() ^ uint64(r.IntN(2))
			}
			got, want := fast(a, b, c, 0), f.fma(a, b, c, ir.RN)
			if got != want {
				t.Errorf("fma.%s %#x, %#x, %#x: fast %#x, exact %#x", typ, a, b, c, got, want)
			}
		}
	}
}

func TestSpecialValues(t *testing.T) {
	const inf, ninf, nan, one, none = 0x7f800000, 0xff800000, 0x7fffffff, 0x3f800000, 0xbf800000
	f := binary32
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"inf - inf", f.sub(inf, inf, ir.RN), nan},
		{"inf + inf", f.add(inf, inf, ir.RN), inf},
		{"1 + -inf", f.add(one, ninf, ir.RN), ninf},
		{"1 - 1", f.sub(one, one, ir.RN), 0},
		{"1 - 1, down", f.sub(one, one, ir.RM), 0x80000000},
		{"-0 + -0", f.add(0x80000000, 0x80000000, ir.RN), 0x80000000},
		{"0 * inf", f.mul(0, inf, ir.RN), nan},
		{"-1 * inf", f.mul(none, inf, ir.RN), ninf},
		{"-1 * 0", f.mul(none, 0, ir.RN), 0x80000000},
		{"0 * inf + 1", f.fma(0, inf, one, ir.RN), nan},
		{"1 * inf - inf", f.fma(one, inf, ninf, ir.RN), nan},
		{"1 * 1 + inf", f.fma(one, one, inf, ir.RN), inf},
		{"1 * 1 - 1, down", f.fma(one, one, none, ir.RM), 0x80000000},
		{"1 / 0", f.div(one, 0, ir.RN), inf},
		{"-1 / 0", f.div(none, 0, ir.RN), ninf},
		{"0 / 0", f.div(0, 0, ir.RN), nan},
		{"inf / inf", f.div(inf, ninf, ir.RN), nan},
		{"1 / inf", f.div(one, ninf, ir.RN), 0x80000000},
		{"sqrt -0", f.sqrt(0x80000000, ir.RN), 0x80000000},
		{"sqrt -1", f.sqrt(none, ir.RN), nan},
		{"sqrt inf", f.sqrt(inf, ir.RN), inf},
		{"a NaN", f.add(0x7fc12345, one, ir.RN), nan},
		{"a double NaN", binary64.add(bits64(1), 0xfff0000000000001, ir.RN), 0xfff8000000000001},
		{"0 / 0 in double", binary64.div(0, 0, ir.RN), 0xfff8000000000000},
		{"integral 2.5", f.integral(bits32(2.5), ir.RNI), bits32(2)},
		{"integral 3.5", f.integral(bits32(3.5), ir.RNI), bits32(4)},
		{"integral -0.3", f.integral(bits32(-0.3), ir.RNI), 0x80000000},
		{"integral -0.3 down", f.integral(bits32(-0.3), ir.RMI), bits32(-1)},
		{"integral 0.1 up", f.integral(bits32(0.1), ir.RPI), bits32(1)},
		{"integral 1e30", f.integral(bits32(1e30), ir.RZI), bits32(1e30)},
		{"integral inf", f.integral(inf, ir.RZI), inf},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

// Half precision has few numbers: all of them.
func TestHalfToSingle(t *testing.T) {
	for x := range uint64(1 << 16) {
		wide := binary16.convert(x, binary32, ir.RN)
		if binary16.isNaN(x) {
			if wide != 0x7fffffff {
				t.Fatalf("%#x became %#x", x, wide)
			}
			continue
		}
		e, m := int(x>>10&31), float64(x&0x3ff)
		want := math.Ldexp(1024+m, e-25)
		switch e {
		case 0:
			want = math.Ldexp(m, -24)
		case 31:
			want = math.Inf(1)
		}
		if x>>15 != 0 {
			want = -want
		}
		if got := f32(wide); float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%#x became %g, want %g", x, got, want)
		}
		if back := binary32.convert(wide, binary16, ir.RN); back != x {
			t.Fatalf("%#x became %#x", x, back)
		}
	}
}

func FuzzFusedMultiplyAdd(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x3f800001), uint32(0x33800000))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		x, y, z := uint64(a), uint64(b), uint64(c)
		if got, want := fma32(x, y, z, 0), binary32.fma(x, y, z, ir.RN); got != want {
			t.Errorf("got %#x, want %#x", got, want)
		}
	})
}
