// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "slices"

// Tree is a tree of dominators, or of post-dominators.
type Tree struct {
	// Parent of each block: the one that dominates it and that all others that do
	// dominate. The root's is -1. In a tree of post-dominators the root is not a
	// block but the program's end: Parent is -1 for what nothing but the end
	// post-dominates.
	Parent []int
	depth  []int
}

// Dominates tells whether block a dominates (post-dominates) b; each does itself.
func (t *Tree) Dominates(a, b int) bool {
	for b >= 0 && t.depth[b] > t.depth[a] {
		b = t.Parent[b]
	}
	return a == b
}

// Dominators finds the dominators: K. D. Cooper, T. J. Harvey, K. Kennedy, "A
// Simple, Fast Dominance Algorithm".
func (c *CFG) Dominators() *Tree {
	return newTree(immediate(c.Preds, 0))
}

// PostDominators finds the post-dominators. A block from which the end can't be
// reached, an endless loop's, counts as if it could end.
func (c *CFG) PostDominators() *Tree {
	n := len(c.Blocks)
	// The graph with its edges turned round, and the end, n, before everything.
	succs := make([][]int, n+1)
	for i := range c.Blocks {
		succs[i] = c.Preds[i]
	}
	reached := make([]bool, n+1)
	mark := func(from int) {
		stack := []int{from}
		for len(stack) > 0 {
			b := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if !reached[b] {
				reached[b] = true
				stack = append(stack, succs[b]...)
			}
		}
	}
	for i := range c.Blocks {
		if len(c.Succs[i]) == 0 {
			succs[n] = append(succs[n], i)
			mark(i)
		}
	}
	for i := n - 1; i >= 0; i-- {
		if !reached[i] {
			succs[n] = append(succs[n], i)
			mark(i)
		}
	}

	order, number := reversePostOrder(succs, n)
	preds := make([][]int, n+1)
	for from, list := range succs {
		for _, to := range list {
			preds[number[to]] = append(preds[number[to]], number[from])
		}
	}
	idom := immediate(preds, 0)
	parent := make([]int, n)
	for i, b := range order[1:] {
		parent[b] = -1
		if p := order[idom[i+1]]; p != n {
			parent[b] = p
		}
	}
	return newTree(parent)
}

// reversePostOrder numbers a graph's nodes, all of which root reaches.
func reversePostOrder(succs [][]int, root int) (order, number []int) {
	number = make([]int, len(succs))
	next := make([]int, len(succs))
	seen := make([]bool, len(succs))
	seen[root] = true
	stack := []int{root}
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		if next[b] == len(succs[b]) {
			order = append(order, b)
			stack = stack[:len(stack)-1]
			continue
		}
		to := succs[b][next[b]]
		next[b]++
		if !seen[to] {
			seen[to] = true
			stack = append(stack, to)
		}
	}
	slices.Reverse(order)
	for i, b := range order {
		number[b] = i
	}
	return order, number
}

// immediate finds the immediate dominators in a graph in reverse post order.
func immediate(preds [][]int, root int) []int {
	idom := make([]int, len(preds))
	for i := range idom {
		idom[i] = -1
	}
	idom[root] = root
	for changed := true; changed; {
		changed = false
		for b := range preds {
			if b == root {
				continue
			}
			best := -1
			for _, p := range preds[b] {
				switch {
				case idom[p] < 0:
				case best < 0:
					best = p
				default:
					best = meet(idom, best, p)
				}
			}
			if best != idom[b] {
				idom[b], changed = best, true
			}
		}
	}
	idom[root] = -1
	return idom
}

func meet(idom []int, a, b int) int {
	for a != b {
		for a > b {
			a = idom[a]
		}
		for b > a {
			b = idom[b]
		}
	}
	return a
}

// newTree computes depths; a parent need not have a lower number.
func newTree(parent []int) *Tree {
	t := &Tree{Parent: parent, depth: make([]int, len(parent))}
	var path []int
	for b := range parent {
		for p := b; p >= 0 && t.depth[p] == 0; p = parent[p] {
			path = append(path, p)
		}
		for _, at := range slices.Backward(path) {
			d := 0
			if p := parent[at]; p >= 0 {
				d = t.depth[p]
			}
			t.depth[at] = d + 1
		}
		path = path[:0]
	}
	return t
}
