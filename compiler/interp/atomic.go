// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// reduction returns what an atomic operation makes of what is in memory and of
// its operands, or nil.
func reduction(in *ir.Instr) func(was, x, y uint64) uint64 {
	t, m := in.Type, ones(in.Type)
	as := func(op ir.Op) func(was, x, y uint64) uint64 {
		one := &ir.Instr{Op: op, Type: t, Args: make([]ir.Operand, 2), Mods: ir.Mods{FTZ: in.Mods.FTZ, Round: in.Mods.Round}}
		f := scalarOf(one)
		if f == nil {
			return nil
		}
		return func(was, x, _ uint64) uint64 { return f(was, x, 0, 0) }
	}
	switch in.Mods.Atom {
	case ir.AtomAdd:
		return as(ir.Add)
	case ir.AtomMin:
		return as(ir.Min)
	case ir.AtomMax:
		return as(ir.Max)
	case ir.AtomAnd:
		return func(was, x, _ uint64) uint64 { return was & x & m }
	case ir.AtomOr:
		return func(was, x, _ uint64) uint64 { return (was | x) & m }
	case ir.AtomXor:
		return func(was, x, _ uint64) uint64 { return (was ^ x) & m }
	case ir.AtomExch:
		return func(_, x, _ uint64) uint64 { return x & m }
	case ir.AtomCas:
		return func(was, x, y uint64) uint64 {
			if was == x&m {
				return y & m
			}
			return was
		}
	case ir.AtomInc:
		return func(was, x, _ uint64) uint64 {
			if was >= x&m {
				return 0
			}
			return was + 1
		}
	case ir.AtomDec:
		return func(was, x, _ uint64) uint64 {
			if was == 0 || was > x&m {
				return x & m
			}
			return was - 1
		}
	}
	return nil
}

// atom is for Atom and Red. Threads of a warp come one after the other, in the
// order of their lanes.
func (b *builder) atom() error {
	if b.Type == ir.B128 {
		return b.atom128()
	}
	n, size := b.vector()
	op, in := reduction(b.Instr), b.Instr
	if op == nil || size == 0 {
		return errType
	}
	address := b.arg(0)
	first, second := make([]operand, n), make([]operand, n)
	to := make([]target, n)
	for k := range n {
		first[k], second[k] = b.arg(1+k), none
		if n == 1 {
			second[k] = b.arg(2)
		}
		to[k] = b.to(k, b.Type)
	}
	space, watch := b.Mods.Space, b.Op == ir.Atom
	b.i.run = func(w *warp, f *frame, mask uint32) {
		a := *address.get(w, f)
		if watch {
			w.look(space)
		}
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			mem := w.at(f, in, space, l, a[l]+uint64(in.Offset), n*size, true)
			if mem == nil {
				return
			}
			for k := range to {
				part := mem[k*size : (k+1)*size]
				was := get(part)
				put(part, op(was, first[k].get(w, f)[l], second[k].get(w, f)[l]))
				if d := &to[k]; d.slot >= 0 {
					f.regs[d.slot][l] = d.fit(was)
				}
			}
		}
	}
	return nil
}

// atom128 is for exch and cas of 16 bytes.
func (b *builder) atom128() error {
	cas := b.Mods.Atom == ir.AtomCas
	if !cas && b.Mods.Atom != ir.AtomExch {
		return errType
	}
	address, x, y, d, in := b.arg(0), b.arg(1), b.arg(2), b.to(0, ir.B128), b.Instr
	if !cas {
		x, y = y, x // exchange is with the first operand, whatever was there
	}
	if y.slot < 0 || cas && x.slot < 0 {
		return errType
	}
	b.i.run = func(w *warp, f *frame, mask uint32) {
		a := *address.get(w, f)
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			mem := w.at(f, in, in.Mods.Space, l, a[l]+uint64(in.Offset), 16, true)
			if mem == nil {
				return
			}
			lo, hi := get(mem[:8]), get(mem[8:])
			if !cas || lo == f.regs[x.slot][l] && hi == f.regs[x.slot+1][l] {
				put(mem[:8], f.regs[y.slot][l])
				put(mem[8:], f.regs[y.slot+1][l])
			}
			if d.slot >= 0 {
				f.regs[d.slot][l], f.regs[d.slot+1][l] = lo, hi
			}
		}
	}
	return nil
}
