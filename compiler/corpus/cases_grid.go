// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import "math/rand/v2"

// Stencils and pictures.
var gridCases = []entry{
	{"stencil1d", stencil1d},
	{"heat", heat},
	{"life", life},
	{"convolution", convolution},
	{"mandelbrot", mandelbrot},
}

// square is a launch over a picture, in blocks of 16 by 8.
func square(w, h int, args ...any) Launch {
	return Launch{Grid: [3]uint32{uint32(w+15) / 16, uint32(h+7) / 8}, Block: [3]uint32{16, 8}, Args: args}
}

func stencil1d(r *rand.Rand) *Case {
	const n = 300
	data := some(n, func() int32 { return int32(r.Uint32()) })
	want := apply(n, func(i int) (s int32) {
		for j := max(0, i-3); j <= min(n-1, i+3); j++ {
			s += data[j]
		}
		return s
	})
	return &Case{Launches: []Launch{launch(3, 128, in(data), out(want), uint32(n))}}
}

func heat(r *rand.Rand) *Case {
	const n, blocks, rounds = 16, 2, 12
	grid := floats(r, blocks*n*n, 100)
	v := append([]float32(nil), grid...)
	for range rounds {
		next := append([]float32(nil), v...)
		for i := range v {
			if x, y := i%n, i/n%n; x > 0 && y > 0 && x < n-1 && y < n-1 {
				next[i] = 0.25 * ((v[i-n] + v[i+n]) + (v[i-1] + v[i+1]))
			}
		}
		v = next
	}
	return &Case{Launches: []Launch{{Grid: [3]uint32{blocks}, Block: [3]uint32{n, n}, Args: []any{inout(grid, v), uint32(rounds)}}}}
}

func life(r *rand.Rand) *Case {
	const w, h, rounds = 40, 21, 4
	states := [][]uint8{some(w*h, func() uint8 { return uint8(r.IntN(2)) })}
	for i := range rounds {
		now := states[i]
		states = append(states, apply(w*h, func(i int) uint8 {
			alive := -int(now[i])
			for dy := h - 1; dy <= h+1; dy++ {
				for dx := w - 1; dx <= w+1; dx++ {
					alive += int(now[(i/w+dy)%h*w+(i%w+dx)%w])
				}
			}
			return flag[uint8](alive == 3 || alive == 2 && now[i] == 1)
		}))
	}
	a, b := inout(states[0], states[rounds]), out(states[rounds-1])
	c := &Case{}
	for i := range rounds {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		c.Launches = append(c.Launches, square(w, h, from, to, uint32(w), uint32(h)))
	}
	return c
}

func convolution(r *rand.Rand) *Case {
	const w, h = 35, 20
	picture, filter := floats(r, w*h, 1), floats(r, 25, 1)
	want := apply(w*h, func(i int) (s float32) {
		for dy := -2; dy <= 2; dy++ {
			for dx := -2; dx <= 2; dx++ {
				x, y := min(max(i%w+dx, 0), w-1), min(max(i/w+dy, 0), h-1)
				s = fma32(picture[y*w+x], filter[(dy+2)*5+dx+2], s)
			}
		}
		return s
	})
	return &Case{
		Buffers:  []*Buffer{in(filter).variable("filter")},
		Launches: []Launch{square(w, h, in(picture), out(want), uint32(w), uint32(h))},
	}
}

func mandelbrot(*rand.Rand) *Case {
	const w, h, limit = 48, 32, 60
	const scale = float32(0.0625)
	want := apply(w*h, func(i int) uint16 {
		cx, cy := fma32(float32(i%w), scale, -2), fma32(float32(i/w), scale, -1.2)
		var x, y float32
		for k := range uint16(limit) {
			xx, yy := x*x, y*y
			if float32(xx+yy) > 4 {
				return k
			}
			y = fma32(2*x, y, cy)
			x = float32(float32(xx-yy) + cx)
		}
		return limit
	})
	return &Case{Launches: []Launch{square(w, h, out(want), uint32(w), uint32(h), scale, uint32(limit))}}
}
