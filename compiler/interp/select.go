// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// pack joins parts to a whole, the first in the lowest bits.
func (b *builder) pack() error {
	n := len(b.Args)
	if n == 0 {
		return errType
	}
	parts := make([]operand, n)
	for k := range parts {
		parts[k] = b.arg(k)
	}
	width := 8 * b.Type.Size() / n
	d := b.to(0, b.Type)
	if b.Type == ir.B128 {
		return b.pack128(parts, width, d)
	}
	m := uint64(1)<<width - 1
	if n == 1 {
		m = ones(b.Type)
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		for k := range parts {
			p := parts[k].get(w, f)
			for l := range v {
				v[l] |= p[l] & m << (width * k)
			}
		}
		d.set(f, &v, mask)
	}
	return nil
}

func (b *builder) pack128(parts []operand, width int, d target) error {
	if d.slot < 0 || width > 64 {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			var v [2]uint64
			for k := range parts {
				at := width * k
				v[at/64] |= parts[k].get(w, f)[l] << (64 - width) >> (64 - width) << (at % 64)
			}
			f.regs[d.slot][l], f.regs[d.slot+1][l] = v[0], v[1]
		}
	}
	return nil
}

// unpack is the inverse of pack.
func (b *builder) unpack() error {
	n := len(b.Dst)
	if n == 0 || b.Type == ir.B128 && n == 1 {
		return errType
	}
	width := 8 * b.Type.Size() / n
	a := b.arg(0)
	parts := make([]target, n)
	for k := range parts {
		parts[k] = b.to(k, ir.B64)
		parts[k].mask = ^uint64(0) >> (64 - width)
	}
	wide := b.Type == ir.B128
	if wide && a.slot < 0 {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		from := *a.get(w, f) // a part may be the whole's register
		var upper lanes
		if wide {
			upper = f.regs[a.slot+1]
		}
		for k := range parts {
			var v lanes
			at := width * k
			src := &from
			if at >= 64 {
				src = &upper
			}
			for l := range v {
				v[l] = src[l] >> (at % 64)
			}
			parts[k].set(f, &v, mask)
		}
	}
	return nil
}

// compares runs a comparison for the threads of mask.
func compares(cmp func(a, b uint64) bool, x, y *lanes, mask uint32) uint32 {
	var got uint32
	for m := mask; m != 0; m &= m - 1 {
		if l := bits.TrailingZeros32(m); cmp(x[l], y[l]) {
			got |= 1 << l
		}
	}
	return got
}

// setp has the comparison and its inverse as results, each combined with the
// third argument; of a pair, the comparisons of the two halves.
func (b *builder) setp() error {
	x, y, third, op := b.arg(0), b.arg(1), b.pred(2), b.Mods.Bool
	p, q := b.to(0, ir.Pred), b.to(1, ir.Pred)
	elem, pair := element(b.Type)
	cmp := compare(elem, b.Mods.Cmp, b.Mods.FTZ)
	if cmp == nil {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		u, v, t := x.get(w, f), y.get(w, f), third.get(f)
		got := compares(cmp, u, v, mask)
		other := ^got
		if pair {
			other = compares(func(a, b uint64) bool { return cmp(a>>16, b>>16) }, u, v, mask)
		}
		p.setPred(f, combine(op, got, t), mask)
		q.setPred(f, combine(op, other, t), mask)
	}
	return nil
}

// set has the comparison as a number: all ones, or 1.0.
func (b *builder) set() error {
	x, y, third, op := b.arg(0), b.arg(1), b.pred(2), b.Mods.Bool
	d := b.to(0, b.Type)
	elem, pair := element(b.Type2)
	cmp := compare(elem, b.Mods.Cmp, b.Mods.FTZ)
	to, pairs := element(b.Type)
	if cmp == nil || pairs && !pair {
		return errType
	}
	yes := ones(to)
	if f := formatOf(to); f != nil {
		yes = uint64(f.bias()) << f.frac
	}
	half := yes
	if pair && !pairs {
		half = yes & 0xffff
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		u, v, t := x.get(w, f), y.get(w, f), third.get(f)
		low := combine(op, compares(cmp, u, v, mask), t)
		var high uint32
		if pair {
			high = combine(op, compares(func(a, b uint64) bool { return cmp(a>>16, b>>16) }, u, v, mask), t)
		}
		var r lanes
		for l := range r {
			r[l] = half*uint64(low>>l&1) | half<<16*uint64(high>>l&1)
		}
		d.set(f, &r, mask)
	}
	return nil
}

// selp has the first argument where the third is true, and the second elsewhere.
func (b *builder) selp() error {
	p := b.pred(2)
	if b.Type == ir.Pred {
		x, y, d := b.pred(0), b.pred(1), b.to(0, ir.Pred)
		b.i.run = func(_ *warp, f *frame, mask uint32) {
			q := p.get(f)
			d.setPred(f, x.get(f)&q|y.get(f)&^q, mask)
		}
		return nil
	}
	x, y, d := b.arg(0), b.arg(1), b.to(0, b.Type)
	if b.Type == ir.B128 {
		return errType
	}
	m := ones(b.Type)
	b.i.run = func(w *warp, f *frame, mask uint32) {
		u, v, q := x.get(w, f), y.get(w, f), p.get(f)
		var r lanes
		for l := range r {
			if q>>l&1 != 0 {
				r[l] = u[l] & m
			} else {
				r[l] = v[l] & m
			}
		}
		d.set(f, &r, mask)
	}
	return nil
}

func (b *builder) testp() error {
	x, d, is := b.arg(0), b.to(0, ir.Pred), test(b.Type, b.Mods.Test)
	if is == nil {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		u := x.get(w, f)
		d.setPred(f, compares(func(a, _ uint64) bool { return is(a) }, u, u, mask), mask)
	}
	return nil
}
