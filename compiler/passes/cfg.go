// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// CFG is a function's control flow, over the blocks that the entry reaches. They
// are numbered in reverse post order: the entry is 0, and what dominates a block
// has a lower number.
type CFG struct {
	Func   *ir.Func
	Blocks []*ir.Block
	Number map[*ir.Block]int
	// Succs and Preds have each block once, however many edges go there.
	Succs, Preds [][]int
}

// NewCFG makes the control flow of a function with blocks.
func NewCFG(f *ir.Func) *CFG { return newCFG(f, (*ir.Block).Succs) }

func newCFG(f *ir.Func, succsOf func(*ir.Block) []*ir.Block) *CFG {
	order := postOrder(f.Blocks[0], succsOf)
	c := &CFG{Func: f, Blocks: make([]*ir.Block, len(order)), Number: make(map[*ir.Block]int, len(order))}
	for i, b := range order {
		n := len(order) - 1 - i
		c.Blocks[n], c.Number[b] = b, n
	}
	c.Succs, c.Preds = make([][]int, len(order)), make([][]int, len(order))
	seen := make([]int, len(order))
	for n, b := range c.Blocks {
		for _, to := range succsOf(b) {
			s := c.Number[to]
			if seen[s] == n+1 {
				continue
			}
			seen[s] = n + 1
			c.Succs[n] = append(c.Succs[n], s)
			c.Preds[s] = append(c.Preds[s], n)
		}
	}
	return c
}

// postOrder walks without recursion: a function can be a million blocks deep.
func postOrder(entry *ir.Block, succsOf func(*ir.Block) []*ir.Block) []*ir.Block {
	type frame struct {
		block *ir.Block
		next  int
	}
	var order []*ir.Block
	seen := map[*ir.Block]bool{entry: true}
	stack := []frame{{block: entry}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		succs := succsOf(top.block)
		if top.next == len(succs) {
			order = append(order, top.block)
			stack = stack[:len(stack)-1]
			continue
		}
		// The first target is walked last, so that it comes first.
		to := succs[len(succs)-1-top.next]
		top.next++
		if !seen[to] {
			seen[to] = true
			stack = append(stack, frame{block: to})
		}
	}
	return order
}
