// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"crypto/sha256"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Physics, cryptography, signals, and what neural networks are made of.
var numericCases = []entry{
	{"nbody", nbody},
	{"sha256", sha256Case},
	{"crc32", crc32Case},
	{"chacha", chacha},
	{"fft", fft},
	{"softmax", softmax},
	{"attention", attention},
	{"layernorm", layernorm},
}

func nbody(r *rand.Rand) *Case {
	const n = 64
	const dt = float32(0.01)
	body := floats(r, 4*n, 1)
	var want []float32
	for i := range n {
		me := body[4*i : 4*i+4]
		var acc [3]float32
		for j := range n {
			other := body[4*j : 4*j+4]
			var d [3]float32
			for k := range d {
				d[k] = other[k] - me[k]
			}
			r2 := fma32(d[0], d[0], fma32(d[1], d[1], fma32(d[2], d[2], 0.01)))
			inv := 1 / sqrt32(r2)
			s := float32(float32(float32(other[3]*inv)*inv) * inv)
			for k := range d {
				acc[k] = fma32(d[k], s, acc[k])
			}
		}
		want = append(want, fma32(acc[0], dt, me[0]), fma32(acc[1], dt, me[1]), fma32(acc[2], dt, me[2]), me[3])
	}
	return &Case{Launches: []Launch{launch(n/32, 32, in(body), out(want), uint32(n), dt)}}
}

func sha256Case(r *rand.Rand) *Case {
	const n = 40
	messages, lengths := bytesOf(r, n*55), below(r, n, 56)
	var want []uint8
	for i, length := range lengths {
		digest := sha256.Sum256(messages[i*55 : i*55+int(length)])
		want = append(want, digest[:]...)
	}
	return &Case{Launches: []Launch{launch(2, 32, in(messages), in(lengths), out(want), uint32(n))}}
}

func crc32Case(r *rand.Rand) *Case {
	const n, length = 64, 50
	data := bytesOf(r, n*length)
	var want []uint32
	for message := range slices.Chunk(data, length) {
		want = append(want, crc32.ChecksumIEEE(message))
	}
	return &Case{Launches: []Launch{launch(2, 32, in(data), out(want), uint32(length))}}
}

// chachaBlock is a block of the stream, after RFC 8439, 2.3.
func chachaBlock(key []uint32, counter uint32) (x [16]uint32) {
	start := [16]uint32{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}
	copy(start[4:], key[:8])
	start[12] = counter
	copy(start[13:], key[8:])
	x = start
	quarter := func(a, b, c, d int) {
		for _, s := range [2][2]int{{16, 12}, {8, 7}} {
			x[a] += x[b]
			x[d] = bits.RotateLeft32(x[d]^x[a], s[0])
			x[c] += x[d]
			x[b] = bits.RotateLeft32(x[b]^x[c], s[1])
		}
	}
	for range 10 {
		for i := range 4 {
			quarter(i, 4+i, 8+i, 12+i)
		}
		for i := range 4 {
			quarter(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4)
		}
	}
	for i := range x {
		x[i] += start[i]
	}
	return x
}

func chacha(r *rand.Rand) *Case {
	const n = 50
	key, text := words(r, 11), words(r, 16*n)
	want := slices.Clone(text)
	for i := range want {
		want[i] ^= chachaBlock(key, uint32(i/16))[i%16]
	}
	return &Case{Launches: []Launch{launch(1, 64, in(key), inout(text, want), uint32(n))}}
}

func fft(r *rand.Rand) *Case {
	const n, blocks = 128, 2
	data := floats(r, 2*blocks*n, 1)
	roots := apply(n, func(i int) float32 { // of the circle's n parts the first half: cos and sin
		angle := -2 * math.Pi * float64(i/2) / n
		if i%2 == 0 {
			return float32(math.Cos(angle))
		}
		return float32(math.Sin(angle))
	})
	var want []float32
	for part := range slices.Chunk(data, 2*n) {
		v := make([]float32, 2*n)
		for i := range n {
			j := int(bits.Reverse32(uint32(i)) >> 25)
			v[2*j], v[2*j+1] = part[2*i], part[2*i+1]
		}
		for size := 1; size < n; size *= 2 {
			for t := range n / 2 {
				k := t % size
				a := 2 * (t/size*2*size + k)
				b := a + 2*size
				wx, wy := roots[2*k*(n/2/size)], roots[2*k*(n/2/size)+1]
				re := fma32(wx, v[b], -float32(wy*v[b+1]))
				im := fma32(wx, v[b+1], float32(wy*v[b]))
				v[a], v[a+1], v[b], v[b+1] = v[a]+re, v[a+1]+im, v[a]-re, v[a+1]-im
			}
		}
		want = append(want, v...)
	}
	return &Case{Launches: []Launch{launch(blocks, n/2, in(data), out(want), in(roots))}}
}

func softmax(r *rand.Rand) *Case {
	const rows, n = 3, 150
	data := floats(r, rows*n, 5)
	var want []float32
	for row := range slices.Chunk(data, n) {
		most, sum := float64(slices.Max(row)), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - most)
		}
		for _, v := range row {
			want = append(want, float32(math.Exp(float64(v)-most)/sum))
		}
	}
	// ex2.approx is 2 ulp off, its argument up to 15 has half an ulp, or 2^-21.
	o := out(want).within(Error{Rel: 0x1p-19})
	return &Case{Launches: []Launch{launch(rows, 64, in(data), o, uint32(n))}}
}

func attention(r *rand.Rand) *Case {
	const queries, keys, d = 64, 48, 16
	q, k, v := floats(r, queries*d, 2), floats(r, keys*d, 2), floats(r, keys*d, 2)
	var want []float32
	for i := range queries {
		var weights [keys]float64
		most, sum := math.Inf(-1), 0.0
		for j := range keys {
			for l := range d {
				weights[j] += float64(q[i*d+l]) * float64(k[j*d+l]) / 4
			}
			most = max(most, weights[j])
		}
		for j := range keys {
			weights[j] = math.Exp(weights[j] - most)
			sum += weights[j]
		}
		for l := range d {
			s := 0.0
			for j := range keys {
				s += weights[j] * float64(v[j*d+l])
			}
			want = append(want, float32(s/sum))
		}
	}
	// Scores up to 16 have an error of 2^-20 and more, which the exponential keeps.
	o := out(want).within(Error{Abs: 0x1p-16})
	return &Case{Launches: []Launch{launch(2, 32, in(q), in(k), in(v), o, uint32(keys))}}
}

func layernorm(r *rand.Rand) *Case {
	const rows, n = 6, 70
	data, gain := floats(r, rows*n, 5), floats(r, n, 2)
	var want []float32
	for row := range slices.Chunk(data, n) {
		sum, squares := 0.0, 0.0
		for _, v := range row {
			sum += float64(v)
		}
		mean := sum / n
		for _, v := range row {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		for i, v := range row {
			want = append(want, float32((float64(v)-mean)/math.Sqrt(squares/n+1e-5)*float64(gain[i])))
		}
	}
	// rsqrt.approx is 2^-22.4 off; the mean, of sums up to 350, 2^-20.
	o := out(want).within(Error{Abs: 0x1p-19, Rel: 0x1p-20})
	return &Case{Launches: []Launch{launch(3, 64, in(data), o, in(gain), uint32(n))}}
}
