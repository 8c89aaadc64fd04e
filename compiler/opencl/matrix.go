// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// matrixExchange describes an operation on matrices over a warp: each thread says
// what it has of them, and computes the elements that it gets.
func (e *emitter) matrixExchange(in *ir.Instr) *exchange {
	switch in.Op {
	case ir.Ldmatrix, ir.Stmatrix:
		return e.matrixRows(in)
	case ir.Movmatrix:
		return &exchange{words: []string{e.bits(in.Args[0], ir.B32)}, result: func() {
			e.line("const uint l = hg_t & 31, i = l / 4, k = l %% 4 * 2;")
			e.set(in.Dst[0], ir.B32, "(w[(k * 4 + i / 2) * hg_w] >> 16 * (i & 1) & 0xffff) | (w[(k * 4 + 4 + i / 2) * hg_w] >> 16 * (i & 1) & 0xffff) << 16")
		}}
	}
	return e.product3(in)
}

// matrixRows is ldmatrix or stmatrix: lane 8m+i has the address of row i of
// matrix m.
func (e *emitter) matrixRows(in *ir.Instr) *exchange {
	if s := in.Mods.Shape; in.Type != ir.B16 || s != (ir.Shape{}) && (s.M != 8 || s.N != 8) {
		e.fail("%s of %s", in.Op, in.Type)
		return nil
	}
	x := &exchange{words: []string{"(uint)" + paren(e.address(in))}}
	element := func(m, k int) string {
		row, col := "i", fmt.Sprintf("(k + %d)", k)
		if in.Mods.Trans {
			row, col = col, row
		}
		return fmt.Sprintf("*(__local hg_b16 *)(hg_shared + w[(%d + %s) * hg_w] + 2 * %s)", 8*m, row, col)
	}
	x.result = func() {
		e.line("const uint l = hg_t & 31, i = l / 4, k = l %% 4 * 2;")
		for m := range max(1, int(in.Mods.Vec)) {
			if in.Op == ir.Stmatrix {
				v := e.bits(in.Args[1+m], ir.B32)
				e.line("%s = (ushort)%s;", element(m, 0), v)
				e.line("%s = (ushort)(%s >> 16);", element(m, 1), v)
			} else {
				e.line("uint v%d = %s | (uint)%s << 16;", m, element(m, 0), element(m, 1))
			}
		}
		for m := range in.Dst {
			e.set(in.Dst[m], ir.B32, fmt.Sprintf("v%d", m))
		}
	}
	return x
}

// layoutTables makes two tables of a fragment: where each lane's elements are in
// the matrices (forth), and for each element of those the lane, and which of its
// elements it is (back).
func (e *emitter) layoutTables(name string, f *ir.FragmentLayout) (forth, back string) {
	n := f.Regs * f.Per
	place := make([]int, ir.WarpSize*n)
	owner := make([]int, f.Batches*f.Rows*f.Cols)
	for l := range ir.WarpSize {
		for k := range n {
			batch, row, col := f.At(l, k)
			at := (batch*f.Rows+row)*f.Cols + col
			place[l*n+k] = at
			owner[at] = l<<8 | k
		}
	}
	table := func(name string, values []int) string {
		return e.made.add(name, func() string {
			var text strings.Builder
			fmt.Fprintf(&text, "__constant ushort %s[%d] = {", name, len(values))
			for i, v := range values {
				if i%16 == 0 {
					text.WriteString("\n\t")
				}
				fmt.Fprintf(&text, "%d, ", v)
			}
			return strings.TrimRight(text.String(), " ") + "\n};\n"
		})
	}
	return table("hg_forth_"+name, place), table("hg_back_"+name, owner)
}

// fragmentName is a name for a part's layout, of which there may be several in a
// module.
func fragmentName(in *ir.Instr, part ir.Frag, t ir.Type) string {
	op := "wmma"
	if in.Op == ir.Mma {
		op = "mma"
	}
	s := in.Mods.Shape
	return fmt.Sprintf("%s_m%dn%dk%d_%c_%s_%d%d", op, s.M, s.N, s.K, "?abcd"[part], t, in.Mods.ALayout, in.Mods.BLayout)
}

// factor is a matrix that a product reads: its words in each lane begin at first.
type factor struct {
	*ir.FragmentLayout
	elem  ir.Type
	back  string
	first int
}

// product3 is mma or wmma_mma: d = a*b + c.
func (e *emitter) product3(in *ir.Instr) *exchange {
	x := &exchange{}
	var parts [4]*factor
	args := in.Args
	for i, part := range []ir.Frag{ir.FragD, ir.FragA, ir.FragB, ir.FragC} {
		t := in.Mods.Elems[i]
		f, err := ir.LayoutFragment(in, part, t)
		if err != nil {
			e.fail("%v", err)
			return nil
		}
		parts[i] = &factor{FragmentLayout: f, elem: t, first: len(x.words)}
		if part == ir.FragD {
			continue
		}
		_, parts[i].back = e.layoutTables(fragmentName(in, part, t), f)
		for _, o := range args[:f.Regs] {
			v := e.bits(o, f.Reg)
			if f.Reg == ir.B64 {
				x.words = append(x.words, "(uint)"+v, fmt.Sprintf("(uint)(%s >> 32)", v))
			} else {
				x.words = append(x.words, v)
			}
		}
		args = args[f.Regs:]
	}
	x.result = func() { e.multiply(in, parts) }
	return x
}

// multiply writes the loops: for each of the thread's elements of d the products
// are added to c, one after the other.
func (e *emitter) multiply(in *ir.Instr, parts [4]*factor) {
	d, a, b, c := parts[0], parts[1], parts[2], parts[3]
	forth, _ := e.layoutTables(fragmentName(in, ir.FragD, d.elem), d.FragmentLayout)
	number, fma, result := e.arithmeticOf(in, parts)
	if number == "" {
		return
	}
	s := in.Mods.Shape
	e.line("%s d[%d] = {0};", ctype(d.Reg), d.Regs)
	e.open("for (uint e = 0; e < %d; e++)", d.Regs*d.Per)
	e.line("const uint at = %s[(hg_t & 31) * %d + e], row = at / %d * %d, col = at / %d * %d + at %% %d;", forth, d.Regs*d.Per,
		s.N, s.K, int(s.M)*int(s.N), int(s.K)*int(s.N), s.N)
	e.line("%s sum = %s;", number, e.decode(c, "at"))
	e.open("for (uint k = 0; k < %d; k++)", s.K)
	e.line("%s x = %s, y = %s;", number, e.decode(a, "row + k"), e.decode(b, fmt.Sprintf("col + k * %d", s.N)))
	e.line("sum = %s;", fma)
	e.close()
	e.line("d[e / %d] |= (%s)%s << (e %% %d * %d);", d.Per, ctype(d.Reg), paren(result), d.Per, d.Bits)
	e.close()
	for i, r := range in.Dst {
		e.set(r, d.Reg, fmt.Sprintf("d[%d]", i))
	}
}

// decode is the value of an element of a factor, at an index in the matrices.
func (e *emitter) decode(f *factor, at string) string {
	x := fmt.Sprintf("hg_element(w + %d, hg_w, %s[%s], %d, %d)", f.first, f.back, at, f.Per, f.Bits)
	switch f.elem {
	case ir.F64:
		return fmt.Sprintf("as_double(hg_element64(w + %d, hg_w, %s[%s]))", f.first, f.back, at)
	case ir.F32:
		return fmt.Sprintf("as_float(%s)", x)
	case ir.TF32:
		return fmt.Sprintf("as_float(%s & 0xffffe000u)", x)
	case ir.F16, ir.BF16:
		return fmt.Sprintf("hg_from_%s((ushort)%s)", f.elem, x)
	case ir.E4M3x2:
		return fmt.Sprintf("hg_from_f16((ushort)hg_from_e4m3((uchar)%s, false))", x)
	case ir.E5M2x2:
		return fmt.Sprintf("hg_from_f16((ushort)hg_from_e5m2((uchar)%s, false))", x)
	}
	if f.elem.Signed() {
		return fmt.Sprintf("(long)(as_int(%s << %d) >> %d)", x, 32-f.Bits, 32-f.Bits)
	}
	return "(long)" + x
}

// arithmeticOf is the type in which a product is computed, x*y + sum, and what
// becomes of a sum in its register.
func (e *emitter) arithmeticOf(in *ir.Instr, parts [4]*factor) (number, fma, result string) {
	d, a := parts[0].elem, parts[1].elem
	switch {
	case a == ir.F64:
		if in.Mods.Round > ir.RN {
			return "double", fmt.Sprintf("as_double(hg_soft_fma(as_ulong(x), as_ulong(y), as_ulong(sum), 53, 11, %d))", roundings[in.Mods.Round]), "as_ulong(sum)"
		}
		return "double", "fma(x, y, sum)", "as_ulong(sum)"
	case d == ir.S32:
		fma, result = "sum + x * y", "(uint)sum"
		if a == ir.B1 {
			fma = "sum + (x ^ y)"
			if in.Mods.Atom == ir.AtomAnd {
				fma = "sum + (x & y)"
			}
		}
		if in.Mods.Sat {
			result = "(uint)convert_int_sat(sum)"
		}
		return "long", fma, result
	case d == ir.F32:
		return "float", "fma(x, y, sum)", "hg_bits_f32(sum)"
	case d == ir.F16 || d == ir.BF16:
		return "float", "fma(x, y, sum)", fmt.Sprintf("hg_to_%s(sum)", d)
	}
	e.fail("%s to %s", in.Op, d)
	return "", "", ""
}

// wmmaMemory is wmma_load or wmma_store: each thread's own elements, row by row,
// or column by column, with a stride.
func (e *emitter) wmmaMemory(in *ir.Instr) {
	f, err := ir.LayoutFragment(in, in.Mods.Frag, in.Type)
	if err != nil {
		e.fail("%v", err)
		return
	}
	if in.Op == ir.WmmaStore && f.Bits < 8 {
		e.fail("wmma_store of %s", in.Type)
		return
	}
	forth, _ := e.layoutTables(fragmentName(in, in.Mods.Frag, in.Type), f)
	e.line("const ulong first = %s, stride = %s;", e.address(in), e.bits(in.Args[1], ir.B32))
	e.line("%s v[%d] = {0};", ctype(f.Reg), f.Regs)
	if in.Op == ir.WmmaStore {
		for i, o := range in.Args[2:] {
			e.line("v[%d] = %s;", i, e.bits(o, f.Reg))
		}
	}
	e.open("for (uint e = 0; e < %d; e++)", f.Regs*f.Per)
	row, col := fmt.Sprintf("at / %d", f.Cols), fmt.Sprintf("at %% %d", f.Cols)
	if in.Mods.ALayout == ir.Col {
		row, col = col, row
	}
	e.line("const uint at = %s[(hg_t & 31) * %d + e];", forth, f.Regs*f.Per)
	e.line("const ulong bit = ((%s) * stride + %s) * %d, a = first + bit / 8;", row, col, f.Bits)
	t := map[int]ir.Type{16: ir.B16, 32: ir.B32, 64: ir.B64}[f.Bits]
	if t == ir.NoType {
		t = ir.B8
	}
	s := e.space(in)
	if in.Op == ir.WmmaStore {
		e.store(s, t, 0, false, fmt.Sprintf("(%s)(v[e / %d] >> (e %% %d * %d))", ctype(t), f.Per, f.Per, f.Bits))
	} else {
		x := fmt.Sprintf("(%s)%s", ctype(f.Reg), paren(e.load(s, t, 0, false)))
		if f.Bits < 8 {
			x = fmt.Sprintf("(%s >> (bit %% 8) & %d)", x, 1<<f.Bits-1)
		}
		e.line("v[e / %d] |= %s << (e %% %d * %d);", f.Per, x, f.Per, f.Bits)
	}
	e.close()
	for i, r := range in.Dst {
		e.set(r, f.Reg, fmt.Sprintf("v[%d]", i))
	}
}
