// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Graphs.
var graphCases = []entry{
	{"bfs", bfs},
	{"shortest", shortest},
	{"components", components},
	{"floyd", floyd},
}

const unreached = math.MaxUint32

func bfs(r *rand.Rand) *Case {
	const n, levels = 200, 9
	first, edges := []uint32{0}, []uint32(nil)
	for range n {
		for range 1 + r.IntN(3) {
			edges = append(edges, r.Uint32N(n))
		}
		first = append(first, uint32(len(edges)))
	}
	start := apply(n, func(int) uint32 { return unreached })
	start[0] = 0
	level, found, queue := slices.Clone(start), uint32(0), []uint32{0}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, to := range edges[first[v]:first[v+1]] {
			// The launches that there are find no more.
			if level[to] == unreached && level[v] < levels {
				level[to] = level[v] + 1
				found++
				queue = append(queue, to)
			}
		}
	}
	f, e, l, count := in(first), in(edges), inout(start, level), inout([]uint32{0}, []uint32{found})
	c := &Case{}
	for now := range uint32(levels) {
		c.Launches = append(c.Launches, launch(4, 64, f, e, l, count, now, uint32(n)))
	}
	return c
}

func shortest(r *rand.Rand) *Case {
	const n, edges = 60, 180
	from, to, cost := below(r, edges, n), below(r, edges, n), below(r, edges, 100)
	start := apply(n, func(int) uint32 { return unreached })
	start[0] = 0
	want := slices.Clone(start)
	for range n {
		for e := range edges {
			if d := want[from[e]]; d != unreached {
				want[to[e]] = min(want[to[e]], d+cost[e])
			}
		}
	}
	l := launch(1, 64, in(from), in(to), in(cost), inout(start, want), uint32(edges), uint32(n))
	l.Shared = n * 4
	return &Case{Launches: []Launch{l}}
}

func components(r *rand.Rand) *Case {
	// Vertex v is in group v%groups, of which the members are in a random order.
	const groups, members = 10, 8
	const n = groups * members
	var a, b []uint32
	for g := range uint32(groups) {
		order := r.Perm(members)
		for i := range members - 1 {
			a, b = append(a, uint32(order[i])*groups+g), append(b, uint32(order[i+1])*groups+g)
		}
	}
	start := apply(n, func(i int) uint32 { return uint32(i) })
	want := apply(n, func(i int) uint32 { return uint32(i % groups) })
	label, changed := inout(start, want), inout([]uint32{0}, []uint32{1})
	c := &Case{}
	// Each launch leaves a group fewer roots, if it has more than one.
	for range members {
		c.Launches = append(c.Launches, launch(3, 32, in(a), in(b), label, changed, uint32(len(a))))
	}
	last := launch(3, 32, label, uint32(n))
	last.Kernel = "components_flatten"
	c.Launches = append(c.Launches, last)
	return c
}

func floyd(r *rand.Rand) *Case {
	const n = 20
	start := apply(n*n, func(i int) uint32 {
		switch {
		case i/n == i%n:
			return 0
		case r.IntN(4) == 0:
			return 1 + r.Uint32N(100)
		}
		return 1 << 20
	})
	want := slices.Clone(start)
	for k := range n {
		for i := range want {
			want[i] = min(want[i], want[i/n*n+k]+want[k*n+i%n])
		}
	}
	return &Case{Launches: []Launch{launch(1, 128, inout(start, want))}}
}
