// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// barrier is one of a block's barriers while threads wait at it.
//
// Without a number of threads it is over when all threads of the block that have
// not ended wait at it. With one, when so many have arrived; a warp that arrives
// whole counts as 32, however many threads of it there are (ISA 9.7.13.1).
type barrier struct {
	id       uint64
	expected int // 0: all
	arrived  int
	waiting  int // threads
	waiters  []waiter
	// What bar.red makes of the predicates.
	count   int
	and, or bool
}

type waiter struct {
	w *warp
	s *split
	i *inst
}

func (b *builder) bar() error {
	b.i.control = arrive
	b.i.args = []operand{b.arg(0), none}
	n := len(b.Args)
	p := predicate{slot: -1}
	if b.Mods.Bar >= ir.BarRedPopc {
		n--
		p = b.pred(n)
	}
	if n > 1 {
		b.i.args[1] = b.arg(1)
	}
	var d target
	switch b.Mods.Bar {
	case ir.BarRedPopc:
		d = b.to(0, ir.B32)
	case ir.BarRedAnd, ir.BarRedOr:
		d = b.to(0, ir.Pred)
	}
	b.i.pred, b.i.result = p, d
	b.i.points[0] = b.points[b.Instr]
	return nil
}

// arrive is Bar.
func arrive(w *warp, s *split, i *inst, mask uint32) bool {
	if mask == 0 {
		s.pc++
		return true
	}
	if mask != s.mask {
		w.spawn(s, s.mask&^mask, s.pc+1)
		return false
	}
	if i.in.Mods.Aligned && w.live != mask {
		s.waits = together
		return false
	}
	ids := i.args[0].get(w, s.frame)
	if group := w.groupOf(ids, mask, 0xffffffff); group != mask {
		w.spawn(s, mask&^group, s.pc)
		mask = group
	}
	first := bits.TrailingZeros32(mask)
	id := ids[first] & 0xffffffff
	bar := w.barriers[id]
	if bar == nil {
		bar = &barrier{id: id, and: true}
		w.barriers[id] = bar
	}
	if n := i.args[1].get(w, s.frame)[first] & 0xffffffff; n != 0 {
		bar.expected = int(n)
	}
	n := bits.OnesCount32(mask)
	bar.arrived += n
	if mask == w.live {
		bar.arrived += ir.WarpSize - n
	}
	if i.in.Mods.Bar == ir.BarArrive {
		s.pc++
		w.complete(bar)
		return len(w.splits) == 1
	}
	p := i.pred.get(s.frame) & mask
	bar.count += bits.OnesCount32(p)
	bar.and = bar.and && p == mask
	bar.or = bar.or || p != 0
	bar.waiting += n
	bar.waiters = append(bar.waiters, waiter{w, s, i})
	s.waits = blocked
	w.complete(bar)
	return false
}

// settle looks whether a barrier is over, now that threads have ended.
func (b *block) settle() {
	for _, bar := range b.barriers {
		if bar.expected == 0 && b.complete(bar) {
			return // all threads that are left waited at it
		}
	}
}

// complete lets the threads that wait at a barrier go on, or leave at its pause
// point, if it is over.
func (b *block) complete(bar *barrier) bool {
	if bar.expected == 0 && (bar.waiting < b.live || bar.waiting == 0) || bar.arrived < bar.expected {
		return false
	}
	delete(b.barriers, bar.id)
	b.progress = true
	for _, x := range bar.waiters {
		f := x.s.frame
		switch x.i.in.Mods.Bar {
		case ir.BarRedPopc:
			x.i.result.set(f, uniformLanes(uint64(bar.count)), x.s.mask)
		case ir.BarRedAnd:
			x.i.result.setPred(f, everywhere(bar.and), x.s.mask)
		case ir.BarRedOr:
			x.i.result.setPred(f, everywhere(bar.or), x.s.mask)
		}
		x.s.pc++
		x.s.waits = ready
	}
	if point := bar.point(b); point != 0 && (b.stopping || b.asks(point)) {
		b.pauseAll(point)
	}
	return true
}

// point is the pause point that all threads of the block are at, or 0.
func (bar *barrier) point(b *block) int {
	if bar.waiting != b.threads {
		return 0
	}
	first := bar.waiters[0].i
	for _, x := range bar.waiters {
		if x.i != first || x.s.frame.up != nil {
			return 0
		}
	}
	return first.points[0]
}
