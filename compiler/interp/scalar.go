// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// A scalar is the meaning of an operation for one thread, without memory. What
// it gets are registers as they are, of which it looks at the bits that its type
// has; predicates are 0 or 1. What it returns has zeroes above its type.
//
// Operations that produce a predicate, a vector, or more than one result are not
// scalars; see setp.go and lanes.go.
type scalar func(a, b, c, d uint64) uint64

// scalarOf returns the meaning of an instruction, or nil if it is none of these
// or has a type that the operation doesn't work on.
func scalarOf(in *ir.Instr) scalar {
	build := scalars[in.Op]
	if build == nil {
		return nil
	}
	f := build(in)
	if f != nil && in.Type == ir.TF32 && in.Op != ir.Cvt {
		return nil
	}
	return f
}

var scalars = map[ir.Op]func(*ir.Instr) scalar{
	ir.Mov: func(in *ir.Instr) scalar { return truncated(in.Type) },

	ir.Add: buildAdd, ir.Sub: buildSub, ir.Mul: buildMul, ir.Mad: buildMad,
	ir.Mul24: buildMul24, ir.Mad24: buildMul24, ir.Sad: buildSad,
	ir.Div: buildDiv, ir.Rem: buildRem, ir.Abs: buildAbs, ir.Neg: buildNeg,
	ir.Min: buildMinMax, ir.Max: buildMinMax,

	ir.And: buildLogic, ir.Or: buildLogic, ir.Xor: buildLogic, ir.Not: buildLogic, ir.Cnot: buildLogic,
	ir.Lop3: buildLop3, ir.Shl: buildShift, ir.Shr: buildShift, ir.Shf: buildFunnel,
	ir.Popc: buildCount, ir.Clz: buildCount, ir.Bfind: buildCount, ir.Fns: buildFns, ir.Brev: buildCount,
	ir.Bfe: buildBfe, ir.Bfi: buildBfi, ir.Szext: buildSzext, ir.Bmsk: buildBmsk,
	ir.Dp4a: buildDot, ir.Dp2a: buildDot, ir.Prmt: buildPrmt,

	ir.Fma: buildFma, ir.Sqrt: buildSqrt, ir.Rcp: buildRcp,
	ir.Rsqrt: buildApprox, ir.Sin: buildApprox, ir.Cos: buildApprox,
	ir.Lg2: buildApprox, ir.Ex2: buildApprox, ir.Tanh: buildApprox,
	ir.Copysign: buildCopysign,

	ir.Slct: buildSlct, ir.Cvt: buildCvt, ir.CvtPack: buildCvtPack,
}

// ones are the bits that a type has.
func ones(t ir.Type) uint64 {
	if t.Size() >= 8 {
		return ^uint64(0)
	}
	return 1<<(8*t.Size()) - 1
}

// signed is the value of a signed number of size bytes.
func signed(x uint64, size int) int64 {
	s := 64 - 8*size
	return int64(x<<s) >> s
}

// value returns the reader of an integer type: the number as 64 bits, with its
// sign.
func value(t ir.Type) func(uint64) uint64 {
	switch {
	case t.Size() == 8:
		return func(x uint64) uint64 { return x }
	case t.Signed():
		s := 64 - 8*t.Size()
		return func(x uint64) uint64 { return uint64(int64(x<<s) >> s) }
	}
	m := ones(t)
	return func(x uint64) uint64 { return x & m }
}

// truncated is the identity on a type's bits.
func truncated(t ir.Type) scalar {
	m := ones(t)
	return func(a, _, _, _ uint64) uint64 { return a & m }
}

// pairwise makes the meaning for a pair of 16 bits of that for one.
func pairwise(f scalar) scalar {
	if f == nil {
		return nil
	}
	return func(a, b, c, d uint64) uint64 {
		lo := f(a&0xffff, b&0xffff, c&0xffff, d)
		hi := f(a>>16&0xffff, b>>16&0xffff, c>>16&0xffff, d)
		return hi<<16 | lo
	}
}

// element is the type of a pair's halves; other types are their own.
func element(t ir.Type) (elem ir.Type, pair bool) {
	switch t {
	case ir.U16x2:
		return ir.U16, true
	case ir.S16x2:
		return ir.S16, true
	case ir.F16x2:
		return ir.F16, true
	case ir.BF16x2:
		return ir.BF16, true
	}
	return t, false
}

// halfwise builds the meaning of a pair with the builder for one of its halves.
func halfwise(in *ir.Instr, build func(*ir.Instr) scalar) (scalar, bool) {
	elem, pair := element(in.Type)
	if !pair {
		return nil, false
	}
	one := *in
	one.Type = elem
	return pairwise(build(&one)), true
}
