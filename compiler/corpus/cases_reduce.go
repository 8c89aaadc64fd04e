// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math/rand/v2"
	"slices"
)

// Many numbers into one, prefix sums, and what is made of those.
var reduceCases = []entry{
	{"reduce_atomic", reduceAtomic},
	{"argmax", argmax},
	{"scan_hillis", scanHillis},
	{"scan_warp", scanWarp},
	{"scan_multi", scanMulti},
	{"compact", compact},
	{"bitonic_global", bitonicGlobal},
	{"radix", radix},
	{"oddeven", oddEven},
	{"ranksort", rankSort},
	{"histogram_global", histogramGlobal},
	{"histogram_match", histogramMatch},
}

func reduceAtomic(r *rand.Rand) *Case {
	const n = 700
	data := words(r, 4*n)
	s, lo, hi := uint64(3), int32(0), int32(0)
	for _, v := range data {
		s += uint64(v)
		lo, hi = min(lo, int32(v)), max(hi, int32(v))
	}
	return &Case{Launches: []Launch{launch(3, 64, in(data), inout([]uint64{3}, []uint64{s}),
		inout([]int32{0}, []int32{lo}), inout([]int32{0}, []int32{hi}), uint32(n))}}
}

func argmax(r *rand.Rand) *Case {
	const blocks, n = 3, 500
	data := some(blocks*n, func() float32 { return float32(r.IntN(300)) - 150 })
	var want []uint32
	for part := range slices.Chunk(data, n) {
		want = append(want, uint32(slices.Index(part, slices.Max(part))))
	}
	return &Case{Launches: []Launch{launch(blocks, 128, in(data), out(want), uint32(n))}}
}

// inclusive is the prefix sum of each part.
func inclusive(data []uint32, part int) []uint32 {
	want := slices.Clone(data)
	for i := range want {
		if i%part != 0 {
			want[i] += want[i-1]
		}
	}
	return want
}

func scanHillis(r *rand.Rand) *Case {
	data := words(r, 3*128)
	return &Case{Launches: []Launch{launch(3, 128, in(data), out(inclusive(data, 128)))}}
}

func scanWarp(r *rand.Rand) *Case {
	data := words(r, 2*256)
	return &Case{Launches: []Launch{launch(2, 256, in(data), out(inclusive(data, 256)))}}
}

func scanMulti(r *rand.Rand) *Case {
	const n, blocks = 300, 5
	data := words(r, n)
	total, sums := inclusive(data, n), make([]uint32, blocks)
	for i := range sums[1:] {
		sums[i+1] = total[(i+1)*64-1]
	}
	input, result, s := in(data), out(total), out(sums)
	blocksLaunch := launch(blocks, 64, input, result, s, uint32(n))
	blocksLaunch.Kernel = "scan_blocks"
	sumsLaunch := launch(1, 32, s, uint32(blocks))
	sumsLaunch.Kernel = "scan_sums"
	addLaunch := launch(blocks, 64, result, s, uint32(n))
	addLaunch.Kernel = "scan_add"
	return &Case{Launches: []Launch{blocksLaunch, sumsLaunch, addLaunch}}
}

func compact(r *rand.Rand) *Case {
	const blocks, threads = 3, 128
	data := words(r, blocks*threads)
	want, counts := make([]uint32, len(data)), make([]uint32, blocks)
	for i, v := range data {
		if b := i / threads; v%2 == 1 {
			want[b*threads+int(counts[b])] = v
			counts[b]++
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), inout(make([]uint32, len(data)), want), out(counts))}}
}

func sorted[T uint32 | int32](data []T) []T { return slices.Sorted(slices.Values(data)) }

func bitonicGlobal(r *rand.Rand) *Case {
	const n = 256
	data := words(r, n)
	b := inout(data, sorted(data))
	c := &Case{}
	for k := uint32(2); k <= n; k *= 2 {
		for j := k / 2; j > 0; j /= 2 {
			l := launch(n/64, 64, b, j, k)
			l.Kernel = "bitonic_step"
			c.Launches = append(c.Launches, l)
		}
	}
	return c
}

func radix(r *rand.Rand) *Case {
	const blocks, threads, bits = 5, 64, 12
	data := below(r, blocks*threads, 1<<bits)
	// Three passes: the data is in the second buffer in the end, and the first has
	// it sorted by the lower 8 bits.
	lower := slices.Clone(data)
	slices.SortStableFunc(lower, func(a, b uint32) int { return int(a&0xff) - int(b&0xff) })
	x, y := inout(data, lower), out(sorted(data))
	counts := make([]uint32, 16*blocks)
	place := uint32(0)
	for digit := range uint32(16) {
		for block := range blocks {
			counts[int(digit)*blocks+block] = place
			for _, v := range lower[block*threads : (block+1)*threads] {
				place += flag[uint32](v>>8 == digit)
			}
		}
	}
	places := out(counts)
	c := &Case{}
	from, to := x, y
	for shift := uint32(0); shift < bits; shift += 4 {
		c.Launches = append(c.Launches, []Launch{
			{Kernel: "radix_count", Grid: [3]uint32{blocks}, Block: [3]uint32{threads}, Args: []any{from, places, shift}},
			{Kernel: "radix_scan", Grid: [3]uint32{1}, Block: [3]uint32{128}, Args: []any{places, uint32(len(counts))}},
			{Kernel: "radix_move", Grid: [3]uint32{blocks}, Block: [3]uint32{threads}, Args: []any{from, to, places, shift}},
		}...)
		from, to = to, from
	}
	return c
}

func oddEven(r *rand.Rand) *Case {
	const n = 60
	data := some(n, func() int32 { return int32(r.Uint32()) % 1000 })
	v, rounds := slices.Clone(data), uint32(0)
	for swapped := true; swapped; rounds++ {
		swapped = false
		for odd := range 2 {
			for i := odd; i+1 < n; i += 2 {
				if v[i] > v[i+1] {
					v[i], v[i+1] = v[i+1], v[i]
					swapped = true
				}
			}
		}
	}
	l := launch(1, 32, inout(data, v), uint32(n), out([]uint32{rounds}))
	l.Shared = n * 4
	return &Case{Launches: []Launch{l}}
}

func rankSort(r *rand.Rand) *Case {
	const n = 150
	data := below(r, n, 100)
	return &Case{Launches: []Launch{launch(3, 64, in(data), out(sorted(data)), uint32(n))}}
}

func histogramGlobal(r *rand.Rand) *Case {
	const n = 2000
	data := bytesOf(r, n)
	want := make([]uint32, 64)
	for _, v := range data {
		want[v/4]++
	}
	return &Case{Launches: []Launch{launch(3, 64, in(data), inout(make([]uint32, 64), want), uint32(n))}}
}

func histogramMatch(r *rand.Rand) *Case {
	data := some(4*64, func() uint8 { return uint8(r.IntN(6)) })
	return &Case{Launches: []Launch{launch(4, 64, in(data), inout(make([]uint32, 6), count(data, 6)))}}
}
