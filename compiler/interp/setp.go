// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// compare returns the meaning of a comparison of type t, or nil.
func compare(t ir.Type, cmp ir.Cmp, ftz bool) func(a, b uint64) bool {
	if f := formatOf(t); f != nil {
		return compareFloats(f, ones(t), cmp, ftz)
	}
	if t.Float() || t == ir.B128 {
		return nil
	}
	read := value(t)
	if t.Signed() {
		less := func(a, b uint64) bool { return int64(read(a)) < int64(read(b)) }
		return ordered(cmp, less, func(a, b uint64) bool { return read(a) == read(b) })
	}
	m := ones(t)
	less := func(a, b uint64) bool { return a&m < b&m }
	return ordered(cmp, less, func(a, b uint64) bool { return a&m == b&m })
}

// ordered makes a comparison of the two that a total order has.
func ordered(cmp ir.Cmp, less, equal func(a, b uint64) bool) func(a, b uint64) bool {
	switch cmp {
	case ir.EQ, ir.EQU:
		return equal
	case ir.NE, ir.NEU:
		return func(a, b uint64) bool { return !equal(a, b) }
	case ir.LT, ir.LTU:
		return less
	case ir.LE, ir.LEU:
		return func(a, b uint64) bool { return !less(b, a) }
	case ir.GT, ir.GTU:
		return func(a, b uint64) bool { return less(b, a) }
	case ir.GE, ir.GEU:
		return func(a, b uint64) bool { return !less(a, b) }
	}
	return nil
}

func compareFloats(f *format, m uint64, cmp ir.Cmp, ftz bool) func(a, b uint64) bool {
	read := func(x uint64) uint64 { return x & m }
	if ftz {
		read = func(x uint64) uint64 { return f.flush(x & m) }
	}
	unordered := func(a, b uint64) bool { return f.isNaN(a&m) || f.isNaN(b&m) }
	// Both zeroes are equal.
	key := func(x uint64) int64 {
		if x = read(x); x&f.sign() != 0 {
			return -int64(x &^ f.sign())
		}
		return int64(x)
	}
	switch cmp {
	case ir.NUM:
		return func(a, b uint64) bool { return !unordered(a, b) }
	case ir.NAN:
		return unordered
	}
	number := ordered(cmp,
		func(a, b uint64) bool { return key(a) < key(b) },
		func(a, b uint64) bool { return key(a) == key(b) })
	if number == nil {
		return nil
	}
	nan := cmp >= ir.EQU // what the comparison is where there is a NaN
	return func(a, b uint64) bool {
		if unordered(a, b) {
			return nan
		}
		return number(a, b)
	}
}

// test returns the meaning of Testp.
func test(t ir.Type, what ir.Test) func(a uint64) bool {
	f := formatOf(t)
	if f == nil {
		return nil
	}
	m := ones(t)
	finite := func(a uint64) bool { return !f.isNaN(a) && !f.isInf(a) }
	var is func(a uint64) bool
	switch what {
	case ir.Finite:
		is = finite
	case ir.Infinite:
		is = f.isInf
	case ir.Number:
		is = func(a uint64) bool { return !f.isNaN(a) }
	case ir.NotANumber:
		is = f.isNaN
	case ir.Normal: // zeroes count as normal
		is = func(a uint64) bool { return finite(a) && !f.isSubnormal(a) }
	case ir.Subnormal:
		is = f.isSubnormal
	default:
		return nil
	}
	return func(a uint64) bool { return is(a & m) }
}

// combine joins the result of a comparison with a third operand.
func combine(op ir.BoolOp, a, b uint32) uint32 {
	switch op {
	case ir.BoolAnd:
		return a & b
	case ir.BoolOr:
		return a | b
	case ir.BoolXor:
		return a ^ b
	}
	return a
}
