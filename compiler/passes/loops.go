// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "slices"

// Loop is a natural loop: what a header dominates and what comes back to it.
type Loop struct {
	Header  int
	Latches []int // where edges to the header come from, in order
	Parent  *Loop // the loop around it, or nil
	loops   *Loops
	// The loop's number, where outer ones come before those in them, and the first
	// number behind these.
	first, behind int
}

// Contains tells whether a block is in the loop, or in one that is in it.
func (l *Loop) Contains(b int) bool {
	in := l.loops.Innermost[b]
	return in != nil && in.first >= l.first && in.first < l.behind
}

// Blocks returns the loop's blocks in order, the header among them.
func (l *Loop) Blocks() []int {
	var blocks []int
	for b := l.Header; b < len(l.loops.Innermost); b++ { // it comes first
		if l.Contains(b) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

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
			l.All = append(l.All, &Loop{Header: header, Latches: latches, loops: l})
		}
	}
	c.nest(l)
	return l
}

// nest finds the blocks of the loops, the inner ones first. To the loop around it
// an inner loop is one block, its header; so each block is looked at once in the
// loop that it is in, however deep that is.
func (c *CFG) nest(l *Loops) {
	within := make([]int, len(c.Blocks)) // the header of a loop around a block, or the block
	for b := range within {
		within[b] = b
	}
	outermost := func(b int) int {
		for within[b] != b {
			within[b] = within[within[b]] // a shorter way for the next one
			b = within[b]
		}
		return b
	}
	var todo []int
	for _, loop := range slices.Backward(l.All) {
		l.Innermost[loop.Header] = loop
		todo = append(todo[:0], loop.Latches...)
		for len(todo) > 0 {
			b := outermost(todo[len(todo)-1])
			todo = todo[:len(todo)-1]
			if b == loop.Header {
				continue
			}
			if inner := l.Innermost[b]; inner != nil {
				inner.Parent = loop
			} else {
				l.Innermost[b] = loop
			}
			within[b] = loop.Header
			todo = append(todo, c.Preds[b]...)
		}
	}
	// A loop's parent has its header before it, and so a lower index.
	size := make(map[*Loop]int, len(l.All))
	for _, loop := range slices.Backward(l.All) {
		size[loop]++
		if loop.Parent != nil {
			size[loop.Parent] += size[loop]
		}
	}
	next := make(map[*Loop]int, len(l.All)) // nil: where outermost loops go
	for _, loop := range l.All {
		at := next[loop.Parent]
		loop.first, loop.behind = at, at+size[loop]
		next[loop.Parent], next[loop] = loop.behind, at+1
	}
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
