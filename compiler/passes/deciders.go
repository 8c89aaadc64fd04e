// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// controlDependence returns for each block the blocks whose branches decide
// whether it is executed: J. Ferrante, K. Ottenstein, J. Warren, "The Program
// Dependence Graph".
func (c *CFG) controlDependence(post *Tree) [][]int {
	deciders := make([][]int, len(c.Blocks))
	last := make([]int, len(c.Blocks))
	for b, succs := range c.Succs {
		if len(succs) < 2 {
			continue
		}
		for _, s := range succs {
			for at := s; at >= 0 && at != post.Parent[b]; at = post.Parent[at] {
				if last[at] != b+1 {
					last[at] = b + 1
					deciders[at] = append(deciders[at], b)
				}
			}
		}
	}
	return deciders
}

// deciders is control dependence without the doomed blocks, which can only end in
// a trap: whoever comes to what is behind a branch to such a one, comes there with
// all others or the launch is over. What decides over the doomed is as ever.
func (c *CFG) deciders(doomed []bool) [][]int {
	rest := c.without(doomed)
	deciders := rest.controlDependence(rest.PostDominators())
	for b, all := range c.controlDependence(c.PostDominators()) {
		if doomed[b] {
			deciders[b] = all
		}
	}
	return deciders
}

// without is the control flow of blocks that are not doomed. The doomed lead nowhere
// else, so the others are a graph of their own.
func (c *CFG) without(doomed []bool) *CFG {
	rest := &CFG{Func: c.Func, Blocks: c.Blocks, Succs: make([][]int, len(c.Blocks)), Preds: make([][]int, len(c.Blocks))}
	for b, succs := range c.Succs {
		for _, s := range succs {
			if !doomed[b] && !doomed[s] {
				rest.Succs[b] = append(rest.Succs[b], s)
				rest.Preds[s] = append(rest.Preds[s], b)
			}
		}
	}
	return rest
}

// doomed finds the blocks from which every way ends in a trap.
func (c *CFG) doomed() []bool {
	doomed := make([]bool, len(c.Blocks))
	left := make([]int, len(c.Blocks)) // successors that are not doomed
	var todo []int
	for b, block := range c.Blocks {
		left[b] = len(c.Succs[b])
		if slices.ContainsFunc(block.Instrs, traps) {
			doomed[b] = true
			todo = append(todo, b)
		}
	}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range c.Preds[b] {
			if left[p]--; left[p] == 0 && !doomed[p] {
				doomed[p] = true
				todo = append(todo, p)
			}
		}
	}
	return doomed
}

// traps tells of an instruction that ends the launch wherever it is executed.
func traps(in *ir.Instr) bool {
	return in.Op == ir.Trap || in.Op == ir.Assertfail && in.Guard == ir.NoReg
}
