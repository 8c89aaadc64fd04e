// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import "fmt"

// FragmentLayout is how a matrix lies in the registers of a warp.
type FragmentLayout struct {
	Rows, Cols int
	Regs       int  // of each thread
	Reg        Type // a register's
	Per        int  // elements in a register, the first in the lowest bits
	Bits       int  // of an element
	// Batches is how many matrices there are: m8n8k4 computes four at once.
	Batches int
	// At is where element e of lane l is: in which matrix, row and column.
	At func(l, e int) (batch, row, col int)
}

// ElementBits is the size of a matrix' element in its register.
func ElementBits(t Type) int {
	switch t {
	case E4M3x2, E5M2x2: // pairs elsewhere, single ones here
		return 8
	case S4, U4:
		return 4
	case B1:
		return 1
	}
	return 8 * t.Size()
}

// LayoutFragment returns the layout of a part of an Mma, WmmaMma, WmmaLoad or
// WmmaStore, of elements of type t. PTX leaves that of wmma open; docs/ir.md says
// what ours is.
func LayoutFragment(in *Instr, part Frag, t Type) (*FragmentLayout, error) {
	s := in.Mods.Shape
	regs, reg := Fragment(in.Op, s, part, t)
	f := &FragmentLayout{Rows: int(s.M), Cols: int(s.N), Regs: regs, Reg: reg, Bits: ElementBits(t), Batches: 1}
	switch part {
	case FragA:
		f.Cols = int(s.K)
	case FragB:
		f.Rows = int(s.K)
	}
	if regs == 0 || f.Bits == 0 {
		return nil, fmt.Errorf("no matrix of %s of this shape", t)
	}
	f.Per = 8 * reg.Size() / f.Bits
	switch {
	case in.Op != Mma:
		f.At = wmmaLayout(f)
	case s == (Shape{M: 8, N: 8, K: 4}) && reg != B64:
		f.Batches = 4
		f.At = quadLayout(part, t, in.Mods)
	default:
		f.At = mmaLayout(part, f)
	}
	for l := range WarpSize {
		for e := range f.Regs * f.Per {
			if _, row, col := f.At(l, e); row >= f.Rows || col >= f.Cols {
				return nil, fmt.Errorf("a matrix of %s of this shape has no known layout", t)
			}
		}
	}
	return f, nil
}

// mmaLayout is that of PTX ISA 9.7.14.5: a quad of threads has a row of a, a
// column of b, and two neighbors of each row of c. All shapes and types follow
// from the number of elements in a register.
func mmaLayout(part Frag, f *FragmentLayout) func(l, e int) (int, int, int) {
	per := f.Per
	switch part {
	case FragA:
		tall := f.Rows / 8
		return func(l, e int) (int, int, int) {
			reg, in := e/per, e%per
			return 0, l/4 + 8*(reg%tall), l%4*per + in + reg/tall*4*per
		}
	case FragB:
		return func(l, e int) (int, int, int) {
			return 0, l%4*per + e%per + e/per*4*per, l / 4
		}
	}
	return func(l, e int) (int, int, int) { return 0, l/4 + e/2*8, l%4*2 + e%2 }
}

// quadLayout is that of m8n8k4 of half precision (ISA 9.7.14.5.1): four products,
// each of the threads of two quads, 16 lanes apart.
func quadLayout(part Frag, t Type, m Mods) func(l, e int) (int, int, int) {
	return func(l, e int) (int, int, int) {
		batch, half := l/4%4, l/16*4
		switch {
		case part == FragA && m.ALayout == Col, part == FragB && m.BLayout != Col:
			row, col := e+half, l%4
			if part == FragB {
				row, col = col, row
			}
			return batch, row, col
		case part == FragA:
			return batch, l%4 + half, e
		case part == FragB:
			return batch, e, l%4 + half
		case t == F32:
			return batch, l&1 + e&2 + half, e&4 + l&2 + e&1
		}
		return batch, l%4 + half, e
	}
}

// wmmaLayout is ours. The elements lie row by row, as many in each lane as fit;
// where there is room for more, they repeat.
func wmmaLayout(f *FragmentLayout) func(l, e int) (int, int, int) {
	return func(l, e int) (int, int, int) {
		i := (l*f.Regs*f.Per + e) % (f.Rows * f.Cols)
		return 0, i / f.Cols, i % f.Cols
	}
}
