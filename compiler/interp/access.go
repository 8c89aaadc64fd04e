// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// at returns the bytes that a thread accesses, or nil after a fault. write tells
// that it will change them.
func (w *warp) at(f *frame, in *ir.Instr, space ir.Space, l int, addr uint64, size int, write bool) []byte {
	if addr&uint64(size-1) != 0 && size&(size-1) == 0 {
		w.failAt(Misaligned, f, in, space, l, addr)
		return nil
	}
	given, where := addr, space
	if space == ir.Generic {
		where, addr = untag(addr)
	}
	var mem []byte
	switch where {
	case ir.Global, ir.Const:
		if b := w.Memory.At(addr, size); b != nil {
			return b
		}
		w.failAt(OutOfBounds, f, in, space, l, given)
		return nil
	case ir.Shared:
		mem = w.shared
	case ir.Local:
		mem = w.local[l]
	case ir.Param:
		mem = w.Params
		if addr >= frameParams {
			mem, addr = w.local[l], addr-frameParams
		} else if write {
			mem = nil // the launch's parameters can only be read
		}
	}
	if n := uint64(len(mem)); addr > n || uint64(size) > n-addr {
		w.failAt(OutOfBounds, f, in, space, l, given)
		return nil
	}
	return mem[addr : addr+uint64(size) : addr+uint64(size)]
}

func (w *warp) failAt(kind FaultKind, f *frame, in *ir.Instr, space ir.Space, l int, addr uint64) {
	w.fail(kind, f, in, 1<<l, "")
	w.fault.Space, w.fault.Address = space, addr
}

// untag tells which space a generic address is in, and its address there.
func untag(addr uint64) (ir.Space, uint64) {
	switch addr & ir.WindowMask {
	case 0:
		return ir.Global, addr
	case ir.SharedWindow:
		return ir.Shared, addr &^ ir.WindowMask
	case ir.LocalWindow:
		return ir.Local, addr &^ ir.WindowMask
	case ir.ParamWindow:
		return ir.Param, addr &^ ir.WindowMask
	}
	return ir.Global, addr // where nothing is mapped
}

// window is what a space's addresses have as generic ones.
func window(s ir.Space) uint64 {
	switch s {
	case ir.Shared:
		return ir.SharedWindow
	case ir.Local:
		return ir.LocalWindow
	case ir.Param:
		return ir.ParamWindow
	}
	return 0
}

// get and put are little endian numbers of b's length, 1 to 8 bytes.
func get(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(le.Uint16(b))
	case 4:
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}

func put(b []byte, x uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(x)
	case 2:
		le.PutUint16(b, uint16(x))
	case 4:
		le.PutUint32(b, uint32(x))
	default:
		le.PutUint64(b, x)
	}
}

// look notes that a program looks at what other threads write meanwhile.
func (w *warp) look(space ir.Space) {
	w.looks++
	if space != ir.Shared {
		w.polls++
	}
}

// vector is the number of elements of an access and the bytes of each; the
// halves of B128 count as elements.
func (b *builder) vector() (n, size int) {
	n, size = max(1, int(b.Mods.Vec)), b.Type.Size()
	if size == 16 {
		n, size = 2*n, 8
	}
	return n, size
}

func (b *builder) load() error {
	n, size := b.vector()
	address, in := b.arg(0), b.Instr
	to := make([]target, n)
	if b.Type == ir.B128 {
		for k := range to {
			to[k] = b.to(k/2, ir.B128)
			to[k].slot += int32(k % 2)
			to[k].mask = ^uint64(0)
		}
	} else {
		for k := range to {
			to[k] = b.to(k, b.Type)
		}
	}
	if len(b.Dst) == 0 || size == 0 {
		return errType
	}
	space, whole, watch := b.Mods.Space, n*size, b.Mods.Volatile || b.Mods.Order != ir.Weak
	b.i.run = func(w *warp, f *frame, mask uint32) {
		a := *address.get(w, f) // a result may be the address' register
		if watch {
			w.look(space)
		}
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			mem := w.at(f, in, space, l, a[l]+uint64(in.Offset), whole, false)
			if mem == nil {
				return
			}
			for k := range to {
				if d := &to[k]; d.slot >= 0 {
					f.regs[d.slot][l] = d.fit(get(mem[k*size : (k+1)*size]))
				}
			}
		}
	}
	return nil
}

func (b *builder) store() error {
	n, size := b.vector()
	address, in := b.arg(0), b.Instr
	from := make([]operand, n)
	for k := range from {
		if b.Type != ir.B128 {
			from[k] = b.arg(1 + k)
			continue
		}
		from[k] = b.arg(1 + k/2)
		if from[k].slot >= 0 {
			from[k].slot += int32(k % 2)
		} else if k%2 != 0 {
			from[k] = none
		}
	}
	if len(b.Args) < 2 || size == 0 {
		return errType
	}
	space, whole := b.Mods.Space, n*size
	b.i.run = func(w *warp, f *frame, mask uint32) {
		a := address.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			mem := w.at(f, in, space, l, a[l]+uint64(in.Offset), whole, true)
			if mem == nil {
				return
			}
			for k := range from {
				put(mem[k*size:(k+1)*size], from[k].get(w, f)[l])
			}
		}
	}
	return nil
}

// cvta is for both directions.
func (b *builder) cvta() error {
	a, d, add := b.arg(0), b.to(0, ir.B64), window(b.Mods.Space)
	if b.Op == ir.CvtaTo {
		add = -add
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		for l, x := range a.get(w, f) {
			v[l] = x + add
		}
		d.set(f, &v, mask)
	}
	return nil
}

func (b *builder) isspacep() error {
	a, d, space := b.arg(0), b.to(0, ir.Pred), b.Mods.Space
	b.i.run = func(w *warp, f *frame, mask uint32) {
		v := a.get(w, f)
		d.setPred(f, compares(func(x, _ uint64) bool {
			s, _ := untag(x)
			return s == space
		}, v, v, mask), mask)
	}
	return nil
}

// Memory of a function that its own instructions get: on top of the thread's
// local memory, until the function returns or restores the stack.

func (b *builder) alloca() error {
	size, d, in := b.arg(0), b.to(0, ir.B64), b.Instr
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		n := size.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			v[l] = w.top[l]
			if !w.grow(l, n[l]) {
				w.fail(StackOverflow, f, in, m, "")
				return
			}
		}
		d.set(f, &v, mask)
	}
	return nil
}

func (b *builder) stackSave() error {
	d := b.to(0, ir.B64)
	b.i.run = func(w *warp, f *frame, mask uint32) { d.set(f, &w.top, mask) }
	return nil
}

func (b *builder) stackRestore() error {
	a, in := b.arg(0), b.Instr
	b.i.run = func(w *warp, f *frame, mask uint32) {
		v := a.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			if v[l] > w.top[l] {
				w.fail(StackOverflow, f, in, m, "the stack is restored to where it never was")
				return
			}
			w.top[l] = v[l]
		}
	}
	return nil
}
