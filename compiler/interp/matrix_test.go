// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"
	"strings"
	"testing"
)

// A position is where element i of lane l is, as PTX ISA 9.7.14.5 writes it down
// for each shape.
type position func(l, i int) (row, col int)

type matrixCase struct {
	name    string // the modifiers of mma
	m, n, k int
	// Elements of each thread of a, b, and c; bits of each.
	elems [3]int
	bits  [4]int // of a, b, c, d
	at    [3]position
	// code makes an element of a number, of a, b, c, and number is the inverse.
	code   [3]func(int) uint64
	number func(uint64) int
	signed bool
}

func half(x int) uint64   { return binary32.convert(bits32(float32(x)), binary16, 0) }
func brain(x int) uint64  { return bits32(float32(x)) >> 16 }
func single(x int) uint64 { return bits32(float32(x)) }
func octet(x int) uint64  { return uint64(uint8(x)) }
func word(x int) uint64   { return uint64(uint32(x)) }
func double(x int) uint64 { return bits64(float64(x)) }

func accumulators(l, i int) (row, col int) { return l>>2 + 8*(i>>1), l%4*2 + i&1 }

var matrixCases = []matrixCase{
	{
		name: "m16n8k16.row.b_col.f32_f16_f16_f32", m: 16, n: 8, k: 16, elems: [3]int{8, 4, 4}, bits: [4]int{16, 16, 32, 32},
		at: [3]position{
			func(l, i int) (int, int) {
				row, col := l>>2, l%4*2+i&1
				if i == 2 || i == 3 || i == 6 || i == 7 {
					row += 8
				}
				if i >= 4 {
					col += 8
				}
				return row, col
			},
			func(l, i int) (int, int) {
				row := l%4*2 + i&1
				if i >= 2 {
					row += 8
				}
				return row, l >> 2
			},
			accumulators,
		},
		code:   [3]func(int) uint64{half, half, single},
		number: func(x uint64) int { return int(f32(x)) }, signed: true,
	},
	{
		name: "m16n8k8.row.b_col.f16_f16_f16_f16", m: 16, n: 8, k: 8, elems: [3]int{4, 2, 4}, bits: [4]int{16, 16, 16, 16},
		at: [3]position{
			func(l, i int) (int, int) { return l>>2 + 8*(i>>1), l%4*2 + i&1 },
			func(l, i int) (int, int) { return l%4*2 + i, l >> 2 },
			accumulators,
		},
		code:   [3]func(int) uint64{half, half, half},
		number: func(x uint64) int { return int(f32(binary16.convert(x, binary32, 0))) }, signed: true,
	},
	{
		name: "m16n8k8.row.b_col.f32_bf16_bf16_f32", m: 16, n: 8, k: 8, elems: [3]int{4, 2, 4}, bits: [4]int{16, 16, 32, 32},
		at: [3]position{
			func(l, i int) (int, int) { return l>>2 + 8*(i>>1), l%4*2 + i&1 },
			func(l, i int) (int, int) { return l%4*2 + i, l >> 2 },
			accumulators,
		},
		code:   [3]func(int) uint64{brain, brain, single},
		number: func(x uint64) int { return int(f32(x)) }, signed: true,
	},
	{
		name: "m16n8k8.row.b_col.f32_tf32_tf32_f32", m: 16, n: 8, k: 8, elems: [3]int{4, 2, 4}, bits: [4]int{32, 32, 32, 32},
		at: [3]position{
			func(l, i int) (int, int) { return l>>2 + 8*(i&1), l%4 + 4*(i>>1) },
			func(l, i int) (int, int) { return l%4 + 4*i, l >> 2 },
			accumulators,
		},
		code:   [3]func(int) uint64{single, single, single},
		number: func(x uint64) int { return int(f32(x)) }, signed: true,
	},
	{
		name: "m16n8k32.row.b_col.s32_s8_u8_s32", m: 16, n: 8, k: 32, elems: [3]int{16, 8, 4}, bits: [4]int{8, 8, 32, 32},
		at: [3]position{
			func(l, i int) (int, int) {
				row, col := l>>2, l%4*4+i&3
				if i>>2&1 != 0 {
					row += 8
				}
				if i >= 8 {
					col += 16
				}
				return row, col
			},
			func(l, i int) (int, int) {
				row := l%4*4 + i&3
				if i >= 4 {
					row += 16
				}
				return row, l >> 2
			},
			accumulators,
		},
		code:   [3]func(int) uint64{octet, octet, word},
		number: func(x uint64) int { return int(int32(x)) },
	},
	{
		name: "m8n8k16.row.b_col.s32_s8_s8_s32", m: 8, n: 8, k: 16, elems: [3]int{4, 4, 2}, bits: [4]int{8, 8, 32, 32},
		at: [3]position{
			func(l, i int) (int, int) { return l >> 2, l%4*4 + i },
			func(l, i int) (int, int) { return l%4*4 + i, l >> 2 },
			func(l, i int) (int, int) { return l >> 2, l%4*2 + i },
		},
		code:   [3]func(int) uint64{octet, octet, word},
		number: func(x uint64) int { return int(int32(x)) }, signed: true,
	},
	{
		name: "m8n8k4.row.b_col.f64_f64_f64_f64", m: 8, n: 8, k: 4, elems: [3]int{1, 1, 2}, bits: [4]int{64, 64, 64, 64},
		at: [3]position{
			func(l, _ int) (int, int) { return l >> 2, l % 4 },
			func(l, _ int) (int, int) { return l % 4, l >> 2 },
			func(l, i int) (int, int) { return l >> 2, l%4*2 + i },
		},
		code:   [3]func(int) uint64{double, double, double},
		number: func(x uint64) int { return int(f64(x)) }, signed: true,
	},
}

// pack puts element i of lane l into a buffer of registers: those of a lane one
// behind the other, from byte at on, stride bytes a lane.
func pack(buf []byte, at, stride, bits, l, i int, x uint64) {
	bit := 8*(at+stride*l) + bits*i
	switch bits {
	case 8:
		buf[bit/8] = byte(x)
	case 16:
		le.PutUint16(buf[bit/8:], uint16(x))
	case 32:
		le.PutUint32(buf[bit/8:], uint32(x))
	default:
		le.PutUint64(buf[bit/8:], x)
	}
}

func unpack(buf []byte, at, stride, bits, l, i int) uint64 {
	b := buf[(8*(at+stride*l)+bits*i)/8:]
	return get(b[:bits/8])
}

func TestMatrixProducts(t *testing.T) {
	for _, c := range matrixCases {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

func (c *matrixCase) run(t *testing.T) {
	const stride = 128 // bytes for each lane: a, b, c, d, 32 each
	reg, name := 32, "%r"
	if c.bits[0] == 64 {
		reg, name = 64, "%d"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "  %%o = mul.wide.u32 %%t, %d\n  %%at = add.u64 %%p, %%o\n", stride)
	var regs [4][]string
	n := 0
	for part := range 4 {
		elems := c.elems[min(part, 2)]
		for r := range elems * c.bits[part] / reg {
			v := fmt.Sprintf("%s%d", name, n)
			n++
			regs[part] = append(regs[part], v)
			if part < 3 {
				fmt.Fprintf(&text, "  %s = ld.global.u%d [%%at+%d]\n", v, reg, 32*part+r*reg/8)
			}
		}
	}
	fmt.Fprintf(&text, "  %s = mma.%s %s\n", strings.Join(regs[3], ", "), c.name, strings.Join(append(append(regs[0], regs[1]...), regs[2]...), ", "))
	for r, v := range regs[3] {
		fmt.Fprintf(&text, "  st.global.u%d [%%at+%d], %s\n", reg, 96+r*reg/8, v)
	}
	text.WriteString("  exit\n")
	var all []string
	for r := range n {
		all = append(all, fmt.Sprintf("%s%d", name, r))
	}
	b := newBench(t, stride*32, kernel(fmt.Sprintf("  reg b%d %s", reg, strings.Join(all, " ")), text.String()))

	r := seeded()
	var m [3][32][32]int
	for part := range m {
		for i := range m[part] {
			for j := range m[part][i] {
				m[part][i][j] = r.IntN(15)
				if c.signed {
					m[part][i][j] -= 7
				}
			}
		}
		for l := range 32 {
			for i := range c.elems[part] {
				row, col := c.at[part](l, i)
				pack(b.buffer, 32*part, stride, c.bits[part], l, i, c.code[part](m[part][row][col]))
			}
		}
	}
	b.run(t, 1, 32)
	for l := range 32 {
		for i := range c.elems[2] {
			row, col := c.at[2](l, i)
			want := m[2][row][col]
			for k := range c.k {
				want += m[0][row][k] * m[1][k][col]
			}
			if got := c.number(unpack(b.buffer, 96, stride, c.bits[3], l, i)); got != want {
				t.Fatalf("d[%d][%d]: got %d, want %d", row, col, got, want)
			}
		}
	}
}

// Four products at once, with each layout of a and b.
func TestQuadProducts(t *testing.T) {
	for _, layouts := range []string{"row.b_col", "row.b_row", "col.b_col", "col.b_row"} {
		b := newBench(t, 64*32, kernel("  reg b32 %a0 %a1 %b0 %b1 %c0 %c1 %c2 %c3 %c4 %c5 %c6 %c7", `
  %o = mul.wide.u32 %t, 64
  %at = add.u64 %p, %o
  %a0, %a1 = ld.global.v2.u32 [%at]
  %b0, %b1 = ld.global.v2.u32 [%at+8]
  %c0 = mov.u32 0
  %c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7 = mma.m8n8k4.`+layouts+`.f32_f16_f16_f32 %a0, %a1, %b0, %b1, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0
  st.global.v4.u32 [%at+16], %c0, %c1, %c2, %c3
  st.global.v4.u32 [%at+32], %c4, %c5, %c6, %c7
  exit
`))
		r := seeded()
		var m [2][4][8][8]int
		for l := range 32 {
			quad := l % 16 / 4
			up := 0
			if l >= 16 {
				up = 4
			}
			for i := range 4 {
				ar, ac := l%4+up, i
				if strings.HasPrefix(layouts, "col") {
					ar, ac = i+up, l%4
				}
				br, bc := i, l%4+up
				if strings.HasSuffix(layouts, "b_row") {
					br, bc = l%4, i+up
				}
				x, y := r.IntN(15)-7, r.IntN(15)-7
				m[0][quad][ar][ac], m[1][quad][br][bc] = x, y
				pack(b.buffer, 0, 64, 16, l, i, half(x))
				pack(b.buffer, 8, 64, 16, l, i, half(y))
			}
		}
		b.run(t, 1, 32)
		for l := range 32 {
			quad := l % 16 / 4
			for i := range 8 {
				row, col := l&1+i&2, i&4+l&2+i&1
				if l >= 16 {
					row += 4
				}
				want := 0
				for k := range 4 {
					want += m[0][quad][row][k] * m[1][quad][k][col]
				}
				if got := int(f32(unpack(b.buffer, 16, 64, 32, l, i))); got != want {
					t.Fatalf("%s: product %d [%d][%d]: got %d, want %d", layouts, quad, row, col, got, want)
				}
			}
		}
	}
}

func TestSingleBitsAndNibbles(t *testing.T) {
	b := newBench(t, 32*16, kernel("", `
  %o = mul.wide.u32 %t, 16
  %at = add.u64 %p, %o
  %x = mad.lo.u32 %t, 0x9e3779b9, 12345
  %y = mul.lo.u32 %x, 0x85ebca6b
  %z, %v = mma.m8n8k128.row.b_col.xor.s32_b1_b1_s32 %x, %y, 5, 5
  st.global.v2.u32 [%at], %z, %v
  %z, %v = mma.m8n8k32.row.b_col.s32_u4_s4_s32 %x, %y, 5, 5
  st.global.v2.u32 [%at+8], %z, %v
  exit
`))
	b.run(t, 1, 32)
	var x, y [32]uint32
	for l := range x {
		x[l] = uint32(l)*0x9e3779b9 + 12345
		y[l] = x[l] * 0x85ebca6b
	}
	for l := range 32 {
		for e := range 2 {
			row, col := l/4, l%4*2+e
			bits, nibbles := int32(5), int32(5)
			for k := range 128 {
				bits += int32((x[row*4+k/32] ^ y[col*4+k/32]) >> (k % 32) & 1)
			}
			for k := range 32 {
				u := int32(x[row*4+k/8] >> (k % 8 * 4) & 15)
				s := int32(y[col*4+k/8]<<(28-k%8*4)) >> 28
				nibbles += u * s
			}
			if got := int32(le.Uint32(b.buffer[16*l+4*e:])); got != bits {
				t.Errorf("bits [%d][%d]: got %d, want %d", row, col, got, bits)
			}
			if got := int32(le.Uint32(b.buffer[16*l+8+4*e:])); got != nibbles {
				t.Errorf("nibbles [%d][%d]: got %d, want %d", row, col, got, nibbles)
			}
		}
	}
}

// Load, multiply, store: whatever the layout in registers is.
func TestWmma(t *testing.T) {
	cases := []struct {
		shape   string
		m, n, k int
		regs    [3]int
		a, b    string
	}{
		{"m16n16k16", 16, 16, 16, [3]int{8, 8, 8}, "row", "col"},
		{"m16n16k16", 16, 16, 16, [3]int{8, 8, 8}, "col", "row"},
		{"m32n8k16", 32, 8, 16, [3]int{8, 8, 8}, "row", "row"},
		{"m8n32k16", 8, 32, 16, [3]int{8, 8, 8}, "col", "col"},
	}
	for _, c := range cases {
		var names []string
		list := func(prefix string, n int) string {
			var s []string
			for i := range n {
				s = append(s, fmt.Sprintf("%s%d", prefix, i))
			}
			names = append(names, s...)
			return strings.Join(s, ", ")
		}
		a, b, d := list("%A", c.regs[0]), list("%B", c.regs[1]), list("%C", c.regs[2])
		text := fmt.Sprintf(`
  %[1]s = wmma_load.%[4]s.a.%[5]s.global.f16 [%%p], 40
  %[2]s = wmma_load.%[4]s.b.%[6]s.global.f16 [%%p+4096], 40
  %[3]s = wmma_load.%[4]s.c.row.global.f32 [%%p+8192], 36
  %[3]s = wmma_mma.%[4]s.%[5]s.b_%[6]s.f32_f16_f16_f32 %[1]s, %[2]s, %[3]s
  wmma_store.%[4]s.d.col.global.f32 [%%p+16384], 36, %[3]s
  exit
`, a, b, d, c.shape, c.a, c.b)
		bench := newBench(t, 32768, kernel("  reg b32 "+strings.Join(names, " "), text))
		r := seeded()
		index := func(layout string, stride, row, col int) int {
			if layout == "row" {
				return row*stride + col
			}
			return col*stride + row
		}
		var m [3][32][32]int
		for row := range 32 {
			for col := range 32 {
				for part := range m {
					m[part][row][col] = r.IntN(15) - 7
				}
				if row < c.m && col < c.k {
					le.PutUint16(bench.buffer[2*index(c.a, 40, row, col):], uint16(half(m[0][row][col])))
				}
				if row < c.k && col < c.n {
					le.PutUint16(bench.buffer[4096+2*index(c.b, 40, row, col):], uint16(half(m[1][row][col])))
				}
				if row < c.m && col < c.n {
					le.PutUint32(bench.buffer[8192+4*index("row", 36, row, col):], uint32(single(m[2][row][col])))
				}
			}
		}
		bench.run(t, 1, 32)
		for row := range c.m {
			for col := range c.n {
				want := m[2][row][col]
				for k := range c.k {
					want += m[0][row][k] * m[1][k][col]
				}
				if got := int(f32(uint64(le.Uint32(bench.buffer[16384+4*index("col", 36, row, col):])))); got != want {
					t.Fatalf("%s %s %s: d[%d][%d]: got %d, want %d", c.shape, c.a, c.b, row, col, got, want)
				}
			}
		}
	}
}

// Rows of memory to registers and back, transposed or not.
func TestMatricesOf8x8(t *testing.T) {
	b := newBench(t, 4096, kernel("  var shared $s 1024 align 16", `
  %o = mul.wide.u32 %t, 16
  %at = add.u64 %p, %o
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  %x, %y, %z, %v = ld.global.v4.u32 [%at]
  st.shared.v4.u32 [%e], %x, %y, %z, %v
  %x, %y, %z, %v = ldmatrix.shared.v4.b16 [%e]
  st.global.v4.u32 [%at+512], %x, %y, %z, %v
  %x, %y = ldmatrix.shared.v2.trans.b16 [%e]
  %z = movmatrix.trans.b16 %x
  st.global.v4.u32 [%at+1024], %x, %y, %z, %z
  stmatrix.shared.v2.trans.b16 [%e+512], %x, %y
  %x, %y, %z, %v = ld.shared.v4.u32 [%e+512]
  st.global.v4.u32 [%at+1536], %x, %y, %z, %v
  exit
`))
	for i := range 256 {
		le.PutUint16(b.buffer[2*i:], uint16(i*77))
	}
	b.run(t, 1, 32)
	element := func(matrix, row, col int) uint16 { return uint16((64*matrix + 8*row + col) * 77) }
	at := func(base, l, reg, half int) uint16 { return le.Uint16(b.buffer[base+16*l+4*reg+2*half:]) }
	for l := range 32 {
		for h := range 2 {
			for m := range 4 {
				if got, want := at(512, l, m, h), element(m, l/4, l%4*2+h); got != want {
					t.Fatalf("matrix %d, lane %d, half %d: got %d, want %d", m, l, h, got, want)
				}
			}
			for m := range 2 {
				if got, want := at(1024, l, m, h), element(m, l%4*2+h, l/4); got != want {
					t.Fatalf("transposed matrix %d, lane %d, half %d: got %d, want %d", m, l, h, got, want)
				}
			}
			if got, want := at(1024, l, 2, h), element(0, l/4, l%4*2+h); got != want {
				t.Fatalf("transposed twice, lane %d, half %d: got %d, want %d", l, h, got, want)
			}
		}
	}
	for i := range 128 { // the two matrices that were stored are as they were
		if got, want := le.Uint16(b.buffer[1536+2*i:]), uint16(i*77); got != want {
			t.Fatalf("stored element %d: got %d, want %d", i, got, want)
		}
	}
}
