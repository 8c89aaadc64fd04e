// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// A format is a binary floating point format of at most 64 bits, as IEEE 754
// has them: sign, exponent, fraction.
type format struct {
	frac uint // bits of the fraction
	exp  uint // bits of the exponent
	nan  uint64
	// finite formats (e4m3) have no infinity: what would be one is a number, but
	// for the one with all bits set, which is NaN.
	finite bool
	// payload: a NaN that comes in goes out, quiet.
	payload bool
}

// NaN as PTX has it: .f32 and the 16-bit types have one. Those of .f64 pass
// through operations; an invalid operation makes the negative quiet one.
var (
	binary64 = &format{frac: 52, exp: 11, nan: 0xfff8000000000000, payload: true}
	binary32 = &format{frac: 23, exp: 8, nan: 0x7fffffff}
	binary16 = &format{frac: 10, exp: 5, nan: 0x7fff}
	bfloat16 = &format{frac: 7, exp: 8, nan: 0x7fff}
	// tfloat32 is tf32 without the 13 bits below it that it has in a register.
	tfloat32 = &format{frac: 10, exp: 8, nan: 0x3ffff}
	e4m3     = &format{frac: 3, exp: 4, nan: 0x7f, finite: true}
	e5m2     = &format{frac: 2, exp: 5, nan: 0x7f}
)

func (f *format) sign() uint64 { return 1 << (f.frac + f.exp) }
func (f *format) inf() uint64  { return (1<<f.exp - 1) << f.frac }
func (f *format) bias() int    { return 1<<(f.exp-1) - 1 }

// top is the largest number.
func (f *format) top() uint64 {
	if f.finite {
		return f.sign() - 2
	}
	return f.inf() - 1
}

func (f *format) isNaN(x uint64) bool {
	if f.finite {
		return x&(f.sign()-1) == f.sign()-1
	}
	return x&(f.sign()-1) > f.inf()
}

func (f *format) isInf(x uint64) bool  { return !f.finite && x&(f.sign()-1) == f.inf() }
func (f *format) isZero(x uint64) bool { return x&(f.sign()-1) == 0 }

func (f *format) isSubnormal(x uint64) bool {
	m := x & (f.sign() - 1)
	return m != 0 && m < 1<<f.frac
}

// flush makes a subnormal number a zero of its sign.
func (f *format) flush(x uint64) uint64 {
	if f.isSubnormal(x) {
		return x & f.sign()
	}
	return x
}

// quiet is the NaN that comes of the first of xs that is one.
func (f *format) quiet(xs ...uint64) (uint64, bool) {
	for _, x := range xs {
		if f.isNaN(x) {
			if f.payload {
				return x | 1<<(f.frac-1), true
			}
			return f.nan, true
		}
	}
	return 0, false
}

// A number is a finite one: sig * 2^exp, where sig is 0 or has its top bit set.
type number struct {
	neg bool
	exp int
	sig wide
}

// wide is an integer of 128 bits.
type wide struct{ hi, lo uint64 }

func (w wide) isZero() bool { return w.hi|w.lo == 0 }

func (w wide) less(v wide) bool { return w.hi < v.hi || w.hi == v.hi && w.lo < v.lo }

func (w wide) shl(n uint) wide {
	if n >= 64 {
		return wide{w.lo << (n - 64), 0}
	}
	return wide{w.hi<<n | w.lo>>(64-n), w.lo << n}
}

// shr tells whether a bit that is not zero was lost.
func (w wide) shr(n uint) (wide, bool) {
	switch {
	case n >= 128:
		return wide{}, !w.isZero()
	case n >= 64:
		return wide{0, w.hi >> (n - 64)}, w.lo != 0 || w.hi<<(128-n) != 0
	}
	return wide{w.hi >> n, w.lo>>n | w.hi<<(64-n)}, w.lo<<(64-n) != 0
}

func (w wide) add(v wide) wide {
	lo, c := bits.Add64(w.lo, v.lo, 0)
	hi, _ := bits.Add64(w.hi, v.hi, c)
	return wide{hi, lo}
}

func (w wide) sub(v wide) wide {
	lo, c := bits.Sub64(w.lo, v.lo, 0)
	hi, _ := bits.Sub64(w.hi, v.hi, c)
	return wide{hi, lo}
}

func (w wide) leadingZeros() uint {
	if w.hi != 0 {
		return uint(bits.LeadingZeros64(w.hi))
	}
	return 64 + uint(bits.LeadingZeros64(w.lo))
}

// normal moves the top bit to its place.
func (n number) normal() number {
	if n.sig.isZero() {
		return n
	}
	s := n.sig.leadingZeros()
	n.sig = n.sig.shl(s)
	n.exp -= int(s)
	return n
}

// open takes a finite number apart.
func (f *format) open(x uint64) number {
	m := x & (f.sign() - 1)
	e := int(m >> f.frac)
	sig := m & (1<<f.frac - 1)
	if e == 0 {
		e = 1
	} else {
		sig |= 1 << f.frac
	}
	return number{neg: x&f.sign() != 0, exp: e - f.bias() - int(f.frac), sig: wide{0, sig}}.normal()
}

// roundsUp decides what becomes of the digits that are cut off: up tells whether
// their first bit is set, rest whether another one is, odd whether the last one
// kept is.
func roundsUp(r ir.Round, neg, odd, up, rest bool) bool {
	switch r {
	case ir.RZ, ir.RZI:
		return false
	case ir.RM, ir.RMI:
		return neg && (up || rest)
	case ir.RP, ir.RPI:
		return !neg && (up || rest)
	case ir.RNA:
		return up
	}
	return up && (rest || odd)
}

// round makes the format's number of n, whose digits go on behind sig if rest.
func (f *format) round(n number, rest bool, r ir.Round) uint64 {
	var sign uint64
	if n.neg {
		sign = f.sign()
	}
	n = n.normal()
	if n.sig.isZero() {
		if rest {
			panic("BUG: a number with nothing but a rest")
		}
		return sign
	}
	// The value is 1.xxx * 2^e; below the smallest normal number there are
	// fewer bits.
	e := n.exp + 127
	keep := int(f.frac) + 1
	least := 1 - f.bias()
	if e < least {
		keep = max(keep-(least-e), -1)
	}
	// What is cut off: one bit to decide, the others only whether there are any.
	kept, _ := n.sig.shr(uint(128 - keep))
	half, lost := n.sig.shr(uint(127 - keep))
	rest = rest || lost
	if keep < 0 {
		rest, half = true, wide{}
	}
	m := kept.lo
	if e >= least {
		m += uint64(e+f.bias()-1) << f.frac // the leading bit adds one to the exponent
		if e+f.bias() >= 1<<f.exp {
			m = f.inf() << 1 // too large in any case
		}
	}
	if roundsUp(r, n.neg, kept.lo&1 != 0, half.lo&1 != 0, rest) {
		m++
	}
	if m > f.top() {
		return sign | f.overflow(r, n.neg)
	}
	return sign | m
}

// overflow is what a number becomes that is larger than all of the format's.
func (f *format) overflow(r ir.Round, neg bool) uint64 {
	down := r == ir.RZ || r == ir.RM && !neg || r == ir.RP && neg
	switch {
	case down:
		return f.top()
	case f.finite:
		return f.nan
	}
	return f.inf()
}

// zeroSign is the sign of a sum that is exactly zero.
func zeroSign(a, b bool, r ir.Round) bool {
	if a == b {
		return a
	}
	return r == ir.RM
}

// sum adds two numbers.
func (f *format) sum(a, b number, r ir.Round) uint64 {
	switch {
	case a.sig.isZero() && b.sig.isZero():
		return f.round(number{neg: zeroSign(a.neg, b.neg, r)}, false, r)
	case a.sig.isZero():
		return f.round(b, false, r)
	case b.sig.isZero():
		return f.round(a, false, r)
	}
	if a.exp < b.exp || a.exp == b.exp && a.sig.less(b.sig) {
		a, b = b, a
	}
	// Room for a carry. Significands have at most 106 bits: nothing is lost.
	a.sig, _ = a.sig.shr(1)
	b.sig, _ = b.sig.shr(1)
	var rest bool
	b.sig, rest = b.sig.shr(uint(min(a.exp-b.exp, 128)))
	a.exp++
	if a.neg == b.neg {
		a.sig = a.sig.add(b.sig)
		return f.round(a, rest, r)
	}
	a.sig = a.sig.sub(b.sig)
	if rest { // what was cut off of b is missing: one less, and a rest
		a.sig = a.sig.sub(wide{0, 1})
	}
	if a.sig.isZero() {
		a.neg = r == ir.RM
	}
	return f.round(a, rest, r)
}

func (f *format) add(a, b uint64, r ir.Round) uint64 {
	if n, is := f.quiet(a, b); is {
		return n
	}
	switch {
	case f.isInf(a) && f.isInf(b) && a != b:
		return f.nan
	case f.isInf(a):
		return a
	case f.isInf(b):
		return b
	}
	return f.sum(f.open(a), f.open(b), r)
}

func (f *format) sub(a, b uint64, r ir.Round) uint64 {
	if f.isNaN(b) {
		return f.add(a, b, r)
	}
	return f.add(a, b^f.sign(), r)
}

// product is exact.
func product(a, b number) number {
	hi, lo := bits.Mul64(a.sig.hi, b.sig.hi)
	return number{neg: a.neg != b.neg, exp: a.exp + b.exp + 128, sig: wide{hi, lo}}.normal()
}

func (f *format) mul(a, b uint64, r ir.Round) uint64 {
	if n, is := f.quiet(a, b); is {
		return n
	}
	sign := (a ^ b) & f.sign()
	if f.isInf(a) || f.isInf(b) {
		if f.isZero(a) || f.isZero(b) {
			return f.nan
		}
		return sign | f.inf()
	}
	return f.round(product(f.open(a), f.open(b)), false, r)
}

func (f *format) fma(a, b, c uint64, r ir.Round) uint64 {
	if n, is := f.quiet(a, b, c); is {
		return n
	}
	sign := (a ^ b) & f.sign()
	if f.isInf(a) || f.isInf(b) {
		if f.isZero(a) || f.isZero(b) || f.isInf(c) && c&f.sign() != sign {
			return f.nan
		}
		return sign | f.inf()
	}
	if f.isInf(c) {
		return c
	}
	return f.sum(product(f.open(a), f.open(b)), f.open(c), r)
}

func (f *format) div(a, b uint64, r ir.Round) uint64 {
	if n, is := f.quiet(a, b); is {
		return n
	}
	sign := (a ^ b) & f.sign()
	switch {
	case f.isInf(a) && f.isInf(b), f.isZero(a) && f.isZero(b):
		return f.nan
	case f.isInf(a), f.isZero(b):
		return sign | f.inf()
	case f.isInf(b), f.isZero(a):
		return sign
	}
	x, y := f.open(a), f.open(b)
	// Both significands have their top bit set: the quotient fits.
	q, rem := bits.Div64(x.sig.hi>>1, x.sig.hi<<63, y.sig.hi)
	return f.round(number{neg: sign != 0, exp: x.exp - y.exp - 63, sig: wide{0, q}}, rem != 0, r)
}

func (f *format) sqrt(a uint64, r ir.Round) uint64 {
	if n, is := f.quiet(a); is {
		return n
	}
	switch {
	case f.isZero(a):
		return a
	case a&f.sign() != 0:
		return f.nan
	case f.isInf(a):
		return a
	}
	x := f.open(a)
	if x.exp&1 != 0 {
		x.sig, _ = x.sig.shr(1)
		x.exp++
	}
	root, rest := x.sig.sqrt()
	return f.round(number{exp: x.exp / 2, sig: wide{0, root}}, rest, r)
}

// sqrt is the integer root, and whether there is a rest.
func (w wide) sqrt() (uint64, bool) {
	var root uint64
	for bit := uint64(1) << 63; bit != 0; bit >>= 1 {
		try := root | bit
		hi, lo := bits.Mul64(try, try)
		if !w.less(wide{hi, lo}) {
			root = try
		}
	}
	hi, lo := bits.Mul64(root, root)
	return root, w != wide{hi, lo}
}

// convert makes g's number of f's.
func (f *format) convert(x uint64, g *format, r ir.Round) uint64 {
	sign := x & f.sign() >> (f.frac + f.exp) << (g.frac + g.exp)
	switch {
	case f.isNaN(x):
		if f.payload && g.payload {
			x, _ = f.quiet(x)
			return x
		}
		return g.canonical()
	case f.isInf(x):
		if g.finite {
			return sign | g.nan
		}
		return sign | g.inf()
	}
	return g.round(f.open(x), false, r)
}

// integral rounds to an integral number.
func (f *format) integral(x uint64, r ir.Round) uint64 {
	if n, is := f.quiet(x); is {
		return n
	}
	if f.isInf(x) {
		return x
	}
	n := f.open(x)
	m, rest, ok := n.integer(r)
	if !ok {
		return x // so large that it is one
	}
	if rest == 0 {
		return x
	}
	return f.round(number{neg: n.neg, sig: wide{0, m}}, false, ir.RN)
}

// integer is the magnitude of n rounded to an integer, and not 0 if that is not
// n itself; not ok: it has more than 64 bits.
func (n number) integer(r ir.Round) (m uint64, rest uint8, ok bool) {
	if n.sig.isZero() {
		return 0, 0, true
	}
	if n.exp+128 > 64 {
		return 0, 0, false
	}
	whole, _ := n.sig.shr(uint(-n.exp))
	half, lost := n.sig.shr(uint(-n.exp - 1))
	up := half.lo&1 != 0
	if up || lost {
		rest = 1
	}
	m = whole.lo
	if roundsUp(r, n.neg, m&1 != 0, up, lost) {
		m++
		if m == 0 {
			return 0, 0, false
		}
	}
	return m, rest, true
}
