// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func buildLogic(in *ir.Instr) scalar {
	m := ones(in.Type)
	switch in.Op {
	case ir.And:
		return func(a, b, _, _ uint64) uint64 { return a & b & m }
	case ir.Or:
		return func(a, b, _, _ uint64) uint64 { return (a | b) & m }
	case ir.Xor:
		return func(a, b, _, _ uint64) uint64 { return (a ^ b) & m }
	case ir.Not:
		return func(a, _, _, _ uint64) uint64 { return ^a & m }
	}
	return func(a, _, _, _ uint64) uint64 { // Cnot
		if a&m == 0 {
			return 1
		}
		return 0
	}
}

func buildLop3(in *ir.Instr) scalar {
	m, lut := ones(in.Type), in.Mods.Lut
	return func(a, b, c, _ uint64) uint64 {
		var d uint64
		for i, t := range [8]uint64{^a & ^b & ^c, ^a & ^b & c, ^a & b & ^c, ^a & b & c, a & ^b & ^c, a & ^b & c, a & b & ^c, a & b & c} {
			if lut>>i&1 != 0 {
				d |= t
			}
		}
		return d & m
	}
}

// buildShift is for Shl and Shr, whose distance is 32 bits and clamped.
func buildShift(in *ir.Instr) scalar {
	read, m, sign := value(in.Type), ones(in.Type), in.Type.Signed()
	n := uint64(8 * in.Type.Size())
	if in.Op == ir.Shl {
		return func(a, b, _, _ uint64) uint64 { return a << min(b&0xffffffff, n) & m }
	}
	return func(a, b, _, _ uint64) uint64 {
		b = min(b&0xffffffff, n)
		if sign {
			return uint64(int64(read(a))>>b) & m
		}
		return a & m >> b
	}
}

// buildFunnel is for Shf: of b:a, the upper half after a shift to the left, or
// the lower half after one to the right.
func buildFunnel(in *ir.Instr) scalar {
	if in.Type.Size() != 4 {
		return nil
	}
	distance := func(c uint64) uint64 { return min(c&0xffffffff, 32) }
	if in.Mods.Wrap {
		distance = func(c uint64) uint64 { return c & 31 }
	}
	left := in.Mods.Left
	return func(a, b, c, _ uint64) uint64 {
		x := b<<32 | a&0xffffffff
		if left {
			return x << distance(c) >> 32
		}
		return uint64(uint32(x >> distance(c)))
	}
}

func buildCount(in *ir.Instr) scalar {
	m, n, read := ones(in.Type), 8*in.Type.Size(), value(in.Type)
	switch in.Op {
	case ir.Popc:
		return func(a, _, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a & m)) }
	case ir.Clz:
		return func(a, _, _, _ uint64) uint64 { return uint64(n - bits.Len64(a&m)) }
	case ir.Brev:
		return func(a, _, _, _ uint64) uint64 { return bits.Reverse64(a&m) >> (64 - n) }
	}
	shift := in.Mods.ShiftAmt
	return func(a, _, _, _ uint64) uint64 { // Bfind
		x := read(a)
		if in.Type.Signed() && int64(x) < 0 {
			x = ^x
		}
		at := bits.Len64(x&m) - 1
		if at >= 0 && shift {
			at = n - 1 - at
		}
		return uint64(uint32(at))
	}
}

// buildFns finds the nth set bit of a from bit b on: upwards if c is positive,
// downwards if it is negative, only b itself if it is 0.
func buildFns(*ir.Instr) scalar {
	return func(a, b, c, _ uint64) uint64 {
		at, n := int64(b&0xffffffff), signed(c, 4)
		step := int64(1)
		switch {
		case n == 0:
			n = 1
			step = 64 // no second try
		case n < 0:
			n, step = -n, -1
		}
		for ; at >= 0 && at < 32; at += step {
			if a>>at&1 == 0 {
				continue
			}
			if n--; n == 0 {
				return uint64(at)
			}
		}
		return 0xffffffff
	}
}

// buildBfe extracts c bits of a from bit b on.
func buildBfe(in *ir.Instr) scalar {
	m, n, sign := ones(in.Type), uint64(8*in.Type.Size()), in.Type.Signed()
	return func(a, b, c, _ uint64) uint64 {
		at, length := b&0xff, c&0xff
		a &= m
		if length == 0 {
			return 0
		}
		d := a >> at
		got := length
		if at+length > n {
			got = max(n, at) - at
		}
		d &= 1<<got - 1
		if sign && a>>min(at+length-1, n-1)&1 != 0 {
			d |= ^uint64(0) << got
		}
		return d & m
	}
}

// buildBfi puts the lower d bits of a into b from bit c on.
func buildBfi(in *ir.Instr) scalar {
	m := ones(in.Type)
	return func(a, b, c, d uint64) uint64 {
		at, length := c&0xff, d&0xff
		field := (uint64(1)<<length - 1) << at
		return (b&^field | a<<at&field) & m
	}
}

func buildSzext(in *ir.Instr) scalar {
	sign, wrap := in.Type.Signed(), in.Mods.Wrap
	return func(a, b, _, _ uint64) uint64 {
		n := min(b&0xffffffff, 32)
		if wrap {
			n = b & 31
		}
		if sign && n > 0 {
			return uint64(uint32(int64(a<<(64-n)) >> (64 - n)))
		}
		return a & (1<<n - 1)
	}
}

// buildBmsk makes a mask of b bits from bit a on.
func buildBmsk(in *ir.Instr) scalar {
	wrap := in.Mods.Wrap
	return func(a, b, _, _ uint64) uint64 {
		a, b = a&0xffffffff, b&0xffffffff
		if wrap {
			a, b = a&31, b&31
		}
		a, b = min(a, 32), min(b, 32)
		return uint64(uint32((1<<b - 1) << a))
	}
}

// buildDot is for Dp4a and Dp2a.
func buildDot(in *ir.Instr) scalar {
	read := func(t ir.Type, size int) func(x uint64, i int) uint64 {
		m := uint64(1)<<(8*size) - 1
		if t.Signed() {
			return func(x uint64, i int) uint64 { return uint64(signed(x>>(8*size*i)&m, size)) }
		}
		return func(x uint64, i int) uint64 { return x >> (8 * size * i) & m }
	}
	second := read(in.Type2, 1)
	if in.Op == ir.Dp4a {
		first := read(in.Type, 1)
		return func(a, b, c, _ uint64) uint64 {
			for i := range 4 {
				c += first(a, i) * second(b, i)
			}
			return uint64(uint32(c))
		}
	}
	first, from := read(in.Type, 2), 0
	if in.Mods.Half == ir.Hi {
		from = 2
	}
	return func(a, b, c, _ uint64) uint64 {
		return uint64(uint32(c + first(a, 0)*second(b, from) + first(a, 1)*second(b, from+1)))
	}
}

// The selectors of Prmt's modes, for each value of c's two lowest bits; ISA 9.7.8.7.
var prmtSelectors = map[ir.PrmtMode][4]uint64{
	ir.PrmtF4E:  {0x3210, 0x4321, 0x5432, 0x6543},
	ir.PrmtB4E:  {0x5670, 0x6701, 0x7012, 0x0123},
	ir.PrmtRC8:  {0x0000, 0x1111, 0x2222, 0x3333},
	ir.PrmtECL:  {0x3210, 0x3211, 0x3222, 0x3333},
	ir.PrmtECR:  {0x0000, 0x1110, 0x2210, 0x3210},
	ir.PrmtRC16: {0x1010, 0x3232, 0x1010, 0x3232},
}

// buildPrmt picks bytes of b:a.
func buildPrmt(in *ir.Instr) scalar {
	table, special := prmtSelectors[in.Mods.Prmt]
	return func(a, b, c, _ uint64) uint64 {
		x := b<<32 | a&0xffffffff
		if special {
			c = table[c&3]
		}
		var d uint64
		for i := range 4 {
			sel := c >> (4 * i) & 15
			v := x >> (8 * (sel & 7)) & 0xff
			if sel&8 != 0 {
				v = v >> 7 * 0xff // its sign, eight times
			}
			d |= v << (8 * i)
		}
		return d
	}
}
