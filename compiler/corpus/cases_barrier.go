// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// The threads of a block together, and blocks together.
var barrierCases = []entry{
	{"named_barriers", namedBarriers},
	{"partial_barrier", partialBarrier},
	{"barrier_votes", barrierVotes},
	{"early_exit", earlyExit},
	{"dynamic_shared", dynamicShared},
	{"cp_async", cpAsync},
	{"mbarrier", mbarrier},
	{"long_loop", longLoop},
	{"nested_barriers", nestedBarriers},
	{"subsequence", subsequence},
	{"last_block", lastBlock},
	{"spin_lock", spinLock},
	{"pipeline", pipeline},
	{"asserts", asserts},
	{"uneven", uneven},
}

func namedBarriers(r *rand.Rand) *Case {
	const rounds = 6
	data := words(r, rounds*64)
	want := make([]uint32, 64)
	for box := range slices.Chunk(data, 64) {
		for t := range want {
			want[t] = want[t]*7 + box[63-t]*3
		}
	}
	return &Case{Launches: []Launch{launch(1, 128, in(data), out(want), uint32(rounds))}}
}

func partialBarrier(r *rand.Rand) *Case {
	data := words(r, 96)
	v := slices.Clone(data)
	for t := range 64 {
		v[t] = data[63-t] + 1
	}
	want := apply(96, func(t int) uint32 { return v[(t+40)%96] })
	return &Case{Launches: []Launch{launch(1, 96, in(data), out(want))}}
}

func barrierVotes(r *rand.Rand) *Case {
	const blocks, threads = 6, 96
	data := words(r, blocks*threads)
	// One block where all agree, and one where nobody does.
	for t := range threads {
		data[t] = data[t]&^63 | 9
		data[threads+t] = data[threads+t]&^63 | 7
	}
	var want []uint32
	for block := range slices.Chunk(data, threads) {
		o := [3]uint32{0, 1, 0}
		for _, v := range block {
			o[0] += flag[uint32](v%3 == 0)
			o[1] &= flag[uint32](v%64 != 5)
			o[2] |= flag[uint32](v%64 == 9)
		}
		for range block {
			want = append(want, o[:]...)
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want))}}
}

func earlyExit(r *rand.Rand) *Case {
	const n, threads = 150, 64
	data := words(r, n)
	v := append(slices.Clone(data), make([]uint32, 192-n)...)
	next := slices.Clone(v)
	for i := range n {
		next[i] += v[i/threads*threads+(i+1)%threads]
	}
	want := apply(n, func(i int) uint32 { return next[i/threads*threads+63-i%threads] })
	return &Case{Launches: []Launch{launch(3, threads, in(data), out(want), uint32(n))}}
}

func dynamicShared(r *rand.Rand) *Case {
	const blocks, nl, nw = 2, 75, 33
	const size = nl*8 + nw*4
	data := longs(r, blocks*nl)
	want := apply(len(data), func(i int) uint64 {
		b, j := i/nl, i%nl
		return data[b*nl+nl-1-j] + uint64(uint32(j%nw)*0x01010101) + uint64(uint16(j%64*257)) + size
	})
	l := launch(blocks, 64, in(data), out(want), uint32(nl), uint32(nw))
	l.Shared = size
	return &Case{Launches: []Launch{l}}
}

func cpAsync(r *rand.Rand) *Case {
	const blocks, tiles = 2, 5
	data := words(r, blocks*tiles*128)
	want := apply(blocks*32, func(i int) (sum uint32) {
		b, t := i/32, i%32
		for tile := range tiles {
			for j := range 4 {
				sum = sum*3 + data[(b*tiles+tile)*128+(t*4+j*33)%128]
			}
		}
		return sum
	})
	return &Case{Launches: []Launch{launch(blocks, 32, in(data), out(want), uint32(tiles))}}
}

func mbarrier(r *rand.Rand) *Case {
	const blocks, threads, rounds = 2, 64, 5
	data := words(r, blocks*threads)
	want := slices.Clone(data)
	for x := range slices.Chunk(want, threads) {
		for round := range rounds {
			v := slices.Clone(x)
			for t := range x {
				x[t] = x[t]*5 + v[(t+2*round+1)%threads]
			}
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want), uint32(rounds))}}
}

func longLoop(r *rand.Rand) *Case {
	const blocks, threads, most = 3, 64, 40
	data := words(r, blocks*threads)
	var want []uint32
	for x := range slices.Chunk(slices.Clone(data), threads) {
		rounds := uint32(0)
		for {
			v := slices.Clone(x)
			for t := range x {
				x[t] = bits.RotateLeft32(x[t], 3) + v[(t+7)%threads]*0x9e3779b9
			}
			if rounds++; rounds == most || x[0]&0xfff == 0 {
				break
			}
		}
		for _, v := range x {
			want = append(want, v, rounds)
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want), uint32(most), uint32(0))}}
}

func nestedBarriers(r *rand.Rand) *Case {
	const blocks, n, outer, inner = 4, 96, 4, 3
	data := words(r, blocks*n)
	var want []uint64
	for b := range blocks {
		v := slices.Clone(data[b*n : (b+1)*n])
		sum, weight, small, odd := make([]uint64, n), make([]float64, n), make([]uint16, n), make([]bool, n)
		for t := range n {
			sum[t], weight[t], small[t], odd[t] = uint64(b), 1, uint16(t), v[t]&1 == 1
		}
		if b%2 == 0 {
			for i := range outer {
				for j := range inner {
					old := slices.Clone(v)
					for t := range n {
						x := old[(t+j+1)%n]
						v[t] = x ^ uint32(i)
						if odd[t] {
							v[t] = x + 3
						}
						small[t] = small[t]*7 + uint16(x)
						odd[t] = odd[t] != (x%3 == 0)
					}
				}
				for t := range n {
					weight[t] = float64(weight[t]*1.5) + float64(v[(t+i)%n]%10)
					sum[t] += uint64(v[n-1-t])
				}
			}
		} else {
			for t := range n {
				sum[t] += uint64(v[n-1-t])
			}
			for t := range n {
				weight[t] += float64(uint32(sum[(t+5)%n]))
			}
		}
		for t := range n {
			want = append(want, sum[t]*1000003+uint64(small[t])+flag[uint64](odd[t])+uint64(weight[t]))
		}
	}
	return &Case{Launches: []Launch{launch(blocks, n, in(data), out(want), uint32(outer), uint32(inner))}}
}

func subsequence(r *rand.Rand) *Case {
	const pairs, n = 3, 64
	a, b := some(pairs*n, func() uint8 { return uint8(r.IntN(5)) }), some(pairs*n, func() uint8 { return uint8(r.IntN(5)) })
	want := apply(pairs, func(p int) uint32 {
		var table [n + 1][n + 1]uint32
		for i := range n {
			for j := range n {
				if a[p*n+i] == b[p*n+j] {
					table[i+1][j+1] = table[i][j] + 1
				} else {
					table[i+1][j+1] = max(table[i][j+1], table[i+1][j])
				}
			}
		}
		return table[n][n]
	})
	return &Case{Launches: []Launch{launch(pairs, 96, in(a), in(b), out(want), uint32(n))}}
}

func lastBlock(r *rand.Rand) *Case {
	const n, blocks, threads = 700, 4, 64
	data := words(r, n)
	parts := make([]uint32, blocks)
	for i, v := range data {
		parts[i/threads%blocks] += v
	}
	return &Case{
		Buffers:  []*Buffer{inout([]uint32{0}, []uint32{blocks}).variable("arrived")},
		Launches: []Launch{launch(blocks, threads, in(data), out(parts), out([]uint32{sum(data)}), uint32(n))},
	}
}

func spinLock(r *rand.Rand) *Case {
	const blocks = 4
	start := r.Uint32()
	v, seen := start, make([]uint32, blocks)
	for i := range blocks {
		v = v*3 + 1
		seen[i] = 1
	}
	return &Case{
		Buffers:  []*Buffer{in([]uint32{0}).variable("lock")},
		Launches: []Launch{launch(blocks, 32, inout([]uint32{start}, []uint32{v}), inout(make([]uint32, blocks), seen))},
	}
}

func pipeline(r *rand.Rand) *Case {
	const blocks, rounds = 4, 5
	data := words(r, blocks*64)
	var want []uint32
	for b := range blocks {
		x := data[b*64:][:64]
		for round := range rounds {
			before := slices.Repeat([]uint32{uint32(round)}, 64)
			if b > 0 {
				before = want[((b-1)*rounds+round)*64:][:64]
			}
			x = apply(64, func(t int) uint32 { return bits.RotateLeft32(x[t], 3) + before[(t+7)%64]*0x9e3779b9 })
			want = append(want, x...)
		}
	}
	made := inout(make([]uint32, blocks), slices.Repeat([]uint32{rounds}, blocks))
	return &Case{Launches: []Launch{launch(blocks, 64, in(data), out(want), made, uint32(rounds))}}
}

func asserts(r *rand.Rand) *Case {
	const blocks, n, steps = 3, 96, 5
	var next, want []uint32
	for range blocks {
		to := make([]uint32, n)
		for order, i := r.Perm(n), 0; i < n; i++ { // one round through all: none leads to itself
			to[order[i]] = uint32(order[(i+1)%n])
		}
		at := apply(n, func(t int) uint32 { return uint32(t) })
		for range steps {
			at = apply(n, func(t int) uint32 { return to[at[to[t]]] })
		}
		next, want = append(next, to...), append(want, at...)
	}
	return &Case{Launches: []Launch{launch(blocks, n, in(next), out(want), uint32(n), uint32(steps))}}
}

func uneven(r *rand.Rand) *Case {
	const blocks, threads, rounds = 2, 64, 3
	data := words(r, blocks*threads)
	var sums, mixed []uint32
	for box := range slices.Chunk(data, threads) {
		part := slices.Clone(box)
		for t, x := range box {
			for range x % 300 {
				part[t] = (part[t] ^ part[t]>>15) * 0x2c1b3c6d
			}
		}
		for t := range box {
			sum := uint32(0)
			for i := range t + 1 {
				sum += part[i] ^ uint32(i)
			}
			sums = append(sums, sum)
		}
		mixed = append(mixed, unevenRounds(box, rounds)...)
	}
	first, second := launch(blocks, threads, in(data), out(sums)), launch(blocks, threads, in(data), out(mixed), uint32(rounds))
	second.Kernel = "uneven_rounds"
	return &Case{Launches: []Launch{first, second}}
}

func unevenRounds(box []uint32, rounds int) []uint32 {
	v := slices.Clone(box)
	for round := range rounds {
		for t := range v {
			x := v[t]
			for i := x % 5; i > 0; i-- {
				for j := uint32(t)%7 + i; j > 0; j-- {
					x = (x^x>>13)*0x297a2d39 + j
				}
				x += i
			}
			v[t] = x
		}
		part := slices.Clone(v)
		for t := range v {
			other := part[(t+round)%len(v)]
			for i := other % 11; i > 0; i-- {
				other = other/2 + v[t]
			}
			v[t] += other
		}
	}
	return v
}
