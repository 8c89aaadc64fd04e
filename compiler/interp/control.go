// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"
)

// A control is what an instruction does that decides where threads go on: those
// of mask, which is what its guard leaves of s. It tells whether s goes on
// running, at s.pc; otherwise the warp picks another split, or s again.
type control func(w *warp, s *split, i *inst, mask uint32) bool

func branch(w *warp, s *split, i *inst, mask uint32) bool {
	if i.points[0]|i.points[1] != 0 {
		return w.branchAtPoint(s, i, mask)
	}
	switch mask {
	case s.mask:
		s.pc = i.to[0]
		return true
	case 0:
		s.pc = i.to[1]
		return true
	}
	w.spawn(s, s.mask&^mask, i.to[1])
	s.pc = i.to[0]
	return false
}

// branchIndexed is Brx: each thread to the target of its index.
func branchIndexed(w *warp, s *split, i *inst, mask uint32) bool {
	index := i.args[0].get(w, s.frame)
	first := true
	for mask != 0 {
		n := index[bits.TrailingZeros32(mask)] & 0xffffffff
		if n >= uint64(len(i.to)) {
			w.fail(BadCall, s.frame, i.in, mask, "")
			return false
		}
		group := w.groupOf(index, mask, 0xffffffff)
		mask &^= group
		if mask != 0 {
			w.spawn(s, group, i.to[n])
			first = false
			continue
		}
		s.pc = i.to[n]
	}
	return first
}

// groupOf are the threads of mask that have the value of its first one, in the
// bits that count.
func (w *warp) groupOf(v *lanes, mask uint32, count uint64) uint32 {
	want := v[bits.TrailingZeros32(mask)] & count
	var group uint32
	for m := mask; m != 0; m &= m - 1 {
		if l := bits.TrailingZeros32(m); v[l]&count == want {
			group |= 1 << l
		}
	}
	return group
}

// exit ends threads; a guard leaves the others.
func exit(w *warp, s *split, _ *inst, mask uint32) bool {
	s.pc++ // for those that are left
	return w.leave(s, mask)
}

// leave ends threads of s, and tells whether s goes on.
func (w *warp) leave(s *split, mask uint32) bool {
	if mask == 0 {
		return true
	}
	w.drop(s, mask)
	w.exit(bits.OnesCount32(mask))
	return false
}

func trap(w *warp, s *split, i *inst, mask uint32) bool {
	if mask == 0 {
		s.pc++
		return true
	}
	w.fail(Trapped, s.frame, i.in, mask, "")
	return false
}

// meet lets threads wait until all members of their masks are there: those that
// have not ended and that a mask names. Then it runs the operation, for all that
// have the same mask together.
func meet(w *warp, s *split, i *inst, mask uint32) bool {
	if mask == 0 {
		s.pc++
		return true
	}
	if mask != s.mask {
		// The guard keeps these from taking part.
		w.spawn(s, s.mask&^mask, s.pc+1)
		return false
	}
	members := i.members.get(w, s.frame)
	var met uint32
	for m := mask; m != 0; {
		group := w.groupOf(members, m, 0xffffffff)
		m &^= group
		need := uint32(members[bits.TrailingZeros32(group)])
		part := group & need // who is no member takes no part
		if part != 0 && need&w.live&^mask != 0 {
			continue
		}
		met |= group
		if part != 0 {
			i.run(w, s.frame, part)
		}
		if w.fault != nil {
			return false
		}
	}
	switch met {
	case 0:
		s.waits = together
		return false
	case s.mask:
		s.pc++
		return true
	}
	w.spawn(s, met, s.pc+1)
	return false
}
