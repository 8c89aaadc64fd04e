// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math"
	"math/rand/v2"
)

// odd returns the exact value that was rounded to s, with the sign of what was
// lost, rounded to odd: a second rounding, to half the digits, goes right then.
func odd(s, lost float64) float64 {
	if lost == 0 || math.IsNaN(lost) || math.IsInf(s, 0) || math.Float64bits(s)&1 == 1 {
		return s
	}
	return math.Nextafter(s, math.Copysign(math.Inf(1), lost))
}

// oddSum, oddQuotient and oddRoot return results rounded to odd.
func oddSum(a, b float64) float64 {
	s := a + b
	bb := s - a
	return odd(s, (a-(s-bb))+(b-bb))
}

func oddQuotient(a, b float64) float64 {
	q := a / b
	return odd(q, math.FMA(-q, b, a)*math.Copysign(1, b))
}

func oddRoot(a float64) float64 {
	q := math.Sqrt(a)
	return odd(q, math.FMA(-q, q, a))
}

// format is a floating point format.
type format struct {
	digits     int // of the significand
	least, top int // exponents of normal numbers
}

var (
	half   = format{11, -14, 15}
	bfloat = format{8, -126, 127}
	single = format{24, -126, 127}
)

// round rounds a value, exact or rounded to odd, with a function that rounds to an
// integer: math.RoundToEven, Trunc, Floor or Ceil.
func (f format) round(x float64, mode func(float64) float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	quantum := max(math.Ilogb(x), f.least) - f.digits + 1
	y := math.Copysign(math.Ldexp(mode(math.Ldexp(x, -quantum)), quantum), x)
	if largest := math.Ldexp(2, f.top) - math.Ldexp(1, f.top-f.digits+1); math.Abs(y) > largest {
		// A value that is rounded towards zero stays finite.
		if mode(math.Copysign(0.5, x)) == 0 && mode(math.Copysign(1.5, x)) == math.Copysign(1, x) {
			return math.Copysign(largest, x)
		}
		return math.Inf(int(math.Copysign(1, x)))
	}
	return y
}

// value and bits are for the formats of 16 bits.
func (f format) value(bits uint16) float64 {
	fraction := f.digits - 1
	e, m := int(bits&0x7fff)>>fraction, float64(bits&(1<<fraction-1))
	sign := 1 - 2*float64(bits>>15)
	switch e {
	case 0:
		return math.Copysign(math.Ldexp(m, f.least-fraction), sign)
	case f.top + f.top + 1:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(m+float64(int(1)<<fraction), e-f.top-fraction)
}

func (f format) bits(x float64, mode func(float64) float64) uint16 {
	fraction, sign := f.digits-1, uint16(0)
	if math.Signbit(x) {
		sign = 0x8000
	}
	x = math.Abs(f.round(x, mode))
	switch {
	case math.IsNaN(x):
		return 0x7fff
	case math.IsInf(x, 0):
		return sign | uint16((2*f.top+1)<<fraction)
	case x < math.Ldexp(1, f.least):
		return sign | uint16(math.Ldexp(x, fraction-f.least))
	}
	e := math.Ilogb(x)
	return sign | uint16((e+f.top)<<fraction) | uint16(math.Ldexp(x, fraction-e))&(1<<fraction-1)
}

// round rounds to the nearest integer, as IEEE 754 does by default.
func round(x float64) float64 { return math.RoundToEven(x) }

// fma32 is a*b + c, rounded once: the product is exact in 64 bits.
func fma32(a, b, c float32) float32 { return float32(oddSum(float64(a)*float64(b), float64(c))) }

func sqrt32(a float32) float32 { return float32(math.Sqrt(float64(a))) }

// some returns n random values of f.
func some[T any](n int, f func() T) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = f()
	}
	return v
}

func bytesOf(r *rand.Rand, n int) []uint8 { return some(n, func() uint8 { return uint8(r.Uint32()) }) }
func words(r *rand.Rand, n int) []uint32  { return some(n, r.Uint32) }
func longs(r *rand.Rand, n int) []uint64  { return some(n, r.Uint64) }
func below(r *rand.Rand, n int, limit uint32) []uint32 {
	return some(n, func() uint32 { return r.Uint32N(limit) })
}

// floats lie between -scale and scale.
func floats(r *rand.Rand, n int, scale float32) []float32 {
	return some(n, func() float32 { return (2*r.Float32() - 1) * scale })
}

func doubles(r *rand.Rand, n int, scale float64) []float64 {
	return some(n, func() float64 { return (2*r.Float64() - 1) * scale })
}

// apply returns f of each index.
func apply[T any](n int, f func(int) T) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = f(i)
	}
	return v
}
