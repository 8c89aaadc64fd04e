// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var matrixHandlers = map[string]func(*function){
	"mma": (*function).mma, "wmma": (*function).wmma,
	"ldmatrix": (*function).ldmatrix, "stmatrix": (*function).stmatrix, "movmatrix": (*function).movmatrix,
}

var layouts = map[string]ir.MatrixLayout{"row": ir.Row, "col": ir.Col}

// shape takes .m16n8k16 and the like.
func (f *function) shape() ir.Shape {
	var s ir.Shape
	word := f.mods.prefix("m")
	// Those that move 8 by 8 matrices have no k. What doesn't fit is no shape that
	// anything here has.
	_, err := fmt.Sscanf(word+"k0", "m%dn%dk%d", &s.M, &s.N, &s.K)
	if err != nil || strings.TrimSuffix(fmt.Sprintf("m%dn%dk%d", s.M, s.N, s.K), "k0") != word {
		f.fail(f.in.Pos, "%s has no shape that is known", clip(f.in.Opcode()))
	}
	return s
}

// collective takes .sync.aligned, without which no matrix instruction is.
func (f *function) collective() {
	if !f.mods.flag("sync") {
		f.fail(f.in.Pos, "%s lacks .sync", clip(f.in.Opcode()))
	}
	f.mods.flag("aligned")
}

// fragment is how many registers a thread has of rows*columns elements.
func fragment(t ir.Type, elements int) int {
	bitsOf := map[ir.Type]int{ir.S4: 4, ir.U4: 4, ir.B1: 1, ir.S8: 8, ir.U8: 8, ir.F16: 16, ir.BF16: 16, ir.TF32: 32, ir.F32: 32, ir.S32: 32, ir.F64: 64}[t]
	if bitsOf == 0 {
		return 0
	}
	register := max(32, bitsOf)
	return (elements*bitsOf/ir.WarpSize + register - 1) / register
}

// mmaShapes are the shapes of mma (PTX ISA, "Warp Level Matrix
// Multiply-Accumulate Instructions") by the type of a.
var mmaShapes = map[ir.Type][]ir.Shape{
	ir.F16:  {{M: 8, N: 8, K: 4}, {M: 16, N: 8, K: 8}, {M: 16, N: 8, K: 16}},
	ir.BF16: {{M: 16, N: 8, K: 8}, {M: 16, N: 8, K: 16}},
	ir.TF32: {{M: 16, N: 8, K: 4}, {M: 16, N: 8, K: 8}},
	ir.F64:  {{M: 8, N: 8, K: 4}, {M: 16, N: 8, K: 4}, {M: 16, N: 8, K: 8}, {M: 16, N: 8, K: 16}},
	ir.S8:   {{M: 8, N: 8, K: 16}, {M: 16, N: 8, K: 16}, {M: 16, N: 8, K: 32}},
	ir.S4:   {{M: 8, N: 8, K: 32}, {M: 16, N: 8, K: 32}, {M: 16, N: 8, K: 64}},
	ir.B1:   {{M: 8, N: 8, K: 128}, {M: 16, N: 8, K: 128}},
}

// wmmaShapes are those of wmma.
var wmmaShapes = map[ir.Type][]ir.Shape{
	ir.F16:  {{M: 16, N: 16, K: 16}, {M: 8, N: 32, K: 16}, {M: 32, N: 8, K: 16}},
	ir.BF16: {{M: 16, N: 16, K: 16}, {M: 8, N: 32, K: 16}, {M: 32, N: 8, K: 16}},
	ir.TF32: {{M: 16, N: 16, K: 8}},
	ir.F64:  {{M: 8, N: 8, K: 4}},
	ir.S8:   {{M: 16, N: 16, K: 16}, {M: 8, N: 32, K: 16}, {M: 32, N: 8, K: 16}},
	ir.S4:   {{M: 8, N: 8, K: 32}},
	ir.B1:   {{M: 8, N: 8, K: 128}},
}

// kin is the type under which another has its shapes.
func kin(t ir.Type) ir.Type {
	switch t {
	case ir.U8:
		return ir.S8
	case ir.U4:
		return ir.S4
	}
	return t
}

// accumulates tells whether products of type a can be added up in type c.
func accumulates(a, c ir.Type) bool {
	switch kin(a) {
	case ir.F16:
		return c == ir.F16 || c == ir.F32
	case ir.BF16, ir.TF32:
		return c == ir.F32
	case ir.F64:
		return c == ir.F64
	}
	return c == ir.S32
}

func (f *function) checkProduct(shapes map[ir.Type][]ir.Shape, m ir.Mods) bool {
	d, a, b, c := m.Elems[0], m.Elems[1], m.Elems[2], m.Elems[3]
	ok := f.err == nil && kin(a) == kin(b) && accumulates(a, c) && accumulates(a, d) && (c == d || kin(a) == ir.F16)
	found := false
	for _, s := range shapes[kin(a)] {
		found = found || s == m.Shape
	}
	if !ok || !found {
		f.fail(f.in.Pos, "%s is no matrix product", clip(f.in.Opcode()))
		return false
	}
	return true
}

// bitProduct takes .xor.popc or .and.popc of products of single bits.
func (f *function) bitProduct(m *ir.Mods, t ir.Type) {
	op, word := pick(&f.mods, map[string]ir.AtomOp{"xor": ir.AtomXor, "and": ir.AtomAnd})
	popc := f.mods.flag("popc")
	if (t == ir.B1) != popc || popc != (word != "") {
		f.fail(f.in.Pos, "%s is no matrix product", clip(f.in.Opcode()))
	}
	m.Atom = op
}

func (f *function) mma() {
	f.collective()
	m := ir.Mods{Shape: f.shape()}
	m.ALayout, _ = pick(&f.mods, layouts)
	m.BLayout, _ = pick(&f.mods, layouts)
	m.Sat = f.mods.flag("satfinite")
	round, rounded := pick(&f.mods, rounds)
	for i := range m.Elems {
		m.Elems[i] = f.typ()
	}
	if !f.checkProduct(mmaShapes, m) {
		return
	}
	if rounded != "" && (m.Elems[1] != ir.F64 || round > ir.RP) {
		f.fail(f.in.Pos, "%s does not round", clip(f.in.Opcode()))
	}
	m.Round = round
	f.bitProduct(&m, m.Elems[1])
	s := m.Shape
	sizes := [4]int{fragment(m.Elems[0], int(s.M)*int(s.N)), fragment(m.Elems[1], int(s.M)*int(s.K)), fragment(m.Elems[2], int(s.K)*int(s.N)), fragment(m.Elems[3], int(s.M)*int(s.N))}
	if m.Elems[1] == ir.F16 && s == (ir.Shape{M: 8, N: 8, K: 4}) {
		// Each quarter of the warp has a product of its own.
		for i, t := range m.Elems {
			sizes[i] = map[ir.Type]int{ir.F16: 2, ir.F32: 8}[t]
			if i == 0 || i == 3 {
				sizes[i] = map[ir.Type]int{ir.F16: 4, ir.F32: 8}[t]
			}
		}
	} else if m.ALayout != ir.Row || m.BLayout != ir.Col {
		f.fail(f.in.Pos, "%s takes .row.col", clip(f.in.Opcode()))
	}
	f.matrixProduct(ir.Mma, m, sizes)
}

// elementRegister is the type of a register that holds elements.
func elementRegister(t ir.Type) ir.Type {
	switch t {
	case ir.F32, ir.F64, ir.S32:
		return t
	}
	return ir.B32
}

func (f *function) matrixProduct(op ir.Op, m ir.Mods, sizes [4]int) {
	o := f.args(4, 4)
	if f.err != nil {
		return
	}
	in := &ir.Instr{Op: op, Mods: m}
	for i := range o {
		for _, e := range f.vector(&o[i], sizes[i]) {
			t := elementRegister(m.Elems[i])
			if i == 0 {
				in.Dst = append(in.Dst, f.dst(&e, t))
			} else {
				in.Args = append(in.Args, f.src(&e, t))
			}
		}
	}
	f.emit(in)
}

func (f *function) wmma() {
	switch {
	case f.mods.flag("load"):
		f.wmmaLoad()
	case f.mods.flag("store"):
		f.wmmaStore()
	default:
		f.mods.flag("mma")
		f.wmmaMma()
	}
}

// wmmaFragment is how many registers a thread has: of a and b of 16 bits all
// elements are there twice.
func wmmaFragment(t ir.Type, frag ir.Frag, s ir.Shape) int {
	m, n, k := int(s.M), int(s.N), int(s.K)
	elements := map[ir.Frag]int{ir.FragA: m * k, ir.FragB: k * n, ir.FragC: m * n, ir.FragD: m * n}[frag]
	regs := fragment(t, elements)
	if t == ir.F16 && (frag == ir.FragA || frag == ir.FragB) {
		return 8
	}
	return regs
}

// wmmaElement checks a fragment's type and shape.
func (f *function) wmmaElement(t ir.Type, frag ir.Frag, s ir.Shape) {
	ok := false
	for a, shapes := range wmmaShapes {
		for _, other := range shapes {
			if other != s {
				continue
			}
			if frag == ir.FragA || frag == ir.FragB {
				ok = ok || kin(t) == a
			} else {
				ok = ok || accumulates(a, t)
			}
		}
	}
	if !ok {
		f.fail(f.in.Pos, "%s: there is no such matrix", clip(f.in.Opcode()))
	}
}

func (f *function) wmmaLoad() {
	frag, word := pick(&f.mods, map[string]ir.Frag{"a": ir.FragA, "b": ir.FragB, "c": ir.FragC})
	m, t := f.wmmaAccess(frag, word)
	a := f.args(2, 3)
	if f.err != nil {
		return
	}
	in := &ir.Instr{Op: ir.WmmaLoad, Type: t}
	for _, e := range f.vector(&a[0], wmmaFragment(t, frag, m.Shape)) {
		in.Dst = append(in.Dst, f.dst(&e, elementRegister(t)))
	}
	f.wmmaAddress(in, m, &a[1], &a[2])
	f.emit(in)
}

func (f *function) wmmaAccess(frag ir.Frag, word string) (ir.Mods, ir.Type) {
	f.collective()
	m := ir.Mods{Frag: frag, Shape: f.shape(), Space: f.space()}
	m.ALayout, _ = pick(&f.mods, layouts)
	t := f.typ()
	if word == "" || m.ALayout == ir.NoLayout {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	if f.err == nil {
		f.wmmaElement(t, frag, m.Shape)
	}
	return m, t
}

// wmmaAddress sets where a matrix is: its address and the elements from one row
// or column to the next.
func (f *function) wmmaAddress(in *ir.Instr, m ir.Mods, at, stride *ptx.Operand) {
	var address ir.Operand
	address, in.Offset, m.Space = f.addr(at, m.Space)
	in.Mods = m
	in.Args = []ir.Operand{address}
	if stride.Kind != ptx.Sink {
		in.Args = append(in.Args, f.src(stride, ir.U32))
		return
	}
	row := map[ir.Frag]uint8{ir.FragA: m.Shape.K, ir.FragB: m.Shape.N, ir.FragC: m.Shape.N, ir.FragD: m.Shape.N}
	col := map[ir.Frag]uint8{ir.FragA: m.Shape.M, ir.FragB: m.Shape.K, ir.FragC: m.Shape.M, ir.FragD: m.Shape.M}
	if m.ALayout == ir.Row {
		in.Args = append(in.Args, ir.Imm(uint64(row[m.Frag])))
	} else {
		in.Args = append(in.Args, ir.Imm(uint64(col[m.Frag])))
	}
}

func (f *function) wmmaStore() {
	word := ""
	if f.mods.flag("d") {
		word = "d"
	}
	m, t := f.wmmaAccess(ir.FragD, word)
	a := f.args(2, 3)
	if f.err != nil {
		return
	}
	in := &ir.Instr{Op: ir.WmmaStore, Type: t}
	f.wmmaAddress(in, m, &a[0], &a[2])
	for _, e := range f.vector(&a[1], wmmaFragment(t, ir.FragD, m.Shape)) {
		in.Args = append(in.Args, f.src(&e, elementRegister(t)))
	}
	f.emit(in)
}

func (f *function) wmmaMma() {
	// The bits' operation stands before the shape, "mma.xor.popc".
	f.collective()
	m := ir.Mods{}
	m.ALayout, _ = pick(&f.mods, layouts)
	m.BLayout, _ = pick(&f.mods, layouts)
	m.Shape = f.shape()
	m.Sat = f.mods.flag("satfinite")
	round, rounded := pick(&f.mods, rounds)
	var list []ir.Type
	for {
		t, word := pick(&f.mods, types)
		if word == "" {
			break
		}
		list = append(list, t)
	}
	switch len(list) {
	case 2: // of d and c; a and b are f16
		m.Elems = [4]ir.Type{list[0], ir.F16, ir.F16, list[1]}
	case 4:
		m.Elems = [4]ir.Type(list)
	default:
		f.fail(f.in.Pos, "%s has the wrong number of types", clip(f.in.Opcode()))
		return
	}
	if !f.checkProduct(wmmaShapes, m) {
		return
	}
	if rounded != "" && (m.Elems[1] != ir.F64 || round > ir.RP) || m.ALayout == ir.NoLayout || m.BLayout == ir.NoLayout {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	m.Round = round
	f.bitProduct(&m, m.Elems[1])
	f.matrixProduct(ir.WmmaMma, m, [4]int{
		wmmaFragment(m.Elems[0], ir.FragD, m.Shape), wmmaFragment(m.Elems[1], ir.FragA, m.Shape),
		wmmaFragment(m.Elems[2], ir.FragB, m.Shape), wmmaFragment(m.Elems[3], ir.FragC, m.Shape),
	})
}

// matrices takes .x1, .x2 or .x4 and the rest of ldmatrix and stmatrix.
func (f *function) matrices() (ir.Mods, int) {
	f.collective()
	m := ir.Mods{Trans: f.mods.flag("trans"), Space: f.space()}
	s := f.shape()
	n, word := pick(&f.mods, map[string]int{"x1": 1, "x2": 2, "x4": 4})
	if t := f.typ(); f.err == nil && (word == "" || t != ir.B16 || s != (ir.Shape{M: 8, N: 8})) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	m.Vec = uint8(n)
	return m, n
}

func (f *function) ldmatrix() {
	m, n := f.matrices()
	a := f.args(2, 2)
	if f.err != nil {
		return
	}
	in := &ir.Instr{Op: ir.Ldmatrix, Type: ir.B16}
	for _, e := range f.vector(&a[0], n) {
		in.Dst = append(in.Dst, f.dst(&e, ir.B32))
	}
	var at ir.Operand
	at, in.Offset, m.Space = f.addr(&a[1], m.Space)
	in.Mods, in.Args = m, []ir.Operand{at}
	f.emit(in)
}

func (f *function) stmatrix() {
	m, n := f.matrices()
	a := f.args(2, 2)
	if f.err != nil {
		return
	}
	in := &ir.Instr{Op: ir.Stmatrix, Type: ir.B16}
	var at ir.Operand
	at, in.Offset, m.Space = f.addr(&a[0], m.Space)
	in.Mods, in.Args = m, []ir.Operand{at}
	for _, e := range f.vector(&a[1], n) {
		in.Args = append(in.Args, f.src(&e, ir.B32))
	}
	f.emit(in)
}

func (f *function) movmatrix() {
	f.collective()
	trans := f.mods.flag("trans")
	s := f.shape()
	if t := f.typ(); f.err == nil && (!trans || t != ir.B16 || s != (ir.Shape{M: 8, N: 8})) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(2, 2)
	f.op(ir.Movmatrix, ir.B16, ir.Mods{Trans: true}, f.dst(&a[0], ir.B32), f.src(&a[1], ir.B32))
}
