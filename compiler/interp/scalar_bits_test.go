// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func bit(x uint64, n int) uint64 { return x >> n & 1 }

// Operations on bits compared with what the ISA says bit by bit.
func TestBits(t *testing.T) {
	type word = uint64
	cases := []struct {
		op    ir.Op
		types []ir.Type
		mods  ir.Mods
		// want has the values within the type, signed ones too, and its bits.
		want func(t ir.Type, n int, a, b, c, d word) word
	}{
		{ir.Shl, []ir.Type{ir.B16, ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, n int, a, b, _, _ word) (r word) {
			for i := range n {
				if uint64(i) >= b&0xffffffff {
					r |= bit(a, i-int(b&0xffffffff)) << i
				}
			}
			return r
		}},
		{ir.Shr, []ir.Type{ir.U16, ir.S16, ir.B32, ir.S32, ir.U64, ir.S64}, ir.Mods{}, func(t ir.Type, n int, a, b, _, _ word) (r word) {
			for i := range n {
				from := uint64(i) + b&0xffffffff
				if from >= uint64(n) {
					if !t.Signed() {
						continue
					}
					from = uint64(n - 1)
				}
				r |= bit(a, int(from)) << i
			}
			return r
		}},
		{ir.Popc, []ir.Type{ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, n int, a, _, _, _ word) (r word) {
			for i := range n {
				r += bit(a, i)
			}
			return r
		}},
		{ir.Clz, []ir.Type{ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, n int, a, _, _, _ word) (r word) {
			for i := n - 1; i >= 0 && bit(a, i) == 0; i-- {
				r++
			}
			return r
		}},
		{ir.Brev, []ir.Type{ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, n int, a, _, _, _ word) (r word) {
			for i := range n {
				r |= bit(a, i) << (n - 1 - i)
			}
			return r
		}},
		{ir.Bfind, []ir.Type{ir.U32, ir.S32, ir.U64, ir.S64}, ir.Mods{}, func(t ir.Type, n int, a, _, _, _ word) word {
			sign := word(0)
			if t.Signed() {
				sign = bit(a, n-1)
			}
			for i := n - 1; i >= 0; i-- {
				if bit(a, i) != sign {
					return word(i)
				}
			}
			return 0xffffffff
		}},
		{ir.Bfind, []ir.Type{ir.U32, ir.S64}, ir.Mods{ShiftAmt: true}, func(t ir.Type, n int, a, _, _, _ word) word {
			sign := word(0)
			if t.Signed() {
				sign = bit(a, n-1)
			}
			for i := n - 1; i >= 0; i-- {
				if bit(a, i) != sign {
					return word(n - 1 - i)
				}
			}
			return 0xffffffff
		}},
		{ir.Bfe, []ir.Type{ir.U32, ir.S32, ir.U64, ir.S64}, ir.Mods{}, func(t ir.Type, n int, a, b, c, _ word) (r word) {
			pos, length, msb := int(b&0xff), int(c&0xff), n-1
			sbit := word(0)
			if t.Signed() && length > 0 {
				sbit = bit(a, min(pos+length-1, msb))
			}
			for i := range n {
				if i < length && pos+i <= msb {
					r |= bit(a, pos+i) << i
				} else {
					r |= sbit << i
				}
			}
			return r
		}},
		{ir.Bfi, []ir.Type{ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, n int, a, b, c, d word) word {
			pos, length := int(c&0xff), int(d&0xff)
			for i := 0; i < length && pos+i <= n-1; i++ {
				b = b&^(1<<(pos+i)) | bit(a, i)<<(pos+i)
			}
			return b
		}},
		{ir.Shf, []ir.Type{ir.B32}, ir.Mods{Left: true}, func(_ ir.Type, _ int, a, b, c, _ word) word {
			return funnel(a, b, true, int(min(c&0xffffffff, 32)))
		}},
		{ir.Shf, []ir.Type{ir.B32}, ir.Mods{}, func(_ ir.Type, _ int, a, b, c, _ word) word {
			return funnel(a, b, false, int(min(c&0xffffffff, 32)))
		}},
		{ir.Shf, []ir.Type{ir.B32}, ir.Mods{Left: true, Wrap: true}, func(_ ir.Type, _ int, a, b, c, _ word) word {
			return funnel(a, b, true, int(c&31))
		}},
		{ir.Shf, []ir.Type{ir.B32}, ir.Mods{Wrap: true}, func(_ ir.Type, _ int, a, b, c, _ word) word {
			return funnel(a, b, false, int(c&31))
		}},
		{ir.Lop3, []ir.Type{ir.B32}, ir.Mods{Lut: 0xca}, func(_ ir.Type, n int, a, b, c, _ word) (r word) {
			for i := range n {
				r |= word(0xca) >> (bit(a, i)<<2 | bit(b, i)<<1 | bit(c, i)) & 1 << i
			}
			return r
		}},
		{ir.Szext, []ir.Type{ir.U32, ir.S32}, ir.Mods{}, func(t ir.Type, _ int, a, b, _, _ word) word {
			return extended(t, a, int(min(b&0xffffffff, 32)))
		}},
		{ir.Szext, []ir.Type{ir.U32, ir.S32}, ir.Mods{Wrap: true}, func(t ir.Type, _ int, a, b, _, _ word) word {
			return extended(t, a, int(b&31))
		}},
		{ir.Cnot, []ir.Type{ir.B16, ir.B32, ir.B64}, ir.Mods{}, func(_ ir.Type, _ int, a, _, _, _ word) word { return word(b2i(a == 0)) }},
	}
	r := seeded()
	for _, c := range cases {
		for _, typ := range c.types {
			f := scalarOf(&ir.Instr{Op: c.op, Type: typ, Mods: c.mods})
			for range 3000 {
				a, b := r.Uint64()>>r.UintN(64), r.Uint64()>>r.UintN(64)
				x, y := r.Uint64N(80), r.Uint64N(300)
				switch c.op {
				case ir.Shl, ir.Shr, ir.Szext:
					b = r.Uint64N(80)
				case ir.Bfe:
					b = r.Uint64N(300)
				}
				if r.IntN(3) == 0 {
					a = ^a
				}
				n := 8 * typ.Size()
				if got, want := f(a, b, x, y), c.want(typ, n, a&ones(typ), b, x, y)&ones(typ); got != want {
					t.Fatalf("%s.%s %+v of %#x, %#x, %#x, %#x: got %#x, want %#x", c.op, typ, c.mods, a, b, x, y, got, want)
				}
			}
		}
	}
}

func funnel(a, b uint64, left bool, n int) uint64 {
	a, b = a&0xffffffff, b&0xffffffff
	if left {
		return (b<<n | a>>(32-n)) & 0xffffffff
	}
	return (b<<(32-n) | a>>n) & 0xffffffff
}

func extended(t ir.Type, a uint64, n int) (r uint64) {
	for i := range 32 {
		switch {
		case i < n:
			r |= bit(a, i) << i
		case t.Signed() && n > 0:
			r |= bit(a, n-1) << i
		}
	}
	return r
}

func TestBitsByHand(t *testing.T) {
	for _, c := range []struct {
		op         ir.Op
		typ, typ2  ir.Type
		mods       ir.Mods
		a, b, c, d uint64
		want       uint64
	}{
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 0, c: 1, want: 1},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 0, c: 3, want: 4},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 0, c: 4, want: 0xffffffff},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 3, c: 0xffffffff, want: 2},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 3, c: 0xfffffffe, want: 1},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 2, c: 0, want: 2},
		{op: ir.Fns, typ: ir.B32, a: 0b10110, b: 3, c: 0, want: 0xffffffff},
		{op: ir.Bmsk, typ: ir.B32, a: 4, b: 8, want: 0xff0},
		{op: ir.Bmsk, typ: ir.B32, a: 28, b: 8, want: 0xf0000000},
		{op: ir.Bmsk, typ: ir.B32, a: 32, b: 8, want: 0},
		{op: ir.Bmsk, typ: ir.B32, a: 0, b: 40, want: 0xffffffff},
		{op: ir.Bmsk, typ: ir.B32, mods: ir.Mods{Wrap: true}, a: 33, b: 34, want: 6},
		{op: ir.Dp4a, typ: ir.S32, typ2: ir.S32, a: 0xff02fd04, b: 0x01020304, c: 100, want: 100 - 1 + 4 - 9 + 16},
		{op: ir.Dp4a, typ: ir.U32, typ2: ir.U32, a: 0xff02fd04, b: 0x01020304, c: 100, want: 100 + 255 + 4 + 759 + 16},
		{op: ir.Dp4a, typ: ir.U32, typ2: ir.S32, a: 0x000000ff, b: 0x000000ff, c: 0, want: 0xffffff01},
		{op: ir.Dp2a, typ: ir.S32, typ2: ir.U32, mods: ir.Mods{Half: ir.Lo}, a: 0xffff0003, b: 0x04030201, c: 10, want: 10 - 2 + 3},
		{op: ir.Dp2a, typ: ir.S32, typ2: ir.U32, mods: ir.Mods{Half: ir.Hi}, a: 0xffff0003, b: 0x04030201, c: 10, want: 10 - 4 + 9},
		{op: ir.Prmt, typ: ir.B32, a: 0x03020100, b: 0x07060504, c: 0x7531, want: 0x07050301},
		{op: ir.Prmt, typ: ir.B32, a: 0x03028100, b: 0x07060504, c: 0x9810, want: 0xff008100},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtF4E}, a: 0x03020100, b: 0x07060504, c: 3, want: 0x06050403},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtB4E}, a: 0x03020100, b: 0x07060504, c: 1, want: 0x06070001},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtRC8}, a: 0x03020100, c: 2, want: 0x02020202},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtECL}, a: 0x03020100, c: 1, want: 0x03020101},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtECR}, a: 0x03020100, c: 2, want: 0x02020100},
		{op: ir.Prmt, typ: ir.B32, mods: ir.Mods{Prmt: ir.PrmtRC16}, a: 0x03020100, c: 3, want: 0x03020302},
	} {
		f := scalarOf(&ir.Instr{Op: c.op, Type: c.typ, Type2: c.typ2, Mods: c.mods})
		if got := f(c.a, c.b, c.c, c.d); got != c.want {
			t.Errorf("%s.%s %+v of %#x, %#x, %#x: got %#x, want %#x", c.op, c.typ, c.mods, c.a, c.b, c.c, got, c.want)
		}
	}
}
