// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math"
	"math/rand/v2"
)

// fma32 is a*b + c, rounded once.
func fma32(a, b, c float32) float32 {
	// The product is exact in 64 bits. A sum that isn't is made odd, so that the
	// second rounding sees on which side of a tie it lies.
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	bb := s - p
	if e := (p - (s - bb)) + (z - bb); e != 0 && !math.IsInf(s, 0) && !math.IsNaN(s) {
		if bits := math.Float64bits(s); bits&1 == 0 {
			if (e > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}

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
