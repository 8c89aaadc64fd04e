// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import "math/rand/v2"

// What the threads of a warp do together.
var warpCases = []entry{
	{"redux", reduxCase},
	{"shuffles", shuffles},
	{"votes", votes},
}

// lanes runs f for each warp's values and each lane.
func lanes(data []uint32, f func(warp []uint32, lane uint32) []uint32) []uint32 {
	var want []uint32
	for i := range data {
		want = append(want, f(data[i/32*32:i/32*32+32], uint32(i%32))...)
	}
	return want
}

// fold folds the values of the lanes in a mask.
func fold[T uint32 | int32](warp []uint32, mask uint32, f func(a, b T) T) uint32 {
	var x T
	first := true
	for i, v := range warp {
		if mask>>i&1 == 0 {
			continue
		}
		if first {
			x, first = T(v), false
		} else {
			x = f(x, T(v))
		}
	}
	return uint32(x)
}

func smaller[T uint32 | int32](a, b T) T { return min(a, b) }
func greater[T uint32 | int32](a, b T) T { return max(a, b) }

func reduxCase(r *rand.Rand) *Case {
	const all = 0xffffffff
	data := words(r, 128)
	add := func(a, b uint32) uint32 { return a + b }
	want := lanes(data, func(w []uint32, lane uint32) []uint32 {
		o := []uint32{
			fold(w, all, add), fold(w, all, smaller[uint32]), fold(w, all, greater[int32]),
			fold(w, all, func(a, b uint32) uint32 { return a ^ b }), 0, 0, fold(w, all, greater[uint32]), w[lane],
		}
		if lane%2 == 1 {
			o[4] = fold(w, 0xaaaaaaaa, func(a, b uint32) uint32 { return a & b })
			o[5] = fold(w, 0xaaaaaaaa, add)
		} else {
			o[4] = fold(w, 0x55555555, func(a, b uint32) uint32 { return a | b })
			o[5] = fold(w, 0x55555555, smaller[int32])
		}
		return o
	})
	return &Case{Launches: []Launch{launch(2, 64, in(data), out(want))}}
}

func shuffles(r *rand.Rand) *Case {
	data := words(r, 128)
	want := lanes(data, func(w []uint32, lane uint32) []uint32 {
		// In a part of the warp, of which first is the first lane.
		get := func(from, first, last int) uint32 {
			if from < first || from > last {
				from = int(lane)
			}
			return w[from]
		}
		l := int(lane)
		part := func(width int) int { return l / width * width }
		o := []uint32{
			w[7], w[part(8)+(l*5+3)%8],
			get(l-3, 0, 31), get(l-l/4, part(16), part(16)+15),
			get(l+9, 0, 31), get(l+2, part(4), part(4)+3),
			w[lane^21], w[lane^lane&3],
			// Of the segment's mask one bit.
			get(l-5, l&8, 31), flag[uint32](l-5 >= l&8),
			// Lanes 8 to 15 of a half are behind the clamp.
			w[l], flag[uint32]((l+6)%16 < 8),
			w[lane^8], w[lane/2],
		}
		if (l+6)%16 < 8 {
			o[10] = w[part(16)+(l+6)%16]
		}
		if lane >= 16 {
			o[12] = w[lane^1] + 1
		}
		return o
	})
	return &Case{Launches: []Launch{launch(2, 64, in(data), out(want))}}
}

func votes(r *rand.Rand) *Case {
	data := words(r, 192)
	for i := range 32 {
		data[i] = data[i]&0x3ff | 5<<10 // the same above: match.all holds
		data[64+i] &^= 63
		data[96+i] |= 127
	}
	want := lanes(data, func(w []uint32, lane uint32) []uint32 {
		ballot := func(mask uint32, f func(v uint32) bool) (b uint32) {
			for i, v := range w {
				if mask>>i&1 == 1 && f(v) {
					b |= 1 << i
				}
			}
			return b
		}
		const all, third = 0xffffffff, 0x49249249
		bit := func(b uint32) func(uint32) bool { return func(v uint32) bool { return v&b != 0 } }
		below127 := ballot(all, func(v uint32) bool { return v%128 < 127 })
		multiples := ballot(all, func(v uint32) bool { return v%64 == 0 })
		o := []uint32{
			ballot(all, bit(1)), flag[uint32](multiples != 0), flag[uint32](multiples == 0),
			flag[uint32](below127 == 0 || below127 == all), all, 0, 0,
			ballot(all, func(v uint32) bool { return v&3 == w[lane]&3 }), 5,
		}
		if lane%3 == 0 {
			o[5], o[6] = ballot(third, bit(4)), flag[uint32](ballot(third, bit(8)) == third)
		} else {
			o[5], o[6] = ballot(^uint32(third), bit(16)), flag[uint32](ballot(^uint32(third), bit(32)) != 0)
		}
		if ballot(all, func(v uint32) bool { return v/1024 == w[0]/1024 }) == all {
			o[8] = all
		}
		return o
	})
	return &Case{Launches: []Launch{launch(3, 64, in(data), out(want))}}
}
