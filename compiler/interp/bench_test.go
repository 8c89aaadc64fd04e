// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "testing"

// A product of two matrices of 64 x 64, plain: 64 blocks of 8 x 8 threads; about
// 3.5 million instructions of threads.
const product64x64 = `
  %x = shr.u32 %t, 3
  %y = and.b32 %t, 7
  %z = shr.u32 %b, 3
  %v = and.b32 %b, 7
  %x = mad.lo.u32 %z, 8, %x
  %y = mad.lo.u32 %v, 8, %y
  %o = mul.wide.u32 %x, 256
  %d = add.u64 %p, %o
  %o = mul.wide.u32 %y, 4
  %e = add.u64 %p, %o
  %i = mov.u32 0
  %z = mov.u32 0
  br loop
loop:
  %v = ld.global.f32 [%d]
  %n = ld.global.f32 [%e+16384]
  %z = fma.rn.f32 %v, %n, %z
  %d = add.u64 %d, 4
  %e = add.u64 %e, 256
  %i = add.u32 %i, 1
  %q = setp.lt.u32 %i, 64
  @%q br loop, done
done:
  %o = mul.wide.u32 %x, 256
  %at = add.u64 %p, %o
  %o = mul.wide.u32 %y, 4
  %at = add.u64 %at, %o
  st.global.f32 [%at+32768], %z
  exit
`

func TestMatrixProduct(t *testing.T) {
	b := newBench(t, 3*16384, kernel("", product64x64))
	r := seeded()
	for i := range 8192 {
		le.PutUint32(b.buffer[4*i:], uint32(single(r.IntN(64)-32)))
	}
	b.run(t, 64, 64)
	at := func(m, row, col int) int {
		return int(f32(uint64(le.Uint32(b.buffer[16384*m+256*row+4*col:]))))
	}
	for row := range 64 {
		for col := range 64 {
			want := 0
			for k := range 64 {
				want += at(0, row, k) * at(1, k, col)
			}
			if got := at(2, row, col); got != want {
				t.Fatalf("[%d][%d]: got %d, want %d", row, col, got, want)
			}
		}
	}
}

func BenchmarkMatrixProduct(b *testing.B) {
	bench := newBench(b, 3*16384, kernel("", product64x64))
	for b.Loop() {
		if err := Run(b.Context(), bench.launch(64, 64)); err != nil {
			b.Fatal(err)
		}
	}
}
