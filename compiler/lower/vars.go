// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

func itoa(i int) string { return strconv.Itoa(i) }

func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }

// types are the IR's types by PTX's words.
var types = map[string]ir.Type{
	"pred": ir.Pred, "b8": ir.B8, "b16": ir.B16, "b32": ir.B32, "b64": ir.B64, "b128": ir.B128,
	"u8": ir.U8, "u16": ir.U16, "u32": ir.U32, "u64": ir.U64, "s8": ir.S8, "s16": ir.S16, "s32": ir.S32, "s64": ir.S64,
	"u16x2": ir.U16x2, "s16x2": ir.S16x2, "f16": ir.F16, "f16x2": ir.F16x2, "bf16": ir.BF16, "bf16x2": ir.BF16x2,
	"tf32": ir.TF32, "f32": ir.F32, "f64": ir.F64, "e4m3x2": ir.E4M3x2, "e5m2x2": ir.E5M2x2,
	"s4": ir.S4, "u4": ir.U4, "b1": ir.B1,
}

// words are types that only declare: the size is all that they say.
var words = map[string]ir.Type{
	"e4m3": ir.B8, "e5m2": ir.B8, "e4m3x4": ir.B32, "e5m2x4": ir.B32, "f32x2": ir.B64,
	"texref": ir.B64, "samplerref": ir.B64, "surfref": ir.B64,
}

func typeOf(word string) ir.Type {
	if t, ok := types[word]; ok {
		return t
	}
	return words[word]
}

func opaque(t string) bool { return t == "texref" || t == "samplerref" || t == "surfref" }

// What variables may have, in bytes. Shared and local memory are what hardware
// has at most (CUDA C++ Programming Guide, "Technical Specifications"): 227 KiB a
// block, 512 KiB a thread.
var maxBytes = map[ir.Space]int64{
	ir.Global: 1 << 40, ir.Const: 1 << 24, ir.Shared: 256 << 10, ir.Local: 512 << 10, ir.Param: 1 << 20,
}

// maxInit is what initializers of a module may have together, and with it a
// bound on the memory that the compiler takes for them.
const maxInit = 256 << 20

var spaces = map[string]ir.Space{
	"global": ir.Global, "const": ir.Const, "shared": ir.Shared, "shared::cta": ir.Shared, "local": ir.Local,
	"param": ir.Param, "param::entry": ir.Param, "param::func": ir.Param, "reg": ir.Param, "tex": ir.Global,
}

// layout returns a variable's size and alignment. An open dimension counts as
// none, which makes the size 0.
func (l *lowerer) layout(v *ptx.Var) (size, align int64) {
	t := typeOf(v.Type)
	if t == ir.Pred && v.Space != "reg" || t == ir.NoType {
		l.fail(v.Pos, "a variable in memory has no type .%s", clip(v.Type))
		return 0, 1
	}
	size = int64(t.Size())
	if v.Vec != 0 {
		size *= int64(v.Vec)
		if size > 32 {
			l.fail(v.Pos, "a vector has 32 bytes at most")
		}
	}
	align = size
	most := maxBytes[spaces[v.Space]]
	for i, d := range v.Dims {
		switch {
		case d < 0 && i > 0:
			l.fail(v.Pos, "only the first dimension can be left open")
		case d < 0:
			size = 0
		case d > most || size*d > most:
			l.fail(v.Pos, "%s is too large: .%s has %d bytes at most", clip(v.Name), v.Space, most)
			return 0, 1
		default:
			size *= d
		}
	}
	if v.Align != 0 {
		align = v.Align
	}
	return size, align
}

func (l *lowerer) declareVar(d *ptx.Var) {
	if opaque(d.Type) || d.Space == "tex" {
		l.globals.names[d.Name] = &symbol{texture: true}
		return
	}
	old := l.globals.names[d.Name]
	if old != nil && (old.v == nil || !old.v.Extern && d.Linkage&(ptx.Extern|ptx.Weak|ptx.Common) == 0) {
		l.fail(d.Pos, "%s is declared twice", clip(d.Name))
		return
	}
	if old != nil && d.Linkage&ptx.Extern != 0 {
		return
	}
	v := &ir.Var{}
	if old != nil {
		v = old.v
	} else {
		l.m.Vars = append(l.m.Vars, v)
	}
	*v = ir.Var{Name: d.Name, Space: spaces[d.Space], Extern: d.Linkage&ptx.Extern != 0}
	v.Size, v.Align = l.sizeOf(d)
	if d.Space == "local" {
		l.fail(d.Pos, ".local variables outside of functions are not supported")
	}
	l.globals.names[d.Name] = &symbol{v: v}
}

// sizeOf is layout with an open dimension as long as its initializer.
func (l *lowerer) sizeOf(d *ptx.Var) (size, align int64) {
	if len(d.Dims) == 0 || d.Dims[0] >= 0 {
		return l.layout(d)
	}
	one := *d
	one.Dims = append([]int64{0}, d.Dims[1:]...)
	switch {
	case d.Init != nil:
		one.Dims[0] = int64(len(d.Init.List))
	case d.Linkage&ptx.Extern == 0:
		l.fail(d.Pos, "the size of %s is missing", clip(d.Name))
	}
	return l.layout(&one)
}

func (l *lowerer) initialize(d *ptx.Var) {
	s := l.globals.names[d.Name]
	if d.Init == nil || s == nil || s.v == nil {
		return
	}
	v := s.v
	if v.Space != ir.Global && v.Space != ir.Const || v.Extern {
		l.fail(d.Pos, "%s can't have an initializer", clip(d.Name))
		return
	}
	if l.bytes += v.Size; l.bytes > maxInit {
		l.fail(d.Pos, "initializers have %d bytes at most", maxInit)
		return
	}
	i := initializer{l: l, d: d, v: v, elem: typeOf(d.Type)}
	v.Init = make([]byte, v.Size)
	dims := d.Dims
	if d.Vec != 0 {
		dims = append(slices.Clip(dims), int64(d.Vec))
	}
	i.fill(d.Init, dims, 0, v.Size)
	i.finish()
}

// initializer fills a variable's bytes.
type initializer struct {
	l    *lowerer
	d    *ptx.Var
	v    *ir.Var
	elem ir.Type
	// masked are addresses that are given byte by byte.
	masked []maskedAddress
}

type maskedAddress struct {
	sym    *ptx.InitSym
	offset int64
	bytes  int
}

// fill writes init, of an array of these dimensions, to size bytes at offset.
func (i *initializer) fill(init *ptx.Init, dims []int64, offset, size int64) {
	if init.List == nil {
		if len(dims) > 0 {
			i.l.fail(i.d.Pos, "the initializer of the array %s is a list", clip(i.d.Name))
			return
		}
		i.scalar(init, offset)
		return
	}
	if len(dims) == 0 {
		if len(init.List) == 1 {
			i.fill(&init.List[0], nil, offset, size)
			return
		}
		i.l.fail(i.d.Pos, "the initializer of %s has too many values", clip(i.d.Name))
		return
	}
	part := int64(0)
	if n := int64(len(init.List)); n > 0 {
		count := dims[0]
		if count < 0 {
			count = n
		}
		if n > count && len(dims) == 1 || size == 0 {
			i.l.fail(i.d.Pos, "the initializer of %s has too many values", clip(i.d.Name))
			return
		}
		part = size / count
	}
	inner := dims[1:]
	for n := range init.List {
		if i.l.err != nil {
			return
		}
		item := &init.List[n]
		// Numbers in a list of lists fill it in order, as in C.
		if item.List == nil && len(inner) > 0 {
			i.fill(&ptx.Init{List: init.List[n:]}, []int64{size / int64(i.elem.Size())}, offset+int64(n)*part, size-int64(n)*part)
			return
		}
		if int64(n)*part >= size {
			i.l.fail(i.d.Pos, "the initializer of %s has too many values", clip(i.d.Name))
			return
		}
		i.fill(item, inner, offset+int64(n)*part, part)
	}
}

func (i *initializer) scalar(init *ptx.Init, offset int64) {
	size := i.elem.Size()
	if init.Sym != nil {
		i.address(init.Sym, offset)
		return
	}
	bits, ok := immediate(init.Num, i.elem)
	if !ok {
		i.l.fail(i.d.Pos, "%s is no value of type .%s", init.Num, i.d.Type)
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	copy(i.v.Init[offset:], b[:min(size, 8)])
}

func (i *initializer) address(s *ptx.InitSym, offset int64) {
	if s.Mask == 0 {
		if i.elem.Size() != 8 || i.elem.Float() {
			i.l.fail(s.Pos, "an address has 64 bits, %s has elements of type .%s", clip(i.d.Name), i.d.Type)
			return
		}
		i.add(s, offset)
		return
	}
	// Byte k of an address stands at its place plus k.
	k := int64(0)
	for s.Mask>>(8*k) != 0xff {
		k++
	}
	if i.elem.Size() != 1 {
		i.l.fail(s.Pos, "a byte of an address stands in an array of bytes")
		return
	}
	if n := len(i.masked); n > 0 && k > 0 {
		m := &i.masked[n-1]
		if m.offset == offset-k && int64(m.bytes) == k && m.sym.Name == s.Name && m.sym.Addend == s.Addend && m.sym.Generic == s.Generic {
			m.bytes++
			return
		}
	}
	if k != 0 {
		i.l.fail(s.Pos, "the bytes of an address stand in order, the lowest first")
		return
	}
	i.masked = append(i.masked, maskedAddress{s, offset, 1})
}

func (i *initializer) finish() {
	for _, m := range i.masked {
		if m.bytes != 8 {
			i.l.fail(m.sym.Pos, "an address has 8 bytes, here are %d", m.bytes)
			return
		}
		i.add(m.sym, m.offset)
	}
}

func (i *initializer) add(s *ptx.InitSym, offset int64) {
	a := ir.Address{Offset: offset, Addend: s.Addend, Generic: s.Generic}
	sym := i.l.globals.names[s.Name]
	switch {
	case sym == nil || sym.texture:
		i.l.fail(s.Pos, "%s is not declared", clip(s.Name))
		return
	case sym.v != nil:
		a.Var = sym.v
	default:
		if s.Addend != 0 {
			i.l.fail(s.Pos, "a function's address has no offset")
		}
		a.Func = sym.fn
		sym.taken = true
	}
	i.v.Addresses = append(i.v.Addresses, a)
}

// immediate returns n's bits as a value of type t.
func immediate(n ptx.Number, t ir.Type) (uint64, bool) {
	bits := n.Bits
	switch {
	case t == ir.Pred: // as in C; clang writes -1
		if bits != 0 {
			bits = 1
		}
		return bits, !n.Float()
	case t == ir.F64:
		return math.Float64bits(n.Value()), n.Float()
	case t == ir.F32 || t == ir.TF32:
		if n.Kind == ptx.Float64 {
			bits = uint64(math.Float32bits(float32(n.Value())))
		}
		return bits, n.Float()
	case n.Kind == ptx.Float32 && t != ir.B32, n.Kind == ptx.Float64 && t != ir.B64:
		return 0, false
	}
	if size := t.Size(); size < 8 {
		bits &= 1<<(8*size) - 1
	}
	return bits, true
}
