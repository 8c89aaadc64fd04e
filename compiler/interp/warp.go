// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"math/bits"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// lanes is a value of each thread of a warp.
type lanes [ir.WarpSize]uint64

// warp is 32 threads, or what is left of them at the end of a block.
type warp struct {
	*block
	first  int    // linear index of its first thread
	live   uint32 // threads that have neither ended nor left
	splits []*split
	tid    [3]lanes
	// Local memory of each thread, and how much of it is in use.
	local [ir.WarpSize][]byte
	top   lanes
	clock uint64 // steps of this warp
	spins bool   // the last turn of a split went on looking at memory again and again
}

// split is a part of a warp: threads that are at the same instruction.
type split struct {
	frame *frame
	pc    int32
	mask  uint32
	// waits: for other threads of the warp (together) or of the block (blocked).
	waits wait
	ran   uint64 // the warp's clock when its last turn began
}

type wait uint8

const (
	ready wait = iota
	together
	blocked
)

// frame is an activation of a function, with its registers.
type frame struct {
	code  *code
	regs  []lanes
	preds []uint32 // a bit a thread
	// base is where the function's variables begin in the threads' local memory.
	base lanes
	// The caller's frame, where it goes on, and the call; nil of a kernel.
	up    *frame
	ret   int32
	call  *ir.Instr
	depth int
}

func newFrame(c *code) *frame {
	return &frame{code: c, regs: make([]lanes, c.slots), preds: make([]uint32, c.preds)}
}

func newWarp(b *block, first, n int) *warp {
	w := &warp{block: b, first: first, live: uint32(1<<n - 1)}
	for l := range n {
		t := uint32(first + l)
		w.tid[0][l] = uint64(t % b.ntid[0])
		w.tid[1][l] = uint64(t / b.ntid[0] % b.ntid[1])
		w.tid[2][l] = uint64(t / b.ntid[0] / b.ntid[1])
	}
	f := newFrame(b.entry)
	w.enter(f, w.live)
	w.splits = []*split{{frame: f, mask: w.live}}
	return w
}

// fail ends the launch with a fault of the lowest thread of mask.
func (w *warp) fail(kind FaultKind, f *frame, in *ir.Instr, mask uint32, detail string) {
	w.fault = &Fault{
		Kind: kind, Func: f.code.fn.Name, Pos: in.Pos, Block: w.id,
		Thread: uint32(w.first + bits.TrailingZeros32(mask)), Detail: detail,
	}
}

// run runs the warp for a turn, or until all of its threads wait. It tells
// whether there was something to run.
func (w *warp) run(turn uint64) bool {
	ran := false
	for end := w.steps + turn; w.steps < end && w.fault == nil; {
		s, fence := w.pick()
		if s == nil {
			break
		}
		ran = true
		s.ran = w.clock
		before, looks := w.steps, w.looks
		w.advance(s, fence, min(end, w.steps+splitTurn))
		w.clock += w.steps - before
		w.spins = (w.looks-looks)*often >= w.steps-before
	}
	return ran
}

// pick joins the splits that have met, and chooses the one to run: the one that
// is deepest in calls, and of those the one that is behind. It may run as long as
// it is before fence, where another one waits for it. A split that has not run
// for long comes first: another one may be waiting for what it will do.
func (w *warp) pick() (*split, int32) {
	w.join()
	var best, oldest *split
	for _, s := range w.splits {
		if s.waits != ready {
			continue
		}
		if best == nil || s.before(best) {
			best = s
		}
		if oldest == nil || s.ran < oldest.ran {
			oldest = s
		}
	}
	if best == nil {
		return nil, 0
	}
	after := uint64(longWait)
	if w.spins {
		after = shortWait
	}
	if best != oldest && w.clock-oldest.ran > after {
		return oldest, math.MaxInt32
	}
	fence := int32(math.MaxInt32)
	for _, s := range w.splits {
		if s != best && s.frame.depth == best.frame.depth && s.pc > best.pc {
			fence = min(fence, s.pc)
		}
	}
	return best, fence
}

// before tells whether s is to run before t.
func (s *split) before(t *split) bool {
	if s.frame.depth != t.frame.depth {
		return s.frame.depth > t.frame.depth
	}
	return s.pc < t.pc
}

// join makes one of splits that are at the same place.
func (w *warp) join() {
	if len(w.splits) < 2 {
		return
	}
	for i := 0; i < len(w.splits); i++ {
		s := w.splits[i]
		if s.waits == blocked {
			continue
		}
		for j := i + 1; j < len(w.splits); j++ {
			t := w.splits[j]
			if t.waits == blocked || t.pc != s.pc || !s.frame.join(t.frame, t.mask) {
				continue
			}
			s.mask |= t.mask
			s.waits = ready
			s.ran = min(s.ran, t.ran)
			w.splits = slices.Delete(w.splits, j, j+1)
			j--
		}
	}
}

// join makes one of two activations of a function by the same caller: f gets
// the registers that g's threads have.
func (f *frame) join(g *frame, mask uint32) bool {
	if f == g {
		return true
	}
	if f.code != g.code || f.up != g.up || f.ret != g.ret {
		return false
	}
	for i := range f.regs {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			f.regs[i][l] = g.regs[i][l]
		}
	}
	for i := range f.preds {
		f.preds[i] = f.preds[i]&^mask | g.preds[i]&mask
	}
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		f.base[l] = g.base[l]
	}
	return true
}

// advance runs a split until it is at fence or behind it, waits, ends, splits
// up, calls or returns, or until step end.
func (w *warp) advance(s *split, fence int32, end uint64) {
	f := s.frame
	insts := f.code.insts
	for {
		i := &insts[s.pc]
		if w.steps++; w.steps > w.limit {
			w.fail(StepLimit, f, i.in, s.mask, "")
			return
		}
		mask := s.mask
		if i.guard >= 0 {
			p := f.preds[i.guard]
			if i.guardNot {
				p = ^p
			}
			mask &= p
		}
		if i.control != nil {
			if !i.control(w, s, i, mask) || w.fault != nil {
				return
			}
			f = s.frame
			insts = f.code.insts
		} else {
			if mask != 0 {
				i.run(w, f, mask)
				if w.fault != nil {
					return
				}
			}
			s.pc++
		}
		if s.pc >= fence || w.steps >= end {
			return
		}
	}
}

// spawn makes threads of s a split of their own, at pc.
func (w *warp) spawn(s *split, mask uint32, pc int32) {
	s.mask &^= mask
	w.splits = append(w.splits, &split{frame: s.frame, pc: pc, mask: mask, ran: w.clock})
}

// drop removes threads of s: they have ended, or left.
func (w *warp) drop(s *split, mask uint32) {
	s.mask &^= mask
	w.live &^= mask
	if s.mask == 0 {
		w.splits = slices.DeleteFunc(w.splits, func(t *split) bool { return t == s })
	}
	for _, t := range w.splits {
		if t.waits == together {
			t.waits = ready // it waits for fewer now
		}
	}
}
