// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// fragment is how a matrix lies in the registers of a warp.
type fragment struct {
	rows, cols int
	elem       ir.Type
	regs       int // of each thread
	per        int // elements in a register
	bits       int // of an element
	// at is where element e of lane l is in the matrix, and of which of the
	// products that an instruction computes at once.
	at func(l, e int) (batch, row, col int)
}

// fragment returns the layout of a part of an Mma, WmmaMma, WmmaLoad or WmmaStore.
func (b *builder) fragment(part ir.Frag, t ir.Type) (*fragment, error) {
	f, err := ir.LayoutFragment(b.Instr, part, t)
	if err != nil {
		return nil, err
	}
	return &fragment{rows: f.Rows, cols: f.Cols, elem: t, regs: f.Regs, per: f.Per, bits: f.Bits, at: f.At}, nil
}

// batches is the most products that an instruction computes at once.
const batches = 4

// gather makes matrices of what is in registers: batch, row, column.
func gather[T any](f *fragment, regs []operand, w *warp, fr *frame, decode func(uint64) T) []T {
	m := make([]T, batches*f.rows*f.cols)
	for r := range regs {
		v := regs[r].get(w, fr)
		for l := range v {
			for in := range f.per {
				batch, row, col := f.at(l, r*f.per+in)
				m[(batch*f.rows+row)*f.cols+col] = decode(v[l] >> (in * f.bits) & (^uint64(0) >> (64 - f.bits)))
			}
		}
	}
	return m
}

// scatter is the inverse of gather, for the threads of mask.
func scatter[T any](f *fragment, regs []target, fr *frame, mask uint32, m []T, encode func(T) uint64) {
	for r := range regs {
		var v lanes
		for l := range v {
			for in := range f.per {
				batch, row, col := f.at(l, r*f.per+in)
				v[l] |= encode(m[(batch*f.rows+row)*f.cols+col]) << (in * f.bits)
			}
		}
		regs[r].set(fr, &v, mask)
	}
}

// matrixProduct is an Mma made ready.
type matrixProduct struct {
	a, b, c, d          *fragment
	regsA, regsB, regsC []operand
	regsD               []target
	m, n, k, batches    int
}

// multiply computes d = a*b + c: for each element the products are added to c one
// after the other, in the order of k.
func multiply[T any](p *matrixProduct, w *warp, f *frame, mask uint32, decode [3]func(uint64) T, encode func(T) uint64, fma func(a, b, c T) T) {
	a := gather(p.a, p.regsA, w, f, decode[0])
	b := gather(p.b, p.regsB, w, f, decode[1])
	c := gather(p.c, p.regsC, w, f, decode[2])
	for batch := range p.batches {
		for i := range p.m {
			row := a[(batch*p.m+i)*p.k:][:p.k]
			for j := range p.n {
				sum := &c[(batch*p.m+i)*p.n+j]
				for k, x := range row {
					*sum = fma(x, b[(batch*p.k+k)*p.n+j], *sum)
				}
			}
		}
	}
	scatter(p.d, p.regsD, f, mask, c, encode)
}

// mma is for Mma and WmmaMma.
func (b *builder) mma() error {
	p := &matrixProduct{m: int(b.Mods.Shape.M), n: int(b.Mods.Shape.N), k: int(b.Mods.Shape.K), batches: 1}
	elems := b.Mods.Elems
	if b.Op == ir.Mma && b.Mods.Shape == (ir.Shape{M: 8, N: 8, K: 4}) && elems[1] != ir.F64 {
		p.batches = batches
	}
	next := 0
	for n, part := range []ir.Frag{ir.FragD, ir.FragA, ir.FragB, ir.FragC} {
		f, err := b.fragment(part, elems[n])
		if err != nil {
			return err
		}
		var regs []operand
		if part != ir.FragD {
			for range f.regs {
				regs = append(regs, b.arg(next))
				next++
			}
		}
		switch part {
		case ir.FragA:
			p.a, p.regsA = f, regs
		case ir.FragB:
			p.b, p.regsB = f, regs
		case ir.FragC:
			p.c, p.regsC = f, regs
		default:
			p.d = f
			for r := range f.regs {
				_, reg := ir.Fragment(b.Op, b.Mods.Shape, part, elems[n])
				p.regsD = append(p.regsD, b.to(r, reg))
			}
		}
	}
	run := b.multiplication(p)
	if run == nil {
		return errType
	}
	b.meets(-1, run)
	return nil
}

// multiplication chooses the arithmetic: whole numbers, double, or single
// precision, in which products of smaller types are exact.
func (b *builder) multiplication(p *matrixProduct) step {
	d, a, bt, c := b.Mods.Elems[0], b.Mods.Elems[1], b.Mods.Elems[2], b.Mods.Elems[3]
	switch {
	case a == ir.F64:
		decode := [3]func(uint64) float64{f64, f64, f64}
		fma := math.FMA
		if r := b.Mods.Round; !nearest(r) {
			fma = func(x, y, z float64) float64 { return f64(binary64.fma(bits64(x), bits64(y), bits64(z), r)) }
		}
		return func(w *warp, f *frame, mask uint32) { multiply(p, w, f, mask, decode, bits64, fma) }
	case d == ir.S32:
		decode := [3]func(uint64) int64{wholeNumber(a), wholeNumber(bt), wholeNumber(c)}
		return func(w *warp, f *frame, mask uint32) {
			multiply(p, w, f, mask, decode, b.wholeResult(), b.wholeProduct(a))
		}
	}
	decode := [3]func(uint64) float32{singleNumber(a), singleNumber(bt), singleNumber(c)}
	encode := b.singleResult(d)
	if decode[0] == nil || decode[1] == nil || decode[2] == nil || encode == nil {
		return nil
	}
	fma := func(x, y, z float32) float32 { return f32(fma32(bits32(x), bits32(y), bits32(z), 0)) }
	if a == ir.F16 {
		fma = func(x, y, z float32) float32 { return float32(x*y) + z } // 22 bits
	}
	return func(w *warp, f *frame, mask uint32) { multiply(p, w, f, mask, decode, encode, fma) }
}

func wholeNumber(t ir.Type) func(uint64) int64 {
	shift := 64 - ir.ElementBits(t)
	if t.Signed() {
		return func(x uint64) int64 { return int64(x<<shift) >> shift }
	}
	return func(x uint64) int64 { return int64(x) }
}

// wholeProduct multiplies and adds; of single bits it is their conjunction or
// their difference, counted.
func (b *builder) wholeProduct(t ir.Type) func(x, y, z int64) int64 {
	switch {
	case t == ir.B1 && b.Mods.Atom == ir.AtomAnd:
		return func(x, y, z int64) int64 { return z + (x & y) }
	case t == ir.B1:
		return func(x, y, z int64) int64 { return z + (x ^ y) }
	}
	return func(x, y, z int64) int64 { return z + x*y }
}

func (b *builder) wholeResult() func(int64) uint64 {
	if b.Mods.Sat {
		return clamp32
	}
	return func(x int64) uint64 { return uint64(uint32(x)) }
}

func singleNumber(t ir.Type) func(uint64) float32 {
	switch t {
	case ir.F32:
		return f32
	case ir.TF32:
		return func(x uint64) float32 { return f32(x &^ (1<<13 - 1)) }
	case ir.BF16:
		return func(x uint64) float32 { return f32(x << 16) }
	}
	var f *format
	switch t {
	case ir.F16:
		f = binary16
	case ir.E4M3x2:
		f = e4m3
	case ir.E5M2x2:
		f = e5m2
	default:
		return nil
	}
	// All of them: there are few.
	table := make([]float32, 1<<ir.ElementBits(t))
	for x := range table {
		table[x] = f32(f.convert(uint64(x), binary32, ir.RN))
	}
	return func(x uint64) float32 { return table[x] }
}

func (b *builder) singleResult(t ir.Type) func(float32) uint64 {
	f := formatOf(t)
	if f == nil || f == binary64 {
		return nil
	}
	finite := b.Mods.Sat
	return func(x float32) uint64 {
		if x != x {
			return f.nan
		}
		y := binary32.convert(bits32(x), f, ir.RN)
		if finite && f.isInf(y) {
			y = y&f.sign() | f.top()
		}
		return y
	}
}

// rowBytes is a row of an 8x8 matrix of 16 bits.
const rowBytes = 16

// rows reads or writes 8x8 matrices of 16 bits, whose rows the lanes' addresses
// point at: eight lanes for each matrix.
func (b *builder) rows(do func(w *warp, f *frame, mask uint32, row func(matrix, i int) []byte)) (step, error) {
	if s := b.Mods.Shape; b.Type != ir.B16 || s != (ir.Shape{}) && (s.M != 8 || s.N != 8) {
		return nil, errType
	}
	address, in, n, write := b.arg(0), b.Instr, max(1, int(b.Mods.Vec)), b.Op == ir.Stmatrix
	return func(w *warp, f *frame, mask uint32) {
		a := *address.get(w, f)
		rows := make([][]byte, 8*n)
		for l := range rows {
			rows[l] = w.at(f, in, in.Mods.Space, l, a[l]+uint64(in.Offset), rowBytes, write)
			if rows[l] == nil {
				return
			}
		}
		do(w, f, mask, func(matrix, i int) []byte { return rows[8*matrix+i] })
	}, nil
}

// place is where the two elements of lane l are in an 8x8 matrix.
func place(l int, trans bool) (row, col [2]int) {
	for k := range 2 {
		row[k], col[k] = l/4, l%4*2+k
		if trans {
			row[k], col[k] = col[k], row[k]
		}
	}
	return row, col
}

func (b *builder) ldmatrix() error {
	n, trans := max(1, int(b.Mods.Vec)), b.Mods.Trans
	to := make([]target, n)
	for k := range to {
		to[k] = b.to(k, ir.B32)
	}
	run, err := b.rows(func(_ *warp, f *frame, mask uint32, row func(matrix, i int) []byte) {
		for m := range to {
			var v lanes
			for l := range v {
				r, c := place(l, trans)
				v[l] = uint64(le.Uint16(row(m, r[0])[2*c[0]:])) | uint64(le.Uint16(row(m, r[1])[2*c[1]:]))<<16
			}
			to[m].set(f, &v, mask)
		}
	})
	b.meets(-1, run)
	return err
}

func (b *builder) stmatrix() error {
	n, trans := max(1, int(b.Mods.Vec)), b.Mods.Trans
	from := make([]operand, n)
	for k := range from {
		from[k] = b.arg(1 + k)
	}
	run, err := b.rows(func(w *warp, f *frame, mask uint32, row func(matrix, i int) []byte) {
		for m := range from {
			v := from[m].get(w, f)
			for left := mask; left != 0; left &= left - 1 {
				l := bits.TrailingZeros32(left)
				r, c := place(l, trans)
				le.PutUint16(row(m, r[0])[2*c[0]:], uint16(v[l]))
				le.PutUint16(row(m, r[1])[2*c[1]:], uint16(v[l]>>16))
			}
		}
	})
	b.meets(-1, run)
	return err
}

// movmatrix transposes an 8x8 matrix that lies in the warp's registers.
func (b *builder) movmatrix() error {
	a, d := b.arg(0), b.to(0, ir.B32)
	b.meets(-1, func(w *warp, f *frame, mask uint32) {
		from := a.get(w, f)
		var v lanes
		for l := range v {
			r, c := place(l, true)
			for k := range 2 {
				v[l] |= from[r[k]*4+c[k]/2] >> (16 * (c[k] % 2)) & 0xffff << (16 * k)
			}
		}
		d.set(f, &v, mask)
	})
	return nil
}
