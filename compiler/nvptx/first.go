// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// firstPoints returns the numbers of the points to which a block can come first, if
// it may decide only there whether it begins: it comes to one of them soon, and
// nothing that it does before can be seen from outside. nil otherwise.
//
// A block that asks at its beginning waits for a word from memory and for a
// barrier, which costs more than all else in kernels with short blocks. The word
// that was asked for at the beginning is there by the first barrier.
func firstPoints(plan *pause.Plan) []int {
	if plan.Class != pause.BarrierPausable {
		return nil
	}
	w := &firstWalk{plan: plan, of: pointsOf(plan), state: map[*ir.Block]walked{}}
	if !w.walk(plan.Func.Blocks[0]) {
		return nil
	}
	slices.Sort(w.points)
	return w.points
}

type walked uint8

const (
	notWalked walked = iota
	walking          // what is behind it is being walked
	hasWalked
)

type firstWalk struct {
	plan   *pause.Plan
	of     map[*ir.Block][]int // see pointsOf
	state  map[*ir.Block]walked
	points []int
}

// walk goes from a block's beginning to points. It returns false where that takes a
// loop, or is seen from outside.
func (w *firstWalk) walk(from *ir.Block) bool {
	type frame struct {
		block *ir.Block
		next  int
	}
	var path []frame
	enter := func(b *ir.Block) bool {
		w.state[b] = walking
		ends, quiet := w.block(b)
		next := 0
		if ends {
			next = len(begun(b))
		}
		path = append(path, frame{b, next})
		return quiet
	}
	if !enter(from) {
		return false
	}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if top.next == len(begun(top.block)) {
			w.state[top.block] = hasWalked
			path = path[:len(path)-1]
			continue
		}
		to := begun(top.block)[top.next]
		top.next++
		switch w.state[to] {
		case walking:
			return false
		case notWalked:
			if !enter(to) {
				return false
			}
		}
	}
	return true
}

// begun returns where a block leads to in a kernel that is not resumed.
func begun(b *ir.Block) []*ir.Block {
	return slices.DeleteFunc(slices.Clone(b.Succs()), passes.Gathering)
}

// block tells whether the way ends in a block, at a point, and whether nothing of
// it before is seen from outside.
func (w *firstWalk) block(b *ir.Block) (ends, quiet bool) {
	for i, in := range b.Instrs {
		for _, n := range w.of[b] {
			if w.plan.Points[n].Index == i {
				w.points = append(w.points, n+1)
				return true, len(w.plan.Points[n].Polls) == 0
			}
		}
		if seen(in) {
			return false, false
		}
	}
	return false, true
}

// seen tells of an instruction with an effect beyond the block's own memory, or
// for which threads wait.
func seen(in *ir.Instr) bool {
	switch in.Op {
	case ir.St, ir.Atom, ir.Red, ir.WmmaStore, ir.Stmatrix:
		return in.Mods.Space != ir.Shared && in.Mods.Space != ir.Local
	case ir.Printf, ir.Assertfail, ir.Malloc, ir.Free, ir.Call, ir.Bar, ir.Nanosleep, ir.Trap:
		return true
	}
	return in.Op >= ir.MbarInit && in.Op <= ir.MbarExpect
}
