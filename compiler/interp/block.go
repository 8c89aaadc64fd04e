// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// block is a block of threads that runs.
type block struct {
	*grid
	id       uint32 // linear
	index    [3]uint32
	shared   []byte
	warps    []*warp
	barriers map[uint64]*barrier
	live     int  // threads that have neither ended nor left at a pause point
	ended    int  // threads that have ended
	paused   int  // the point at which all threads left, or 0
	stopping bool // threads are on their way there, from loops
	// What it did in its last turn: steps, accesses to memory that other blocks
	// write, and whether something else has come to its end.
	took, polls uint64
	progress    bool
	looks       uint64 // accesses to memory that other threads write
}

func newBlock(g *grid, id uint32) *block {
	b := &block{grid: g, id: id, barriers: map[uint64]*barrier{}}
	b.index = [3]uint32{id % g.dim[0], id / g.dim[0] % g.dim[1], id / g.dim[0] / g.dim[1]}
	b.shared = make([]byte, g.sharedBytes)
	b.live = g.threads
	for first := 0; first < g.threads; first += ir.WarpSize {
		b.warps = append(b.warps, newWarp(b, first, min(ir.WarpSize, g.threads-first)))
	}
	return b
}

// left tells whether no thread is left to run.
func (b *block) left() bool { return b.live == 0 }

// polling tells whether the last turn was spent with looking at memory that
// other blocks write.
func (b *block) polling() bool { return !b.progress && b.polls*often >= b.took }

// turn gives each warp that can run a turn. If none can, no thread will ever get
// on: a fault.
func (b *block) turn() {
	before := b.steps
	b.polls, b.progress = 0, false
	ran := false
	for _, w := range b.warps {
		if w.run(warpTurn) {
			ran = true
		}
		if b.fault != nil {
			return
		}
	}
	b.took = b.steps - before
	if !ran && b.live > 0 {
		b.stuck()
	}
}

// stuck reports the first thread that waits for others which never come.
func (b *block) stuck() {
	for _, w := range b.warps {
		if len(w.splits) == 0 {
			continue
		}
		s := w.splits[0]
		in := s.frame.code.insts[s.pc].in
		kind := DivergentWarp
		if in.Op == ir.Bar {
			kind = DivergentBarrier
		}
		w.fail(kind, s.frame, in, s.mask, "")
		return
	}
}

// exit ends threads.
func (b *block) exit(n int) {
	b.live -= n
	b.ended += n
	b.progress = true
	b.settle()
}
