// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math/rand/v2"
	"slices"
)

// Atomic operations of every kind, on memory of every kind.
var atomicCases = []entry{
	{"atomics_shared", atomicsShared},
	{"atomics64", atomics64},
	{"atomics_float", atomicsFloat},
	{"atomic_half", atomicHalf},
	{"reductions_global", reductionsGlobal},
}

// down is what atom.dec does.
func down(v, top uint32) uint32 {
	if v == 0 || v > top {
		return top
	}
	return v - 1
}

func atomicsShared(r *rand.Rand) *Case {
	const n = 150
	data, w, l := words(r, n), words(r, 12), longs(r, 8)
	w[6], w[7] = 3, 4
	wantW, wantL := slices.Clone(w), slices.Clone(l)
	for _, v := range data {
		x := uint64(v)<<32 | uint64(^v)
		wantW[0] += v
		wantW[1] &= v | 0xf0f0f0f0
		wantW[2] |= v & 0x11111111
		wantW[3] ^= v
		wantW[4] = min(wantW[4], v)
		wantW[5] = uint32(max(int32(wantW[5]), int32(v)))
		wantW[6] = (wantW[6] + 1) % 51
		wantW[7] = down(wantW[7], 60)
		wantW[8] = 77
		wantW[9] = wantW[9]*5 + 3
		wantL[0] += x
		wantL[1] &= x | 0xff00ff00ff00ff00
		wantL[2] |= x & 0x0101010101010101
		wantL[3] ^= x
		wantL[4] = uint64(min(int64(wantL[4]), int64(x)))
		wantL[5] = max(wantL[5], x)
		wantL[6] = wantL[6]*7 + 1
		wantL[7] = 99
	}
	return &Case{Launches: []Launch{launch(1, 64, in(data), inout(w, wantW), inout(l, wantL), uint32(n))}}
}

func atomics64(r *rand.Rand) *Case {
	const n = 200
	data, cells := longs(r, n), longs(r, 12)
	cells[10], cells[11] = 0, 0
	want := slices.Clone(cells)
	for i, v := range data {
		want[0] += v
		want[1] &= v | 0x00ff00ff00ff00ff
		want[2] |= v & 0x0f0f0f0f0f0f0f0f
		want[3] ^= v
		want[4] = min(want[4], v)
		want[5] = max(want[5], v)
		want[6] = uint64(min(int64(want[6]), int64(v)))
		want[7] = uint64(max(int64(want[7]), int64(v)))
		want[8] = 123
		want[9] = want[9]*3 + 1
		want[10] += uint64(i)
		want[11]++
	}
	return &Case{Launches: []Launch{launch(4, 64, in(data), inout(cells, want), uint32(n))}}
}

func atomicsFloat(r *rand.Rand) *Case {
	const n, blocks = 200, 4
	data := some(n, func() float32 { return float32(r.IntN(2001)-1000) / 2 })
	f, d := make([]float32, 1+blocks), []float64{0}
	for i, v := range data {
		f[0] += v
		f[1+i/64] += v
		d[0] += float64(v) * 0.25
	}
	return &Case{Launches: []Launch{launch(blocks, 64, in(data), inout(make([]float32, 1+blocks), f), inout([]float64{0}, d), uint32(n))}}
}

func atomicHalf(r *rand.Rand) *Case {
	const blocks, threads = 2, 64
	cells := halves(r, half, 4)
	want := slices.Clone(cells)
	for i := range want {
		for range blocks * threads / 4 {
			want[i] = want[i]*3 + 1
		}
	}
	// 0.5 is added to 0.0, and 1.0 to 0.5.
	pair := []uint16{0, half.bits(0.5, round)}
	sums := []uint16{half.bits(blocks*threads/2, round), half.bits(blocks*threads+0.5, round)}
	return &Case{Launches: []Launch{launch(blocks, threads, inout(cells, want), inout(pair, sums).of(F16))}}
}

func reductionsGlobal(r *rand.Rand) *Case {
	const n = 200
	data, cells, l := words(r, n), words(r, 8), longs(r, 2)
	cells[3], cells[6], cells[7] = 0, 0, 0
	want, wantL := slices.Clone(cells), slices.Clone(l)
	for i, v := range data {
		want[0] += v
		want[1] = uint32(min(int32(want[1]), int32(v)))
		want[2] |= v & 0x7070
		want[3] = (want[3] + 1) % 10
		want[4] = max(want[4], v)
		want[5] ^= v
		want[6]++
		want[7] += uint32(i)
		wantL[0] += uint64(v) << 20
		wantL[1] = uint64(max(int64(wantL[1]), int64(int32(v))))
	}
	return &Case{Launches: []Launch{launch(4, 64, in(data), inout(cells, want), inout(l, wantL), uint32(n))}}
}
