// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// elements finds where a fragment's elements are in memory. Those smaller than a
// byte share one: shift tells where in it.
type elements struct {
	*fragment
	address, stride operand
	in              *ir.Instr
}

func (b *builder) elements() (*elements, error) {
	f, err := b.fragment(b.Mods.Frag, b.Type)
	if err != nil {
		return nil, err
	}
	e := &elements{fragment: f, address: b.arg(0), stride: b.arg(1), in: b.Instr}
	return e, nil
}

// at is the memory of element e of lane l, or nil after a fault.
func (e *elements) memory(w *warp, f *frame, l, n int, write bool) (mem []byte, shift uint64) {
	_, row, col := e.at(l, n)
	stride := e.stride.get(w, f)[l] & 0xffffffff
	i := uint64(row)*stride + uint64(col)
	if e.in.Mods.ALayout == ir.Col {
		i = uint64(col)*stride + uint64(row)
	}
	bit := i * uint64(e.bits)
	size := max(1, e.bits/8)
	addr := e.address.get(w, f)[l] + uint64(e.in.Offset) + bit/8
	return w.at(f, e.in, e.in.Mods.Space, l, addr, size, write), bit % 8
}

func (b *builder) wmmaLoad() error {
	e, err := b.elements()
	if err != nil {
		return err
	}
	to := make([]target, e.regs)
	for r := range to {
		t := ir.B32
		if e.bits == 64 {
			t = ir.B64
		}
		to[r] = b.to(r, t)
	}
	b.meets(-1, func(w *warp, f *frame, mask uint32) {
		values := make([]lanes, len(to))
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			for n := range e.regs * e.per {
				mem, shift := e.memory(w, f, l, n, false)
				if mem == nil {
					return
				}
				x := get(mem) >> shift & (^uint64(0) >> (64 - e.bits))
				values[n/e.per][l] |= x << (n % e.per * e.bits)
			}
		}
		for r := range to {
			to[r].set(f, &values[r], mask)
		}
	})
	return nil
}

func (b *builder) wmmaStore() error {
	e, err := b.elements()
	if err != nil {
		return err
	}
	from := make([]operand, e.regs)
	for r := range from {
		from[r] = b.arg(2 + r)
	}
	b.meets(-1, func(w *warp, f *frame, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			for n := range e.regs * e.per {
				mem, _ := e.memory(w, f, l, n, true)
				if mem == nil {
					return
				}
				put(mem, from[n/e.per].get(w, f)[l]>>(n%e.per*e.bits))
			}
		}
	})
	return nil
}
