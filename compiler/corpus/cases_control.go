// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Loops, branches, functions, and memory of each thread.
var controlCases = []entry{
	{"print", printCase},
	{"local_array", localArray},
	{"local_barrier", localBarrier},
	{"recursion", recursion},
	{"functions", functions},
	{"indirect", indirect},
	{"bytecode", bytecode},
	{"jump_table", jumpTable},
	{"generic_pointers", genericPointers},
	{"globals", globals},
	{"grid3d", grid3d},
	{"free_loop", freeLoop},
	{"queens", queens},
	{"montecarlo", monteCarlo},
	{"clocks", clocks},
}

func printCase(r *rand.Rand) *Case {
	const n = 40
	data := some(n, func() int32 { return int32(r.IntN(4000) - 1500) })
	var lines []string
	for i, v := range data {
		if v < 0 {
			lines = append(lines, fmt.Sprintf("%d: %d is negative, %%, %c", i, v, 'a'+i%26))
			continue
		}
		word := [2]string{"even", "odd"}[v&1]
		lines = append(lines, fmt.Sprintf("%d: %05d %x %s %d %.3f", i, v, v, word, int64(v)<<32, float64(v)*0.125))
	}
	slices.Sort(lines)
	return &Case{Launches: []Launch{launch(2, 32, in(data), uint32(n))}, Output: lines}
}

func localArray(r *rand.Rand) *Case {
	const n = 120
	data := words(r, n)
	var want []uint32
	for i := range n {
		v := sorted(apply(24, func(j int) uint32 { return data[(i+j*7)%n] }))
		want = append(want, v[12], v[data[i]%24])
	}
	return &Case{Launches: []Launch{launch(2, 64, in(data), out(want), uint32(n))}}
}

func localBarrier(r *rand.Rand) *Case {
	const blocks, threads, rounds = 2, 64, 9
	data := words(r, blocks*threads)
	var want []uint32
	for v := range slices.Chunk(slices.Clone(data), threads) {
		history := make([][16]uint32, threads)
		for round := range rounds {
			box := slices.Clone(v)
			for t := range v {
				v[t] = v[t]*5 + box[(t+round+1)%threads]
				history[t][v[t]%16] += uint32(round + 1)
			}
		}
		for t, sum := range v {
			for _, h := range history[t] {
				sum = sum*31 + h
			}
			want = append(want, sum)
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want), uint32(rounds))}}
}

func ackermann(m, n uint32) uint32 {
	switch {
	case m == 0:
		return n + 1
	case n == 0:
		return ackermann(m-1, 1)
	}
	return ackermann(m-1, ackermann(m, n-1))
}

func recursion(r *rand.Rand) *Case {
	const n = 60
	data := words(r, n+12)
	var want []uint32
	for i, v := range data[:n] {
		want = append(want, ackermann(v%3, v/4%4), treeFrom(data, uint32(i), uint32(i)+v%12, 1))
	}
	return &Case{Launches: []Launch{launch(1, 64, in(data), out(want), uint32(n))}}
}

func treeFrom(keys []uint32, from, to, depth uint32) uint32 {
	if from >= to {
		return depth
	}
	middle := (from + to) / 2
	return keys[middle]*3 + treeFrom(keys, from, middle, depth+1)*5 + treeFrom(keys, middle+1, to, depth+1)*7
}

func functions(r *rand.Rand) *Case {
	const n = 60
	data := words(r, n)
	type pair struct {
		A    uint64
		B    uint32
		C    uint8
		Fill [3]uint8
	}
	start := pair{A: r.Uint64(), B: r.Uint32(), C: 9}
	var want []uint64
	var mixed []float32
	for i, v := range data {
		p := start
		for j := range v%5 + 1 {
			k := v + j
			p = pair{A: p.A*uint64(k) + uint64(p.B), B: uint32(p.A>>32) ^ uint32(p.C), C: uint8(p.B + k)}
		}
		want = append(want, (p.A^uint64(p.B))+(uint64(v+uint32(i))<<32|uint64(v*uint32(i)))+uint64(p.C))
		mixed = append(mixed, fma32(0.125, 2.5-float32(i), float32(i)))
	}
	return &Case{Launches: []Launch{launch(2, 32, encode(start), in(data), out(want), out(mixed), uint32(n))}}
}

func indirect(r *rand.Rand) *Case {
	const n = 100
	data := words(r, n)
	want := apply(n, func(i int) uint32 {
		v, x := uint32(i), data[i]
		for j := range 6 {
			switch x >> (2 * j) & 3 {
			case 0:
				v += x
			case 1:
				v *= x
			case 2:
				v -= x
			case 3:
				v = bits.RotateLeft32(v, 7) ^ x
			}
		}
		return v
	})
	return &Case{Launches: []Launch{launch(2, 64, in(data), out(want), uint32(n))}}
}

func bytecode(r *rand.Rand) *Case {
	const n, length = 80, 61
	code, data := bytesOf(r, length), words(r, n)
	want := apply(n, func(i int) uint32 {
		var stack [8]uint32
		var sp, steps uint32
		a := data[i]
		for pc := a % length; steps < 200; steps++ {
			op := uint32(code[pc])
			pc = (pc + 1) % length
			switch op % 10 {
			case 0:
				sp = (sp + 1) % 8
				stack[sp] = a
			case 1:
				a += stack[sp]
			case 2:
				a ^= stack[sp] << 3
			case 3:
				sp = (sp + 7) % 8
			case 4:
				stack[sp] = a * 2654435761
			case 5:
				if a&1 == 1 {
					pc = (pc + op) % length
				}
			case 6:
				a = bits.RotateLeft32(a, 5)
			case 7:
				stack[sp] -= a
			case 8:
				if a%16 == 3 {
					steps += 50
				}
			case 9:
				a = a*3 + sp
			}
		}
		return a + stack[sp] + steps
	})
	return &Case{Launches: []Launch{launch(2, 64, in(code), in(data), out(want), uint32(length), uint32(n))}}
}

func jumpTable(r *rand.Rand) *Case {
	const n = 100
	data := words(r, n)
	want := apply(n, func(i int) uint32 {
		v := data[i]
		return [4]uint32{v + 5, v * 7, v ^ 0x55, ^v}[v%4]
	})
	return &Case{Launches: []Launch{launch(2, 64, in(data), out(want), uint32(n))}}
}

func genericPointers(r *rand.Rand) *Case {
	const blocks, threads = 2, 64
	data, global := words(r, blocks*threads), words(r, blocks*threads)
	shared, after, want := slices.Clone(data), slices.Clone(global), make([]uint32, len(data))
	local, x := make([][2]uint32, len(data)), make([]uint32, len(data))
	for i, v := range data {
		t := uint32(i % threads)
		local[i] = [2]uint32{t * 3, t * 5}
		switch v % 3 {
		case 0:
			x[i] = data[i^1]
			shared[i^1] = x[i] + 1
		case 1:
			x[i] = global[i]
			after[i]++
		case 2:
			x[i] = local[i][v/3&1]
			local[i][v/3&1]++
		}
	}
	for i := range want {
		want[i] = shared[i] + local[i][0]*1000 + local[i][1] + x[i]
	}
	return &Case{Launches: []Launch{launch(blocks, threads, in(data), out(want), inout(global, after))}}
}

func globals(*rand.Rand) *Case {
	const n = 50
	small, large := []uint32{5, 6, 7}, []uint32{1, 2, 4, 8, 16, 32, 64, 128}
	steps := []int32{-1, 2, -3, 4}
	total := uint64(1000)
	want := apply(n, func(i int) uint32 {
		data := [][]uint32{small, large, large[2:6]}[i%3]
		v := data[i%len(data)] + uint32(steps[i&3])
		total += uint64(v)
		return v
	})
	// The module's own value is the first.
	sum := &Buffer{Want: encode(total), Elem: U64}
	return &Case{
		Buffers:  []*Buffer{sum.variable("total"), in(large).variable("large")},
		Launches: []Launch{launch(2, 32, out(want), uint32(n))},
	}
}

func grid3d(*rand.Rand) *Case {
	grid, block := [3]uint32{2, 3, 2}, [3]uint32{5, 3, 4}
	var want []uint32
	pack := func(v [3]uint32) uint32 { return v[0] | v[1]<<8 | v[2]<<16 }
	place := func(i uint32, size [3]uint32) [3]uint32 {
		return [3]uint32{i % size[0], i / size[0] % size[1], i / size[0] / size[1]}
	}
	for b := range grid[0] * grid[1] * grid[2] {
		for t := range block[0] * block[1] * block[2] {
			lane := t % 32
			want = append(want, pack(place(t, block)), pack(place(b, grid)), pack(block), pack(grid), lane, 1<<lane-1, ^uint32(0)<<lane, 32)
		}
	}
	return &Case{Launches: []Launch{{Grid: grid, Block: block, Args: []any{out(want)}}}}
}

func freeLoop(r *rand.Rand) *Case {
	const n, most = 128, 300
	state := longs(r, n)
	after := slices.Clone(state)
	var want []int32
	for i := range after {
		s := &after[i]
		x, rounds := int32(0), int32(0)
		for rounds < most && x != 20 && x != -20 {
			*s ^= *s << 13
			*s ^= *s >> 7
			*s ^= *s << 17
			x += 2*int32(*s&1) - 1
			rounds++
		}
		want = append(want, x, rounds)
	}
	return &Case{Launches: []Launch{launch(2, 64, inout(state, after), out(want), uint32(most))}}
}

func queens(*rand.Rand) *Case {
	const n = 7
	var place func(rows []int) uint32
	place = func(rows []int) (found uint32) {
		if len(rows) == n {
			return 1
		}
		for c := range n {
			if !slices.ContainsFunc(rows, func(o int) bool { return o == c }) && !attacked(rows, c) {
				found += place(append(slices.Clone(rows), c))
			}
		}
		return found
	}
	return &Case{Launches: []Launch{launch(2, 32, inout([]uint32{0}, []uint32{place(nil)}), uint32(n))}}
}

// attacked tells whether a queen of an earlier row is on a diagonal of column c.
func attacked(rows []int, c int) bool {
	for r, o := range rows {
		if d := len(rows) - r; o == c-d || o == c+d {
			return true
		}
	}
	return false
}

func monteCarlo(r *rand.Rand) *Case {
	const blocks, threads, darts = 2, 64, 40
	seed, hits := r.Uint32(), uint32(0)
	for i := range uint32(blocks * threads) {
		s := uint64(seed+i)*6364136223846793005 + 1442695040888963407
		for range darts {
			var p [2]float32
			for k := range p {
				s = s*6364136223846793005 + 1442695040888963407
				x := bits.RotateLeft32(uint32((s>>18^s)>>27), -int(s>>59))
				p[k] = float32(x>>8) * 0x1p-24
			}
			hits += flag[uint32](fma32(p[0], p[0], float32(p[1]*p[1])) < 1)
		}
	}
	return &Case{Launches: []Launch{launch(blocks, threads, seed, uint32(darts), inout([]uint32{0}, []uint32{hits}))}}
}

func clocks(r *rand.Rand) *Case {
	data := words(r, 64)
	want := apply(len(data), func(i int) uint32 { return data[i] + 2 })
	return &Case{Launches: []Launch{launch(2, 32, in(data), out(want))}}
}
