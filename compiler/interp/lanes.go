// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// shfl reads another thread's value (ISA 9.7.9.6). The predicate tells whether
// the lane is within the segment. What a lane that takes no part has is not
// defined: its register is read, as devices do.
func (b *builder) shfl() error {
	value, index, clamp := b.arg(0), b.arg(1), b.arg(2)
	d, p, mode := b.to(0, b.Type), b.to(1, ir.Pred), b.Mods.Shfl
	b.meets(3, func(w *warp, f *frame, mask uint32) {
		v, at, c := *value.get(w, f), index.get(w, f), clamp.get(w, f)
		var r lanes
		var in uint32
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			from, within := shflLane(mode, l, int(at[l]&31), int(c[l]))
			if !within {
				from = l
			} else {
				in |= 1 << l
			}
			r[l] = v[from] & 0xffffffff
		}
		d.set(f, &r, mask)
		p.setPred(f, in, mask)
	})
	return nil
}

// shflLane is the lane that lane l reads, and whether it is within its segment.
func shflLane(mode ir.ShflMode, l, at, c int) (int, bool) {
	clamp, segment := c&31, c>>8&31
	first := l & segment
	last := first | clamp&^segment
	switch mode {
	case ir.ShflUp:
		return l - at, l-at >= last // of up, the clamp is the lowest lane
	case ir.ShflDown:
		return l + at, l+at <= last
	case ir.ShflBfly:
		return l ^ at, l^at <= last
	}
	j := first | at&^segment
	return j, j <= last
}

// vote tells what the members' predicates have in common.
func (b *builder) vote() error {
	p, mode := b.pred(0), b.Mods.Vote
	var d target
	if mode == ir.VoteBallot {
		d = b.to(0, ir.B32)
	} else {
		d = b.to(0, ir.Pred)
	}
	b.meets(1, func(_ *warp, f *frame, mask uint32) {
		got := p.get(f) & mask
		if mode == ir.VoteBallot {
			d.set(f, uniformLanes(uint64(got)), mask)
			return
		}
		yes := false
		switch mode {
		case ir.VoteAll:
			yes = got == mask
		case ir.VoteAny:
			yes = got != 0
		case ir.VoteUni:
			yes = got == mask || got == 0
		}
		d.setPred(f, everywhere(yes), mask)
	})
	return nil
}

func uniformLanes(x uint64) *lanes {
	v := &lanes{}
	for l := range v {
		v[l] = x
	}
	return v
}

func everywhere(yes bool) uint32 {
	if yes {
		return ^uint32(0)
	}
	return 0
}

// match finds the members that have the same value: of any, each thread those
// that have its own; of all, every member or none.
func (b *builder) match() error {
	value, all, m := b.arg(0), b.Mods.MatchAll, ones(b.Type)
	d, p := b.to(0, ir.B32), b.to(1, ir.Pred)
	b.meets(1, func(w *warp, f *frame, mask uint32) {
		v := *value.get(w, f)
		if all {
			same := w.groupOf(&v, mask, m) == mask
			p.setPred(f, everywhere(same), mask)
			d.set(f, uniformLanes(uint64(mask&everywhere(same))), mask)
			return
		}
		for left := mask; left != 0; {
			group := w.groupOf(&v, left, m)
			left &^= group
			d.set(f, uniformLanes(uint64(group)), group)
		}
	})
	return nil
}

// redux reduces the members' values.
func (b *builder) redux() error {
	value, d := b.arg(0), b.to(0, b.Type)
	t := b.Type
	if t == ir.B32 {
		t = ir.U32
	}
	op := reduction(&ir.Instr{Type: t, Mods: ir.Mods{Atom: b.Mods.Atom}})
	switch {
	case b.Mods.Atom >= ir.AtomExch && b.Mods.Atom != ir.AtomMin && b.Mods.Atom != ir.AtomMax:
		return errType
	case b.Mods.NaN:
		one := *b.Instr
		one.Op = ir.Min
		if b.Mods.Atom == ir.AtomMax {
			one.Op = ir.Max
		}
		f := floatMinMax(&one)
		if f == nil {
			return errType
		}
		op = func(was, x, _ uint64) uint64 { return f(was, x, 0, 0) }
	case op == nil:
		return errType
	}
	b.meets(1, func(w *warp, f *frame, mask uint32) {
		v := value.get(w, f)
		l := bits.TrailingZeros32(mask)
		r := v[l]
		for m := mask & (mask - 1); m != 0; m &= m - 1 {
			r = op(r, v[bits.TrailingZeros32(m)], 0)
		}
		d.set(f, uniformLanes(r), mask)
	})
	return nil
}

// activemask are the threads that execute it together.
func (b *builder) activemask() error {
	d := b.to(0, ir.B32)
	b.i.run = func(_ *warp, f *frame, mask uint32) { d.set(f, uniformLanes(uint64(mask)), mask) }
	return nil
}

// elect chooses the lowest member.
func (b *builder) elect() error {
	d, p := b.to(0, ir.B32), b.to(1, ir.Pred)
	b.meets(0, func(_ *warp, f *frame, mask uint32) {
		leader := bits.TrailingZeros32(mask)
		d.set(f, uniformLanes(uint64(leader)), mask)
		p.setPred(f, 1<<leader, mask)
	})
	return nil
}
