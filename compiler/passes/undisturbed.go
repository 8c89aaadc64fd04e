// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Gathering tells of a block that threads execute only while their block stops.
func Gathering(b *ir.Block) bool { return b.Instrs[0].Op == ir.Gather }

// Returning tells of one that is on the way back.
func Returning(b *ir.Block) bool { return Gathering(b) && b.Instrs[0].Args[0].Imm == back }

// Undisturbed makes the control flow of a function as if nobody stopped in it:
// without the blocks that Gather made for that, and the ways there. What a thread
// computes is the same whether it stops on the way or not, so what is found out
// about this flow is true of the whole one, of threads that are where it has them.
func Undisturbed(f *ir.Func) *CFG {
	return newCFG(f, func(b *ir.Block) []*ir.Block {
		succs := b.Succs()
		if !slices.ContainsFunc(succs, Gathering) {
			return succs
		}
		return slices.DeleteFunc(slices.Clone(succs), Gathering)
	})
}

// Surviving returns the post-dominators of what does not end in a trap: blocks that
// a thread comes to if the launch goes on.
func (c *CFG) Surviving() *Tree {
	doomed := c.doomed()
	if doomed[0] {
		return c.PostDominators()
	}
	return c.without(doomed).PostDominators()
}
