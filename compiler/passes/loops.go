// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "slices"

// Loop is a natural loop: what a header dominates and what comes back to it.
type Loop struct {
	Header  int
	Latches []int // where edges to the header come from, in order
	Blocks  []int // in order, the header among them
	Parent  *Loop // the loop around it, or nil
	inside  map[int]bool
}

// Contains tells whether a block is in the loop, or in one that is in it.
func (l *Loop) Contains(b int) bool { return l.inside[b] }

// Edge is a branch from a block to another.
type Edge struct{ From, To int }

// Loops are the loops of a function.
type Loops struct {
	// All of them, in the order of their headers: outer ones come first.
	All []*Loop
	// Innermost loop of each block, or nil.
	Innermost []*Loop
	// Irreducible are branches into what goes round without a header: back to a
	// block that doesn't dominate them. These make no Loop.
	Irreducible []Edge
}

// Loops finds the loops.
func (c *CFG) Loops(dom *Tree) *Loops {
	l := &Loops{Innermost: make([]*Loop, len(c.Blocks))}
	for header := range c.Blocks {
		var latches []int
		for _, from := range c.Preds[header] {
			switch {
			case from < header:
			case dom.Dominates(header, from):
				latches = append(latches, from)
			default:
				l.Irreducible = append(l.Irreducible, Edge{from, header})
			}
		}
		if len(latches) > 0 {
			slices.Sort(latches)
			l.All = append(l.All, c.naturalLoop(header, latches))
		}
	}
	// An inner loop has its header after its outer one's, so it comes later.
	for _, loop := range l.All {
		loop.Parent = l.Innermost[loop.Header]
		for _, b := range loop.Blocks {
			l.Innermost[b] = loop
		}
	}
	return l
}

func (c *CFG) naturalLoop(header int, latches []int) *Loop {
	loop := &Loop{Header: header, Latches: latches, inside: map[int]bool{header: true}}
	stack := slices.Clone(latches)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !loop.inside[b] {
			loop.inside[b] = true
			stack = append(stack, c.Preds[b]...)
		}
	}
	for b := range loop.inside {
		loop.Blocks = append(loop.Blocks, b)
	}
	slices.Sort(loop.Blocks)
	return loop
}

// Around returns the loops around a block, the innermost first.
func (l *Loops) Around(b int) []*Loop {
	var around []*Loop
	for loop := l.Innermost[b]; loop != nil; loop = loop.Parent {
		around = append(around, loop)
	}
	return around
}

// Cycles returns for each block whether it can be executed again after itself,
// in a loop or in what is irreducible.
func (c *CFG) Cycles() []bool {
	cyclic := make([]bool, len(c.Blocks))
	for _, component := range c.Components() {
		again := len(component) > 1
		for _, b := range component {
			cyclic[b] = again || slices.Contains(c.Succs[b], b)
		}
	}
	return cyclic
}

// Components finds the strongly connected components: R. Tarjan, without
// recursion.
func (c *CFG) Components() [][]int {
	n := len(c.Blocks)
	index, low, next := make([]int, n), make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	var stack, path []int
	var all [][]int
	count := 0
	visit := func(b int) {
		count++
		index[b], low[b] = count, count
		stack, path = append(stack, b), append(path, b)
		onStack[b] = true
	}
	visit(0) // it reaches all
	for len(path) > 0 {
		b := path[len(path)-1]
		if next[b] < len(c.Succs[b]) {
			to := c.Succs[b][next[b]]
			next[b]++
			switch {
			case index[to] == 0:
				visit(to)
			case onStack[to]:
				low[b] = min(low[b], index[to])
			}
			continue
		}
		path = path[:len(path)-1]
		if len(path) > 0 {
			from := path[len(path)-1]
			low[from] = min(low[from], low[b])
		}
		if low[b] != index[b] {
			continue
		}
		first := slices.Index(stack, b)
		component := slices.Clone(stack[first:])
		for _, member := range component {
			onStack[member] = false
		}
		stack = stack[:first]
		all = append(all, component)
	}
	return all
}
