// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
)

// One instruction after the other, on numbers of all kinds.
var arithmeticCases = []entry{
	{"int16", int16Case},
	{"int32", int32Case},
	{"int64", int64Case},
	{"bits", bitsCase},
	{"carry", carryCase},
	{"dotproduct", dotproductCase},
	{"float32", float32Case},
	{"float64", float64Case},
	{"float16", float16Case},
	{"bfloat", bfloatCase},
	{"convert", convertCase},
	{"approx", approxCase},
	{"predicates", predicatesCase},
	{"vectors", vectorsCase},
}

// rows runs a kernel on n rows of inputs, each giving a row of results.
func rows[I, O number](n, width int, input []I, f func(row []I) []O) *Case {
	var want []O
	for i := range n {
		want = append(want, f(input[i*width:(i+1)*width])...)
	}
	return &Case{Launches: []Launch{launch(uint32(n+63)/64, 64, in(input), out(want), uint32(n))}}
}

// flag is 1 for true.
func flag[T number](b bool) T {
	if b {
		return 1
	}
	return 0
}

// edgy mixes random bits with those where arithmetic is at its edges.
func edgy[T uint16 | uint32 | uint64](r *rand.Rand, n int) []T {
	top := T(1) << (binary.Size(T(0))*8 - 1)
	special := []T{0, 1, 2, ^T(0), top, top - 1, top + 1, 31, 32, 33, 63, 64, 0xff}
	return some(n, func() T {
		switch r.IntN(4) {
		case 0:
			return special[r.IntN(len(special))]
		case 1:
			return T(r.Uint64N(1000))
		}
		return T(r.Uint64())
	})
}

func int16Case(r *rand.Rand) *Case {
	return rows(300, 2, edgy[uint16](r, 600), func(v []uint16) []uint16 {
		a, b := v[0], v[1]
		sa, sb := int16(a), int16(b)
		wide := uint32(int32(sa) * int32(sb))
		return []uint16{
			a + b, a - b, a * b, uint16(wide >> 16), a / (b | 1), uint16(sa % (sb | 3)),
			uint16(min(sa, sb)), max(a, b), a & b, ^a, uint16(sa >> (b & 31)), uint16(wide>>16 ^ wide),
		}
	})
}

func abs(v int64) int64 { return max(v, -v) }

func saturate(v, lo, hi int64) int64 { return max(lo, min(hi, v)) }

func int32Case(r *rand.Rand) *Case {
	return rows(300, 3, edgy[uint32](r, 900), func(v []uint32) []uint32 {
		a, b, c := v[0], v[1], v[2]
		sa, sb := int32(a), int32(b)
		low24 := func(v uint32) int64 { return int64(int32(v<<8) >> 8) }
		u24 := uint64(a&0xffffff) * uint64(b&0xffffff)
		hi := uint32(uint64(a) * uint64(b) >> 32)
		return []uint32{
			a + b, a - b, a * b, hi, uint32(int64(sa) * int64(sb) >> 32),
			a / (b | 1), a % (b | 1), uint32(sa / (sb | 3)), uint32(sa % (sb | 3)),
			min(a, b), uint32(max(sa, sb)), uint32(abs(int64(sa))),
			a << (b & 63), a >> (b & 63), uint32(sa >> (b & 63)),
			a*b + c, hi + c, uint32(abs(int64(sa)-int64(sb))) + c,
			uint32(low24(a) * low24(b)), uint32(u24 >> 16), -a,
			uint32(saturate(int64(sa)+int64(sb), math.MinInt32, math.MaxInt32)),
			uint32(saturate(int64(sa)-int64(sb), math.MinInt32, math.MaxInt32)),
			uint32(u24) + c,
		}
	})
}

func int64Case(r *rand.Rand) *Case {
	return rows(300, 2, edgy[uint64](r, 600), func(v []uint64) []uint64 {
		a, b := v[0], v[1]
		sa, sb := int64(a), int64(b)
		hi, lo := bits.Mul64(a, b)
		signedHi := new(big.Int).Mul(big.NewInt(sa), big.NewInt(sb))
		signedHi.Rsh(signedHi, 64)
		return []uint64{
			a + b, a - b, lo, hi, uint64(signedHi.Int64()), a / (b | 1), a % (b | 1), uint64(sa / (sb | 3)), uint64(sa % (sb | 3)),
			uint64(min(sa, sb)), max(a, b), a << (b & 127), uint64(sa >> (b & 127)),
			uint64(uint32(a)) * uint64(uint32(b)), uint64(int64(int32(a)) * int64(int32(b))), uint64(int64(int32(a))*int64(int32(b))) + a,
		}
	})
}

// extract is bfe: bits that lie above the number are its sign's.
func extract(v int64, width, pos, length int, signed bool) uint64 {
	var x uint64
	for i := range min(length, width) {
		from := pos + i
		if from >= width {
			if !signed {
				break
			}
			from = width - 1
		}
		x |= uint64(v) >> from & 1 << i
	}
	if signed && length > 0 && length < 64 {
		if top := min(pos+length-1, width-1); uint64(v)>>top&1 == 1 {
			x |= ^uint64(0) << min(length, width)
		}
	}
	return x
}

func lop3(a, b, c uint32, table uint8) (x uint32) {
	for i := range 32 {
		row := a>>i&1<<2 | b>>i&1<<1 | c>>i&1
		x |= uint32(table) >> row & 1 << i
	}
	return x
}

// permute picks four of eight bytes.
func permute(a, b uint32, pick [4]uint32) (x uint32) {
	v := uint64(b)<<32 | uint64(a)
	for i, p := range pick {
		byt := uint32(v>>(p&7*8)) & 0xff
		if p&8 != 0 {
			byt = byt >> 7 * 0xff
		}
		x |= byt << (8 * i)
	}
	return x
}

// find is bfind: the highest bit that is not the sign.
func find(v uint32, signed bool) uint32 {
	if signed && v>>31 == 1 {
		v = ^v
	}
	return uint32(bits.Len32(v) - 1)
}

func bitsCase(r *rand.Rand) *Case {
	return rows(300, 3, edgy[uint32](r, 900), func(v []uint32) []uint32 {
		a, b, c := v[0], v[1], v[2]
		w := uint64(a)<<32 | uint64(b)
		ffs := uint32(0)
		if a != 0 {
			ffs = uint32(bits.TrailingZeros32(a) + 1)
		}
		shiftAmount := find(a, false)
		if a != 0 {
			shiftAmount = 31 - shiftAmount
		}
		pos, length := c&31, b&15
		mask := uint32(1<<length-1) << pos
		c3, c1 := c&3, c&1
		return []uint32{
			uint32(bits.OnesCount32(a)), uint32(bits.LeadingZeros32(a)), bits.Reverse32(a), ffs,
			find(a, false), find(a, true), shiftAmount,
			uint32(extract(int64(a), 32, int(b&0xff), int(c&0xff), false)),
			uint32(extract(int64(a), 32, int(b&0xff), int(c&0x3f), true)),
			b&^mask | a<<pos&mask,
			lop3(a, b, c, 0x6a), lop3(a, b, c, 0xe8),
			permute(a, b, [4]uint32{c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15}),
			permute(a, b, [4]uint32{c3, c3 + 1, c3 + 2, c3 + 3}),
			permute(a, b, [4]uint32{2 * c1, 2*c1 + 1, 2 * c1, 2*c1 + 1}),
			uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32),
			uint32((uint64(b)<<32 | uint64(a)) >> min(c&63, 32)),
			a &^ b, a ^ b, 1 - a&1,
			uint32(bits.OnesCount64(w)), uint32(bits.LeadingZeros64(w)), uint32(bits.Reverse64(w)),
			uint32(extract(int64(w), 64, int(c&63), int(c>>8&63), true)),
		}
	})
}

func carryCase(r *rand.Rand) *Case {
	mod := new(big.Int).Lsh(big.NewInt(1), 128)
	number := func(w []uint32) *big.Int {
		x := new(big.Int)
		for i := 3; i >= 0; i-- {
			x.Or(x.Lsh(x, 32), big.NewInt(int64(w[i])))
		}
		return x
	}
	return rows(100, 8, edgy[uint32](r, 800), func(v []uint32) (o []uint32) {
		a, b := number(v[:4]), number(v[4:])
		for _, x := range []*big.Int{new(big.Int).Add(a, b), new(big.Int).Sub(a, b), new(big.Int).Mul(a, b)} {
			x.Mod(x, mod)
			for i := range 4 {
				o = append(o, uint32(new(big.Int).Rsh(x, uint(32*i)).Uint64()))
			}
		}
		return o
	})
}

func dotproductCase(r *rand.Rand) *Case {
	byteOf := func(v uint32, i int, signed bool) int64 {
		if signed {
			return int64(int8(v >> (8 * i)))
		}
		return int64(uint8(v >> (8 * i)))
	}
	wordOf := func(v uint32, i int, signed bool) int64 {
		if signed {
			return int64(int16(v >> (16 * i)))
		}
		return int64(uint16(v >> (16 * i)))
	}
	dp4a := func(a, b, c uint32, sa, sb bool) uint32 {
		s := int64(c)
		for i := range 4 {
			s += byteOf(a, i, sa) * byteOf(b, i, sb)
		}
		return uint32(s)
	}
	dp2a := func(a, b, c uint32, sa, sb bool, first int) uint32 {
		s := int64(c)
		for i := range 2 {
			s += wordOf(a, i, sa) * byteOf(b, first+i, sb)
		}
		return uint32(s)
	}
	return rows(200, 3, edgy[uint32](r, 600), func(v []uint32) []uint32 {
		a, b, c := v[0], v[1], v[2]
		return []uint32{
			dp4a(a, b, c, false, false), dp4a(a, b, c, true, true), dp4a(a, b, c, false, true),
			dp2a(a, b, c, false, false, 0), dp2a(a, b, c, true, true, 2), dp2a(a, b, c, true, false, 0),
		}
	})
}

var specialFloats = []float64{
	0, math.Copysign(0, -1), 1, -1, 1.5, math.Inf(1), math.Inf(-1), math.NaN(),
	math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -5 * math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-127, 0x1p24, 0x1p-24,
}

// oddFloats mixes numbers of all sizes with those that are no ordinary ones.
func oddFloats(r *rand.Rand, n int) []float32 {
	return some(n, func() float32 {
		switch r.IntN(8) {
		case 0:
			return float32(specialFloats[r.IntN(len(specialFloats))])
		case 1:
			return math.Float32frombits(r.Uint32()&0x807fffff | r.Uint32N(3)<<23)
		case 2:
			return float32(r.IntN(100) - 50)
		}
		return float32(math.Ldexp(2*r.Float64()-1, r.IntN(60)-30))
	})
}

// least and most are min and max as PTX has them: a number wins over NaN, and
// minus zero is below zero.
func least(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	if math.IsNaN(b) {
		return a
	}
	return math.Min(a, b)
}

func most(a, b float64) float64 { return -least(-a, -b) }

// positive leaves minus zero as it is.
func positive[T float32 | float64](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

// clamp is .sat: NaN gives 0, and so does minus zero.
func clamp(x float64) float64 {
	if math.IsNaN(x) || x <= 0 {
		return 0
	}
	return min(x, 1)
}

// flush is .ftz.
func flush(x float32) float32 {
	if x > -0x1p-126 && x < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

func float32Case(r *rand.Rand) *Case {
	// Where the sum is zero, rounding downwards gives minus zero.
	down := func(a, b float64) float64 {
		s := oddSum(a, b)
		if s == 0 && (a != 0 || math.Signbit(a) || math.Signbit(b)) {
			return math.Copysign(0, -1)
		}
		return s
	}
	to := func(x float64, mode func(float64) float64) float32 { return float32(single.round(x, mode)) }
	return rows(400, 3, oddFloats(r, 1200), func(v []float32) []float32 {
		a, b, c := v[0], v[1], v[2]
		da, db, dc := float64(a), float64(b), float64(c)
		return []float32{
			a + b, a - b, a * b, a / b, fma32(a, b, c), sqrt32(positive(a)),
			float32(least(da, db)), float32(most(da, db)), float32(math.Abs(da)), -a,
			to(oddSum(da, db), math.Trunc), to(down(da, db), math.Floor),
			to(da*db, math.Ceil), to(da*db, math.Trunc),
			to(down(da*db, dc), math.Floor), to(oddSum(da*db, dc), math.Ceil),
			to(oddQuotient(da, db), math.Trunc), to(oddRoot(positive(db)), math.Ceil), 1 / b,
			float32(clamp(float64(a + b))), float32(clamp(float64(fma32(a, b, c)))),
			flush(flush(a) + flush(b)), flush(flush(a) * flush(b)),
			// PTX has the sign in the first operand.
			float32(math.Copysign(db, da)),
		}
	})
}

func float64Case(r *rand.Rand) *Case {
	input := some(900, func() float64 {
		switch r.IntN(6) {
		case 0:
			return specialFloats[r.IntN(7)]
		case 1:
			return float64(1 + r.IntN(100))
		}
		return math.Ldexp(2*r.Float64()-1, r.IntN(60)-30)
	})
	// exact does f, rounded once, where all operands are finite; otherwise, and
	// where the result is zero, rounding doesn't matter.
	exact := func(native float64, mode big.RoundingMode, f func(z *big.Float), operands ...float64) float64 {
		for _, x := range append(operands, native) {
			if math.IsInf(x, 0) || math.IsNaN(x) {
				return native
			}
		}
		if native == 0 {
			return native
		}
		z := new(big.Float).SetPrec(53).SetMode(mode)
		f(z)
		x, _ := z.Float64()
		return x
	}
	number := big.NewFloat
	return rows(300, 3, input, func(v []float64) []float64 {
		a, b, c := v[0], v[1], v[2]
		root, size := math.Sqrt(positive(b)), positive(b)
		if math.FMA(-root, root, size) < 0 {
			root = math.Nextafter(root, 0)
		}
		sum := exact(a+b, big.ToZero, func(z *big.Float) { z.Add(number(a), number(b)) }, a, b)
		product := exact(a*b, big.ToNegativeInf, func(z *big.Float) { z.Mul(number(a), number(b)) }, a, b)
		fused := exact(math.FMA(a, b, c), big.ToPositiveInf, func(z *big.Float) {
			z.Add(new(big.Float).SetPrec(106).Mul(number(a), number(b)), number(c))
		}, a, b, c)
		quotient := exact(a/b, big.ToNegativeInf, func(z *big.Float) { z.Quo(number(a), number(b)) }, a, b)
		reciprocal := exact(1/b, big.ToPositiveInf, func(z *big.Float) { z.Quo(number(1), number(b)) }, b)
		return []float64{
			a + b, a - b, a * b, a / b, math.FMA(a, b, c), math.Sqrt(positive(a)), least(a, b), most(a, b), math.Abs(a),
			sum, product, fused, quotient, root, reciprocal, math.Copysign(b, a),
		}
	})
}
