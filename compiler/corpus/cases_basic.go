// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math/rand/v2"
	"slices"
)

// The first kernels anybody writes.
var basicCases = []entry{
	{"vecadd", vecadd},
	{"saxpy", saxpy},
	{"reduce_shared", reduceShared},
	{"reduce_shuffle", reduceShuffle},
	{"scan_blelloch", scanBlelloch},
	{"bitonic", bitonic},
	{"histogram_shared", histogramShared},
	{"matmul_tiled", matmulTiled},
	{"transpose", transpose},
	{"collatz", collatz},
	{"atomics32", atomics32},
}

func vecadd(r *rand.Rand) *Case {
	const n = 1000
	a, b := floats(r, n, 100), floats(r, n, 100)
	c := apply(n, func(i int) float32 { return a[i] + b[i] })
	return &Case{Launches: []Launch{launch(8, 128, in(a), in(b), out(c), uint32(n))}}
}

func saxpy(r *rand.Rand) *Case {
	const n = 1000
	a, x, y := r.Float32(), floats(r, n, 100), floats(r, n, 100)
	want := apply(n, func(i int) float32 { return fma32(a, x[i], y[i]) })
	return &Case{Launches: []Launch{launch(3, 64, a, in(x), inout(y, want), uint32(n))}}
}

func sum(values []uint32) (s uint32) {
	for _, v := range values {
		s += v
	}
	return s
}

func reduceShared(r *rand.Rand) *Case {
	const n, blocks, threads = 3000, 4, 128
	data := words(r, n)
	want := make([]uint32, blocks)
	for i, v := range data {
		want[i/threads%blocks] += v
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want), uint32(n))}}
}

func reduceShuffle(r *rand.Rand) *Case {
	const n = 3000
	data := words(r, n)
	return &Case{Launches: []Launch{launch(3, 256, in(data), inout([]uint32{7}, []uint32{7 + sum(data)}), uint32(n))}}
}

func scanBlelloch(r *rand.Rand) *Case {
	const blocks, threads = 3, 64
	data := words(r, blocks*threads*2)
	want := make([]uint32, len(data))
	for i := range data {
		if i%(2*threads) != 0 {
			want[i] = want[i-1] + data[i-1]
		}
	}
	l := launch(blocks, threads, in(data), out(want))
	l.Shared = threads * 2 * 4
	return &Case{Launches: []Launch{l}}
}

func bitonic(r *rand.Rand) *Case {
	const blocks, threads = 3, 128
	data := words(r, blocks*threads)
	want := slices.Clone(data)
	for part := range slices.Chunk(want, threads) {
		slices.Sort(part)
	}
	return &Case{Launches: []Launch{launch(blocks, threads, inout(data, want))}}
}

func count(data []uint8, bins int) []uint32 {
	want := make([]uint32, bins)
	for _, v := range data {
		want[v]++
	}
	return want
}

func histogramShared(r *rand.Rand) *Case {
	const n = 4000
	data := bytesOf(r, n)
	return &Case{Launches: []Launch{launch(4, 96, in(data), inout(make([]uint32, 256), count(data, 256)), uint32(n))}}
}

// product multiplies two matrices of n rows and columns in the order of the columns.
func product(a, b []float32, n int) []float32 {
	return apply(n*n, func(i int) float32 {
		row, col, s := i/n, i%n, float32(0)
		for k := range n {
			s = fma32(a[row*n+k], b[k*n+col], s)
		}
		return s
	})
}

func matmulTiled(r *rand.Rand) *Case {
	const n = 32
	a, b := floats(r, n*n, 1), floats(r, n*n, 1)
	l := launch(0, 0, in(a), in(b), out(product(a, b, n)), uint32(n))
	l.Grid, l.Block = [3]uint32{n / 8, n / 8}, [3]uint32{8, 8}
	return &Case{Launches: []Launch{l}}
}

func transpose(r *rand.Rand) *Case {
	const w, h = 50, 37
	data := words(r, w*h)
	want := apply(w*h, func(i int) uint32 { return data[i%h*w+i/h] })
	l := launch(0, 0, in(data), out(want), uint32(w), uint32(h))
	l.Grid, l.Block = [3]uint32{4, 3}, [3]uint32{16, 16}
	return &Case{Launches: []Launch{l}}
}

func collatz(r *rand.Rand) *Case {
	const n, limit = 500, 150
	data := apply(n, func(int) uint32 { return 1 + r.Uint32N(1<<20) })
	want := apply(n, func(i int) uint32 {
		v, k := uint64(data[i]), uint32(0)
		for ; v != 1; k++ {
			if k == limit {
				return 0xffffffff
			}
			if v%2 == 1 {
				v = 3*v + 1
			} else {
				v /= 2
			}
		}
		return k
	})
	return &Case{Launches: []Launch{launch(4, 128, in(data), out(want), uint32(n), uint32(limit))}}
}

func atomics32(r *rand.Rand) *Case {
	const n = 300
	data := words(r, n)
	init := words(r, 16)
	init[9], init[10] = 5, 8
	init[11], init[12] = 0, 0
	init[14], init[15] = 0, 0
	want := slices.Clone(init)
	for i, v := range data {
		want[0] += v
		want[1] -= v
		want[2] &= v | 0x00ff00ff
		want[3] |= v & 0x0f0f0f0f
		want[4] ^= v
		want[5] = min(want[5], v)
		want[6] = max(want[6], v)
		want[7] = uint32(min(int32(want[7]), int32(v)))
		want[8] = uint32(max(int32(want[8]), int32(v)))
		want[9] = (want[9] + 1) % 101
		if want[10] == 0 || want[10] > 70 {
			want[10] = 70
		} else {
			want[10]--
		}
		want[11] += want[12]
		want[12] = 5
		want[13] = want[13]*3 + 1
		want[14] += uint32(i)
		want[15]++
	}
	c := &Case{Launches: []Launch{launch(5, 64, in(data), inout(init, want), uint32(n))}}
	return c
}
