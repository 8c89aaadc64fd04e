// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// halves are 16-bit floats of all sizes, without NaN.
func halves(r *rand.Rand, f format, n int) []uint16 {
	return some(n, func() uint16 {
		for {
			v := uint16(r.Uint32())
			switch r.IntN(6) {
			case 0:
				v &= 0x8003
			case 1:
				v = f.bits(float64(r.IntN(40)-20), math.RoundToEven)
			}
			if !math.IsNaN(f.value(v)) {
				return v
			}
		}
	})
}

func float16Case(r *rand.Rand) *Case {
	round := func(x float64) uint16 { return half.bits(x, math.RoundToEven) }
	c := rows(400, 3, halves(r, half, 1200), func(v []uint16) []uint16 {
		a, b, c := half.value(v[0]), half.value(v[1]), half.value(v[2])
		f := float32(a)
		f32 := math.Float32bits(f)
		scaled := float64(f * 1.001)
		return []uint16{
			round(a + b), round(a - b), round(a * b), round(oddSum(a*b, c)), v[0] ^ 0x8000, v[0] & 0x7fff, round(clamp(half.value(round(a + b)))),
			uint16(f32 >> 16), uint16(f32), round(scaled), half.bits(scaled, math.Trunc),
			uint16(saturate(int64(saturateFloat(a)), math.MinInt16, math.MaxInt16)),
			round(float64(int(v[0]) - int(v[1]))),
			round(a + c), round(b + a), round(oddSum(a*c, b)), round(oddSum(b*a, c)),
			flag[uint16](a < b), flag[uint16](a >= c) + 2*flag[uint16](b >= a),
			round(b * 0.3),
		}
	})
	c.Buffers = []*Buffer{c.Launches[0].Args[1].(*Buffer).of(F16)}
	return c
}

// saturateFloat brings a float to where any integer of 32 bits is.
func saturateFloat(x float64) float64 { return max(-0x1p40, min(0x1p40, x)) }

func bfloatCase(r *rand.Rand) *Case {
	round := func(x float64) uint16 { return bfloat.bits(x, math.RoundToEven) }
	c := rows(400, 3, halves(r, bfloat, 1200), func(v []uint16) []uint16 {
		a, b, c := bfloat.value(v[0]), bfloat.value(v[1]), bfloat.value(v[2])
		fused := round(oddSum(a*b, c))
		relu := fused
		if relu>>15 == 1 {
			relu = 0
		}
		scaled := float64(float32(a) * 1.003)
		return []uint16{
			fused, relu, round(least(a, b)), round(most(a, b)), v[0] ^ 0x8000, v[0] & 0x7fff,
			round(scaled), bfloat.bits(scaled, math.Trunc),
			round(oddSum(a*c, b)), round(oddSum(b*a, c)),
		}
	})
	c.Buffers = []*Buffer{c.Launches[0].Args[1].(*Buffer).of(BF16)}
	return c
}

// toInteger converts as PTX does: what is too large becomes the nearest there is,
// and NaN what the type has for it.
func toInteger(x float64, mode func(float64) float64, lo, hi *big.Int, nan uint64) uint64 {
	if math.IsNaN(x) {
		return nan
	}
	if math.IsInf(x, 0) {
		x = math.Copysign(0x1p100, x)
	}
	v, _ := big.NewFloat(mode(x)).Int(nil)
	if v.Cmp(lo) < 0 {
		v = lo
	} else if v.Cmp(hi) > 0 {
		v = hi
	}
	return new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}

func convertCase(r *rand.Rand) *Case {
	const n = 500
	smallest, zero := big.NewInt(math.MinInt64), new(big.Int)
	s64, u64 := big.NewInt(math.MaxInt64), new(big.Int).SetUint64(math.MaxUint64)
	s32, u32, smallest32 := big.NewInt(math.MaxInt32), big.NewInt(math.MaxUint32), big.NewInt(math.MinInt32)
	const nan32, nan64 = 1 << 31, 1 << 63

	bits32 := func(f float32) uint64 {
		if f != f {
			return 0x7fffffff
		}
		return uint64(math.Float32bits(f))
	}
	bits64 := func(f float64) uint64 {
		if f != f {
			return 0x7fffffffffffffff
		}
		return math.Float64bits(f)
	}
	// integer rounds an integer to a float of so many digits.
	integer := func(v *big.Int, digits uint, mode big.RoundingMode) float64 {
		f, _ := new(big.Float).SetPrec(digits).SetMode(mode).SetInt(v).Float64()
		return f
	}

	floats := oddFloats(r, n)
	longs := apply(n, func(int) int64 { return int64(r.Uint64()) >> r.IntN(64) })
	doubles := some(n, func() float64 {
		if r.IntN(4) == 0 {
			return specialFloats[r.IntN(len(specialFloats))]
		}
		return math.Ldexp(2*r.Float64()-1, r.IntN(90)-10)
	})
	var want []uint64
	for i, f := range floats {
		x, d, l := float64(f), doubles[i], longs[i]
		want = append(want,
			uint64(uint32(toInteger(x, math.Trunc, smallest32, s32, 0))), toInteger(x, math.RoundToEven, zero, u32, 0),
			uint64(uint32(toInteger(x, math.Floor, smallest32, s32, 0))),
			toInteger(x, math.Ceil, smallest, s64, nan64), toInteger(x, math.Trunc, zero, u64, nan64),
			uint64(uint32(toInteger(d, math.RoundToEven, smallest32, s32, nan32))),
			toInteger(d, math.Trunc, zero, u64, nan64), toInteger(d, math.Floor, smallest, s64, nan64),
			bits32(float32(integer(big.NewInt(l), 24, big.ToNearestEven))),
			bits32(float32(integer(new(big.Int).SetUint64(uint64(l)), 24, big.ToZero))),
			bits32(float32(integer(big.NewInt(int64(int32(l))), 24, big.ToPositiveInf))),
			bits64(float64(l)), bits64(integer(new(big.Int).SetUint64(uint64(l)), 53, big.ToNegativeInf)),
			bits32(float32(d)), bits32(float32(single.round(d, math.Trunc))), bits64(x),
			bits32(float32(math.RoundToEven(x))), bits64(math.Ceil(d)), bits32(float32(clamp(x))),
			uint64(uint32(saturate(l, -128, 127))), uint64(saturate(l, 0, math.MaxUint16)), uint64(saturate(l, 0, math.MaxUint32)),
			uint64(int64(int8(l))), uint64(uint16(l)),
		)
	}
	return &Case{Launches: []Launch{launch(8, 64, in(floats), in(doubles), in(longs), out(want), uint32(n))}}
}

func approxCase(r *rand.Rand) *Case {
	const n = 500
	input := floats(r, n, 20)
	var want []float32
	for _, a := range input {
		x, p := float64(a), math.Abs(float64(a))
		angle := float64(a * 0.2)
		for _, v := range []float64{
			math.Exp2(x), math.Log2(float64(float32(p) + 2)), math.Sin(angle), math.Cos(angle),
			1 / math.Sqrt(float64(float32(p)+0.25)), 1 / float64(float32(p)+0.5), math.Sqrt(p),
			x / float64(float32(p)+1), x / float64(float32(p)+3), math.Tanh(x),
		} {
			want = append(want, float32(v))
		}
	}
	// The errors that the PTX ISA documents, and half a unit in the last place for
	// the result that we compare with.
	const ulp = 0x1p-23
	o := out(want).within(
		Error{Rel: 2*ulp + ulp/2},        // ex2.approx: 2 ulp
		Error{Rel: 0x1p-22 + ulp/2},      // lg2.approx, outside of [0.5, 2]
		Error{Abs: 0x1p-20*0.7072 + ulp}, // sin.approx: 2^-20.5 in [-2 pi, 2 pi]
		Error{Abs: 0x1p-20*0.7072 + ulp}, // cos.approx: the same
		Error{Rel: 0x1p-22 + ulp/2},      // rsqrt.approx: 2^-22.9, older devices 2^-22.4
		Error{Rel: ulp + ulp/2},          // rcp.approx: 1 ulp
		Error{Rel: ulp + ulp/2},          // sqrt.approx: 2^-23
		Error{Rel: 2*ulp + ulp/2},        // div.approx: 2 ulp
		Error{Rel: 2*ulp + ulp/2},        // div.full: 2 ulp
		Error{Rel: 0x1p-11 + ulp/2},      // tanh.approx: 2^-11
	)
	return &Case{Launches: []Launch{launch(8, 64, in(input), o, uint32(n))}}
}

func predicatesCase(r *rand.Rand) *Case {
	return rows(500, 2, oddFloats(r, 1000), func(v []float32) []uint32 {
		a, b := v[0], v[1]
		nan := a != a || b != b
		tests := []bool{
			a == b, a != b && !nan, a < b, a <= b, a > b, a >= b,
			a == b || nan, a != b, a < b || nan, a <= b || nan, a > b || nan, a >= b || nan, !nan, nan,
			// setp.gt.and p|q with x = a < 0: p = (a > b) and x, q = !(a > b) and x.
			a > b && a < 0, !(a > b) && a < 0, !(a < 0),
			a < b,
			// slct takes the first where a >= 0, and minus zero is not below.
			a >= 0,
			a != 0 && max(a, -a) < 0x1p-126,
			!math.IsInf(float64(b), 0) && b == b,
			a < b, (a < b) == (b < 1),
		}
		var w uint32
		for i, t := range tests {
			w |= flag[uint32](t) << i
		}
		return []uint32{w}
	})
}

func vectorsCase(r *rand.Rand) *Case {
	const n = 200
	v, pixels, d := words(r, 4*n), bytesOf(r, 4*n), doubles(r, 2*n, 10)
	var wantV []uint32
	var wantP []uint8
	var wantD []float64
	for i := range n {
		x, y, z, w := v[4*i], v[4*i+1], v[4*i+2], v[4*i+3]
		wantV = append(wantV, w+1, z^x, y-x, x)
		p := pixels[4*i:]
		grey := uint8((77*int(p[0]) + 150*int(p[1]) + 29*int(p[2])) >> 8)
		wantP = append(wantP, grey, 255-grey, grey+p[3], p[3])
		wantD = append(wantD, d[2*i+1], d[2*i]+d[2*i+1])
	}
	return &Case{Launches: []Launch{launch(2, 128, in(v), out(wantV), in(pixels), out(wantP), in(d), out(wantD), uint32(n))}}
}
