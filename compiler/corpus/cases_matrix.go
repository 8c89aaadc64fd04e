// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Matrices.
var matrixCases = []entry{
	{"matmul_plain", matmulPlain},
	{"matmul_wmma", matmulWMMA},
	{"matmul_mma", matmulMMA},
	{"matmul_int8", matmulInt8},
	{"matvec", matvec},
	{"gauss", gauss},
}

func matmulPlain(r *rand.Rand) *Case {
	const m, n, k = 13, 21, 17
	a, b := doubles(r, m*k, 3), doubles(r, k*n, 3)
	want := apply(m*n, func(i int) (s float64) {
		for j := range k {
			s = math.FMA(a[i/n*k+j], b[j*n+i%n], s)
		}
		return s
	})
	return &Case{Launches: []Launch{square(n, m, in(a), in(b), out(want), uint32(m), uint32(n), uint32(k))}}
}

// wholeHalves are small whole numbers as 16-bit floats: sums of their products are
// exact in any order.
func wholeHalves(r *rand.Rand, n int) (values []float64, bits []uint16) {
	for range n {
		v := float64(r.IntN(17) - 8)
		values, bits = append(values, v), append(bits, half.bits(v, round))
	}
	return values, bits
}

func matmulWMMA(r *rand.Rand) *Case {
	const n = 32
	a, abits := wholeHalves(r, n*n)
	b, bbits := wholeHalves(r, n*n)
	want := apply(n*n, func(i int) (s float32) {
		for k := range n {
			s += float32(a[i/n*n+k] * b[i%n*n+k])
		}
		return s
	})
	return &Case{Launches: []Launch{{
		Grid: [3]uint32{n / 16, n / 16}, Block: [3]uint32{32},
		Args: []any{in(abits), in(bbits), out(want), uint32(n)},
	}}}
}

func matmulMMA(r *rand.Rand) *Case {
	a, abits := wholeHalves(r, 16*16)
	b, bbits := wholeHalves(r, 16*8)
	want := apply(16*8, func(i int) float32 {
		s := 1.0
		for k := range 16 {
			s += a[i/8*16+k] * b[k*8+i%8]
		}
		return float32(s)
	})
	return &Case{Launches: []Launch{launch(1, 32, in(abits), in(bbits), out(want))}}
}

func matmulInt8(r *rand.Rand) *Case {
	a, b := bytesOf(r, 16*32), bytesOf(r, 32*8)
	want := apply(16*8, func(i int) int32 {
		s := int32(-5)
		for k := range 32 {
			s += int32(int8(a[i/8*32+k])) * int32(int8(b[i%8*32+k]))
		}
		return s
	})
	return &Case{Launches: []Launch{launch(1, 32, in(a), in(b), out(want))}}
}

// butterfly adds up the lanes of a warp as shuffles with xor do.
func butterfly(lanes [32]float32) float32 {
	for d := 16; d > 0; d /= 2 {
		old := lanes
		for i := range lanes {
			lanes[i] = old[i] + old[i^d]
		}
	}
	return lanes[0]
}

func matvec(r *rand.Rand) *Case {
	const rows, cols = 10, 75
	m, v := floats(r, rows*cols, 2), floats(r, cols, 2)
	want := apply(rows, func(row int) float32 {
		var sums [32]float32
		for i := range cols {
			sums[i%32] = fma32(m[row*cols+i], v[i], sums[i%32])
		}
		return butterfly(sums)
	})
	return &Case{Launches: []Launch{launch(3, 128, in(m), in(v), out(want), uint32(rows), uint32(cols))}}
}

func gauss(r *rand.Rand) *Case {
	const n, blocks = 24, 2
	data := doubles(r, blocks*n*(n+1), 10)
	var want []float64
	for system := range slices.Chunk(slices.Clone(data), n*(n+1)) {
		m := slices.Collect(slices.Chunk(system, n+1))
		for c := range n {
			best := c
			for i := c + 1; i < n; i++ {
				if math.Abs(m[i][c]) > math.Abs(m[best][c]) {
					best = i
				}
			}
			m[c], m[best] = m[best], m[c]
			for i := range n {
				if i == c {
					continue
				}
				factor := m[i][c] / m[c][c]
				for j := c; j <= n; j++ {
					m[i][j] = math.FMA(-factor, m[c][j], m[i][j])
				}
			}
		}
		for i := range n {
			want = append(want, m[i][n]/m[i][i])
		}
	}
	return &Case{Launches: []Launch{launch(blocks, 32, in(data), out(want))}}
}
