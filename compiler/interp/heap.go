// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Where malloc's memory lies, and how much there is of it: as much as a CUDA
// program has if it asks for nothing else (cudaLimitMallocHeapSize).
const (
	heapBase = uint64(1) << 55
	heapSize = 8 << 20
)

// heap is the memory that programs get with malloc. It lasts as long as Memory:
// another launch may free it.
type heap struct {
	next uint64
	used uint64
	size map[uint64]uint64
}

// alloc returns the address of n zeroed bytes, or 0.
func (m *Memory) alloc(n uint64) uint64 {
	h := &m.heap
	if n == 0 || n > heapSize-h.used {
		return 0
	}
	if h.size == nil {
		h.next, h.size = heapBase, map[uint64]uint64{}
	}
	addr := h.next
	if m.Map(addr, make([]byte, n)) != nil {
		return 0
	}
	h.next += (n+15)&^15 + 16 // a gap, so that going too far is noticed
	h.used += n
	h.size[addr] = n
	return addr
}

// free tells whether alloc has returned this address, and it is not free yet.
func (m *Memory) free(addr uint64) bool {
	n, ok := m.heap.size[addr]
	if !ok {
		return false
	}
	delete(m.heap.size, addr)
	m.heap.used -= n
	return m.Unmap(addr) == nil
}

func (b *builder) malloc() error {
	size, d := b.arg(0), b.to(0, ir.B64)
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v lanes
		n := size.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			v[l] = w.Memory.alloc(n[l])
		}
		d.set(f, &v, mask)
	}
	return nil
}

func (b *builder) free() error {
	address, in := b.arg(0), b.Instr
	b.i.run = func(w *warp, f *frame, mask uint32) {
		a := address.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			if a[l] != 0 && !w.Memory.free(a[l]) {
				w.failAt(OutOfBounds, f, in, ir.Generic, l, a[l])
				return
			}
		}
	}
	return nil
}
