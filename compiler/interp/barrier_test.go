// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "testing"

// A sum over the block in shared memory, with a barrier in a loop.
func TestReductionWithBarriers(t *testing.T) {
	b := newBench(t, 4*3, kernel("  var shared $s 1024 align 4", `
  %o = mul.wide.u32 %t, 4
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  st.shared.u32 [%e], %g
  %i = mov.u32 128
  br loop
loop:
  bar.sync.aligned 0
  %q = setp.ge.u32 %t, %i
  @%q br next, add
add:
  %o = mul.wide.u32 %i, 4
  %d = add.u64 %e, %o
  %x = ld.shared.u32 [%d]
  %y = ld.shared.u32 [%e]
  %x = add.u32 %x, %y
  st.shared.u32 [%e], %x
  br next
next:
  %i = shr.u32 %i, 1
  %q = setp.ne.u32 %i, 0
  @%q br loop, done
done:
  %q = setp.ne.u32 %t, 0
  @%q br end, store
store:
  %x = ld.shared.u32 [$s]
  %o = mul.wide.u32 %b, 4
  %at = add.u64 %p, %o
  st.global.u32 [%at], %x
  br end
end:
  exit
`))
	b.run(t, 3, 256)
	for i, got := range b.words() {
		if want := uint32(256*256*i + 255*128); got != want {
			t.Errorf("block %d: got %d, want %d", i, got, want)
		}
	}
}

func TestBarrierReductions(t *testing.T) {
	b := newBench(t, 4*96, kernel("", `
  %q = setp.lt.u32 %t, 70
  %x = bar.red_popc.aligned 0, 0, %q
  %q1 = bar.red_and.aligned 1, 0, %q
  %q2 = bar.red_or.aligned 1, 96, !%q
  %y = selp.b32 1000, 0, %q1
  %x = add.u32 %x, %y
  %y = selp.b32 2000, 0, %q2
  %x = add.u32 %x, %y
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 96)
	for i, got := range b.words() {
		if got != 2070 {
			t.Fatalf("thread %d: got %d, want 2070", i, got)
		}
	}
}

// Two warps produce, one consumes, at a named barrier.
func TestArrive(t *testing.T) {
	b := newBench(t, 4*96, kernel("  var shared $s 384 align 4", `
  %o = mul.wide.u32 %t, 4
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  %q = setp.lt.u32 %t, 64
  @%q br produce, consume
produce:
  st.shared.u32 [%e], %t
  bar.arrive.aligned 3, 96
  exit
consume:
  bar.sync.aligned 3, 96
  %x = ld.shared.u32 [%e-128]
  %y = ld.shared.u32 [%e-256]
  %x = add.u32 %x, %y
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 96)
	for i := 64; i < 96; i++ {
		if got, want := b.words()[i], uint32(2*i-96); got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

// Part of the threads end before the barrier.
func TestBarrierAfterExit(t *testing.T) {
	b := newBench(t, 4*64, kernel("", `
  %q = setp.ge.u32 %t, 37
  @%q br out, in
out:
  exit
in:
  bar.sync.aligned 0
  st.global.u32 [%at], 1
  exit
`))
	b.run(t, 1, 64)
	for i, got := range b.words() {
		if want := uint32(b2i(i < 37)); got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

// barrier.sync counts threads, not warps: the halves of a warp may come one after
// the other, by different instructions.
func TestBarrierOfThreads(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %q = setp.lt.u32 %t, 10
  @%q br low, high
low:
  st.global.u32 [%at], 1
  bar.sync 0
  br end
high:
  bar.sync 0
  br end
end:
  %x = ld.global.u32 [%p+36]
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 32)
	for i, got := range b.words() {
		if got != 1 {
			t.Errorf("thread %d: got %d", i, got)
		}
	}
}

func TestDivergentBarrier(t *testing.T) {
	within := kernel("", `
  %q = setp.lt.u32 %t, 5
  @%q br low, high
low:
  bar.sync.aligned 0 !77:3
  br end
high:
  bar.sync.aligned 0 !78:3
  br end
end:
  exit
`)
	between := kernel("", `
  %q = setp.lt.u32 %t, 32
  @%q br low, high
low:
  bar.sync.aligned 0 !77:3
  br end
high:
  bar.sync.aligned 1 !78:3
  br end
end:
  exit
`)
	missing := kernel("", `
  %q = setp.lt.u32 %t, 32
  @%q br low, end
low:
  bar.sync.aligned 0, 64 !77:3
  br end
end:
  exit
`)
	for name, text := range map[string]string{"within a warp": within, "between warps": between, "too few": missing} {
		f := newBench(t, 4*64, text).fault(t, 2, 64)
		if f.Kind != DivergentBarrier || f.Pos.Line != 77 || f.Block != 0 || f.Thread != 0 || f.Func != "k" {
			t.Errorf("%s: got %v", name, f)
		}
	}
}
