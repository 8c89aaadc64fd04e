// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// order lists the blocks that can be reached such that each comes behind all
// that lead to it, but for the back edges of loops, and such that a loop's blocks
// lie together. Threads of a warp that went different ways meet again as early
// as possible if the one that is behind in this order always goes first.
//
// Strongly connected components in topological order are that order; inside each
// the same holds without the edges to where it is entered.
func order(entry *ir.Block) []*ir.Block {
	o := &orderer{home: map[*ir.Block]int{}}
	o.arrange([]*ir.Block{entry}, 0)
	return o.done
}

type orderer struct {
	done []*ir.Block
	// home is the number of the component that a block is in while that is being
	// arranged; edges to other numbers leave it.
	home  map[*ir.Block]int
	homes int
}

// arrange appends the blocks of component home, entered at heads, to done.
func (o *orderer) arrange(heads []*ir.Block, home int) {
	parts := o.components(heads, home)
	for _, part := range slices.Backward(parts) {
		if len(part) == 1 {
			o.done = append(o.done, part[0])
			o.home[part[0]] = -1
			continue
		}
		o.homes++
		inner := o.homes
		for _, b := range part {
			o.home[b] = inner
		}
		// The block that was found first is where the loop is entered. It comes
		// first; what is left of the loop is arranged without it.
		first := part[len(part)-1]
		o.done = append(o.done, first)
		o.home[first] = -1
		var next []*ir.Block
		for _, s := range first.Succs() {
			if o.home[s] == inner {
				next = append(next, s)
			}
		}
		o.arrange(next, inner)
	}
}

// visit is a block on Tarjan's way through the graph.
type visit struct {
	block *ir.Block
	next  int // successor
	low   int
}

// components finds the strongly connected components of what can be reached from
// heads within home: each behind those that it leads to. The last block of each
// is the one found first.
func (o *orderer) components(heads []*ir.Block, home int) [][]*ir.Block {
	var (
		parts [][]*ir.Block
		stack []*ir.Block
		way   []visit
		index = map[*ir.Block]int{}
		open  = map[*ir.Block]bool{}
	)
	enter := func(b *ir.Block) {
		index[b] = len(index)
		open[b] = true
		stack = append(stack, b)
		way = append(way, visit{block: b, low: index[b]})
	}
	for len(way) > 0 || len(heads) > 0 {
		if len(way) == 0 {
			if _, seen := index[heads[0]]; !seen {
				enter(heads[0])
			}
			heads = heads[1:]
			continue
		}
		v := &way[len(way)-1]
		if succs := v.block.Succs(); v.next < len(succs) {
			s := succs[v.next]
			v.next++
			if at, seen := o.home[s]; home != 0 && at != home || home == 0 && seen {
				continue
			}
			if at, seen := index[s]; !seen {
				enter(s)
			} else if open[s] {
				v.low = min(v.low, at)
			}
			continue
		}
		done := *v
		way = way[:len(way)-1]
		if len(way) > 0 {
			up := &way[len(way)-1]
			up.low = min(up.low, done.low)
		}
		if done.low != index[done.block] {
			continue
		}
		var part []*ir.Block
		for {
			b := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			open[b] = false
			part = append(part, b)
			if b == done.block {
				break
			}
		}
		parts = append(parts, part)
	}
	return parts
}
