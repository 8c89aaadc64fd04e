// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// cpAsync copies at once.
func (b *builder) cpAsync() error {
	to, from, some, in := b.arg(0), b.arg(1), none, b.Instr
	size := int(b.Mods.Bytes)
	if len(b.Args) < 3 {
		some = same(uint64(size))
	} else {
		some = b.arg(2)
	}
	if size == 0 {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		t, s, n := to.get(w, f), from.get(w, f), some.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			dst := w.at(f, in, ir.Shared, l, t[l]+uint64(in.Offset), size, true)
			if dst == nil {
				return
			}
			count := min(int(n[l]&0xffffffff), size)
			if count > 0 {
				if s[l]&uint64(size-1) != 0 {
					w.failAt(Misaligned, f, in, ir.Global, l, s[l])
					return
				}
				src := w.Memory.At(s[l], count)
				if src == nil {
					w.failAt(OutOfBounds, f, in, ir.Global, l, s[l])
					return
				}
				copy(dst, src)
			}
			clear(dst[count:])
		}
	}
	return nil
}

// An mbarrier is 8 bytes of shared memory, which a state saves as they are: the
// number of threads that each phase expects (bits 0 to 19), how many of them are
// still to come (bits 20 to 39), and the parity of the phase (bit 63). docs/ir.md
// says the same for the other back ends.
const (
	mbarCount   = 1<<20 - 1
	mbarPending = 20
	mbarPhase   = uint64(1) << 63
)

// mbarArrived is an mbarrier after count threads have arrived.
func mbarArrived(word, count uint64, drop bool) uint64 {
	expected, pending := word&mbarCount, word>>mbarPending&mbarCount
	phase := word & mbarPhase
	pending = (pending - min(count, pending)) & mbarCount
	if drop {
		expected -= min(count, expected)
	}
	if pending == 0 {
		phase ^= mbarPhase
		pending = expected
	}
	return phase | pending<<mbarPending | expected
}

// each runs f for the 8 bytes that each thread's first argument points at.
func (b *builder) each(do func(w *warp, f *frame, l int, word []byte)) step {
	address, in, space := b.arg(0), b.Instr, b.Mods.Space
	return func(w *warp, f *frame, mask uint32) {
		a := address.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			word := w.at(f, in, space, l, a[l]+uint64(in.Offset), 8, true)
			if word == nil {
				return
			}
			do(w, f, l, word)
		}
	}
}

// mbarInit is for MbarInit and MbarInval, which leaves an mbarrier of no thread.
func (b *builder) mbarInit() error {
	count := b.arg(1)
	b.i.run = b.each(func(w *warp, f *frame, l int, word []byte) {
		n := count.get(w, f)[l] & mbarCount
		put(word, n<<mbarPending|n)
	})
	return nil
}

func (b *builder) mbarArrive() error {
	count := same(1)
	if len(b.Args) > 1 {
		count = b.arg(1)
	}
	d, drop := b.to(0, ir.B64), b.Op == ir.MbarArriveDrop
	b.i.run = b.each(func(w *warp, f *frame, l int, word []byte) {
		was := get(word)
		put(word, mbarArrived(was, count.get(w, f)[l]&0xffffffff, drop))
		w.progress = true
		if d.slot >= 0 {
			f.regs[d.slot][l] = was
		}
	})
	return nil
}

// mbarTest tells whether a phase is over: that of a state, or the last one of a
// parity.
func (b *builder) mbarTest() error {
	state, d, parity := b.arg(1), b.to(0, ir.Pred), b.Mods.Parity
	b.i.run = b.each(func(w *warp, f *frame, l int, word []byte) {
		w.look(ir.Shared)
		phase := state.get(w, f)[l] & mbarPhase
		if parity {
			phase = state.get(w, f)[l] << 63
		}
		d.setPred(f, everywhere(get(word)&mbarPhase != phase), 1<<l)
	})
	return nil
}

func (b *builder) mbarPending() error {
	state, d := b.arg(0), b.to(0, ir.B32)
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		for l, x := range state.get(w, f) {
			v[l] = x >> mbarPending & mbarCount
		}
		d.set(f, &v, mask)
	}
	return nil
}

// mbarExpect has no effect but that of its access: what copies bring is there
// when they are issued.
func (b *builder) mbarExpect() error {
	b.i.run = b.each(func(*warp, *frame, int, []byte) {})
	return nil
}
