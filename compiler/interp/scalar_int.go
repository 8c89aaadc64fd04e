// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func buildAdd(in *ir.Instr) scalar {
	if in.Type.Float() {
		return floatOp(in, addition)
	}
	if f, pair := halfwise(in, buildAdd); pair {
		return f
	}
	m := ones(in.Type)
	switch {
	case in.Mods.Sat:
		return saturating(in.Type, func(a, b int64) int64 { return a + b })
	case in.Mods.CarryIn:
		return func(a, b, c, _ uint64) uint64 { return (a + b + c) & m }
	case in.Type.Size() == 4:
		return func(a, b, _, _ uint64) uint64 { return uint64(uint32(a + b)) }
	}
	return func(a, b, _, _ uint64) uint64 { return (a + b) & m }
}

func buildSub(in *ir.Instr) scalar {
	if in.Type.Float() {
		return floatOp(in, subtraction)
	}
	if f, pair := halfwise(in, buildSub); pair {
		return f
	}
	m := ones(in.Type)
	switch {
	case in.Mods.Sat:
		return saturating(in.Type, func(a, b int64) int64 { return a - b })
	case in.Mods.CarryIn:
		return func(a, b, c, _ uint64) uint64 { return (a - b - c) & m }
	}
	return func(a, b, _, _ uint64) uint64 { return (a - b) & m }
}

// saturating is for .sat.s32, the only type that PTX has it for.
func saturating(t ir.Type, f func(a, b int64) int64) scalar {
	if t != ir.S32 {
		return nil
	}
	return func(a, b, _, _ uint64) uint64 { return clamp32(f(signed(a, 4), signed(b, 4))) }
}

func clamp32(x int64) uint64 {
	return uint64(uint32(min(max(x, math.MinInt32), math.MaxInt32)))
}

// carryOut is the carry, or the borrow, of an instruction with Mods.CarryOut.
// Its arguments are as the instruction's, the carry that comes in behind them.
func carryOut(in *ir.Instr) scalar {
	n := uint(8 * in.Type.Size())
	m := ones(in.Type)
	carry := func(a, b, c uint64) uint64 {
		sum, over := bits.Add64(a&m, b&m, c)
		if n == 64 {
			return over
		}
		return sum >> n & 1
	}
	switch in.Op {
	case ir.Add:
		if !in.Mods.CarryIn {
			return func(a, b, _, _ uint64) uint64 { return carry(a, b, 0) }
		}
		return func(a, b, c, _ uint64) uint64 { return carry(a, b, c) }
	case ir.Sub:
		return func(a, b, c, _ uint64) uint64 {
			if !in.Mods.CarryIn {
				c = 0
			}
			_, borrow := bits.Sub64(a&m, b&m, c)
			return borrow
		}
	case ir.Mad:
		part := product64(in)
		if part == nil {
			return nil
		}
		return func(a, b, c, d uint64) uint64 {
			if !in.Mods.CarryIn {
				d = 0
			}
			return carry(part(a, b), c, d)
		}
	}
	return nil
}

// product64 returns the part of a product that Mods.Half tells.
func product64(in *ir.Instr) func(a, b uint64) uint64 {
	t := in.Type
	read := value(t)
	n := 8 * t.Size()
	switch {
	case in.Mods.Half == ir.Wide && t.Size() == 2:
		return func(a, b uint64) uint64 { return uint64(uint32(read(a) * read(b))) }
	case in.Mods.Half == ir.Wide && t.Size() == 4:
		return func(a, b uint64) uint64 { return read(a) * read(b) }
	case in.Mods.Half == ir.Wide:
		return nil
	case in.Mods.Half == ir.Hi && t.Size() == 8 && t.Signed():
		return func(a, b uint64) uint64 {
			hi, _ := bits.Mul64(a, b)
			return hi - b&uint64(int64(a)>>63) - a&uint64(int64(b)>>63)
		}
	case in.Mods.Half == ir.Hi && t.Size() == 8:
		return func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }
	case in.Mods.Half == ir.Hi:
		m := ones(t)
		return func(a, b uint64) uint64 { return read(a) * read(b) >> n & m }
	}
	m := ones(t)
	return func(a, b uint64) uint64 { return a * b & m }
}

func buildMul(in *ir.Instr) scalar {
	if in.Type.Float() {
		return floatOp(in, multiplication)
	}
	part := product64(in)
	if part == nil {
		return nil
	}
	return func(a, b, _, _ uint64) uint64 { return part(a, b) }
}

func buildMad(in *ir.Instr) scalar {
	if in.Type.Float() {
		return buildFma(in)
	}
	part := product64(in)
	if part == nil {
		return nil
	}
	m := ones(in.Type)
	switch {
	case in.Mods.Half == ir.Wide && in.Type.Size() == 4:
		return func(a, b, c, _ uint64) uint64 { return part(a, b) + c }
	case in.Mods.Half == ir.Wide:
		return func(a, b, c, _ uint64) uint64 { return uint64(uint32(part(a, b) + c)) }
	case in.Mods.Sat: // mad.hi.sat.s32
		return func(a, b, c, _ uint64) uint64 { return clamp32(signed(part(a, b), 4) + signed(c, 4)) }
	case in.Mods.CarryIn:
		return func(a, b, c, d uint64) uint64 { return (part(a, b) + c + d) & m }
	}
	return func(a, b, c, _ uint64) uint64 { return (part(a, b) + c) & m }
}

// buildMul24 is for Mul24 and Mad24: the lower 32 of 48 bits, or the upper ones.
func buildMul24(in *ir.Instr) scalar {
	if in.Type.Size() != 4 {
		return nil
	}
	read := func(x uint64) uint64 { return x & 0xffffff }
	if in.Type.Signed() {
		read = func(x uint64) uint64 { return uint64(int64(x<<40) >> 40) }
	}
	shift := 0
	if in.Mods.Half == ir.Hi {
		shift = 16
	}
	mad := in.Op == ir.Mad24
	return func(a, b, c, _ uint64) uint64 {
		p := uint64(uint32(read(a) * read(b) >> shift))
		switch {
		case !mad:
			return p
		case in.Mods.Sat:
			return clamp32(signed(p, 4) + signed(c, 4))
		}
		return uint64(uint32(p + c))
	}
}

func buildSad(in *ir.Instr) scalar {
	read, m, sign := value(in.Type), ones(in.Type), in.Type.Signed()
	return func(a, b, c, _ uint64) uint64 {
		x, y := read(a), read(b)
		if sign && int64(x) < int64(y) || !sign && x < y {
			x, y = y, x
		}
		return (c + x - y) & m
	}
}

// PTX leaves a division by zero open. Here, as on NVIDIA's devices, the quotient
// has all bits set, and the remainder is the dividend.
func buildDiv(in *ir.Instr) scalar {
	if in.Type.Float() {
		return floatOp(in, division)
	}
	read, m, sign := value(in.Type), ones(in.Type), in.Type.Signed()
	return func(a, b, _, _ uint64) uint64 {
		x, y := read(a), read(b)
		switch {
		case y == 0:
			return m
		case sign && y == ^uint64(0):
			return -x & m
		case sign:
			return uint64(int64(x)/int64(y)) & m
		}
		return x / y
	}
}

func buildRem(in *ir.Instr) scalar {
	if in.Type.Float() {
		return nil
	}
	read, m, sign := value(in.Type), ones(in.Type), in.Type.Signed()
	return func(a, b, _, _ uint64) uint64 {
		x, y := read(a), read(b)
		switch {
		case y == 0:
			return x & m
		case sign && y == ^uint64(0):
			return 0
		case sign:
			return uint64(int64(x)%int64(y)) & m
		}
		return x % y
	}
}

func buildAbs(in *ir.Instr) scalar {
	if in.Type.Float() {
		return buildSign(in)
	}
	read, m, sign := value(in.Type), ones(in.Type), in.Type.Signed()
	return func(a, _, _, _ uint64) uint64 {
		x := read(a)
		if sign && int64(x) < 0 {
			x = -x
		}
		return x & m
	}
}

func buildNeg(in *ir.Instr) scalar {
	if in.Type.Float() {
		return buildSign(in)
	}
	if f, pair := halfwise(in, buildNeg); pair {
		return f
	}
	m := ones(in.Type)
	return func(a, _, _, _ uint64) uint64 { return -a & m }
}

// buildMinMax is for Min and Max, which may have three arguments.
func buildMinMax(in *ir.Instr) scalar {
	var two scalar
	if f, pair := halfwise(in, buildMinMax); pair {
		return f
	}
	if in.Type.Float() {
		two = floatMinMax(in)
	} else {
		two = intMinMax(in)
	}
	if two == nil || len(in.Args) < 3 {
		return two
	}
	return func(a, b, c, _ uint64) uint64 { return two(two(a, b, 0, 0), c, 0, 0) }
}

func intMinMax(in *ir.Instr) scalar {
	read, m, sign, larger := value(in.Type), ones(in.Type), in.Type.Signed(), in.Op == ir.Max
	relu := in.Mods.Relu
	return func(a, b, _, _ uint64) uint64 {
		x, y := read(a), read(b)
		less := x < y
		if sign {
			less = int64(x) < int64(y)
		}
		if less == larger {
			x = y
		}
		if relu && int64(x) < 0 {
			x = 0
		}
		return x & m
	}
}

// buildSlct is for Slct: a where c is not negative, b elsewhere.
func buildSlct(in *ir.Instr) scalar {
	m := ones(in.Type)
	if in.Type2 == ir.F32 {
		return func(a, b, c, _ uint64) uint64 {
			c &= 0xffffffff
			if in.Mods.FTZ {
				c = binary32.flush(c)
			}
			if binary32.isNaN(c) || c > 1<<31 {
				return b & m
			}
			return a & m
		}
	}
	return func(a, b, c, _ uint64) uint64 {
		if int32(c) >= 0 {
			return a & m
		}
		return b & m
	}
}
