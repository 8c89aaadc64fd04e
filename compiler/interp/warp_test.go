// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"testing"
)

// A loop whose length differs from thread to thread, with an inner branch: the
// Collatz steps of each thread's number.
func TestDivergentLoop(t *testing.T) {
	b := newBench(t, 4*64, kernel("", `
  %x = add.u32 %g, 1
  %i = mov.u32 0
  br head
head:
  %q = setp.eq.u32 %x, 1
  @%q br done, body
body:
  %i = add.u32 %i, 1
  %y = and.b32 %x, 1
  %q = setp.eq.u32 %y, 0
  @%q br even, odd
even:
  %x = shr.u32 %x, 1
  br head
odd:
  %x = mad.lo.u32 %x, 3, 1
  br head
done:
  st.global.u32 [%at], %i
  exit
`))
	b.run(t, 2, 32)
	for i, got := range b.words() {
		var want uint32
		for x := i + 1; x != 1; want++ {
			if x%2 == 0 {
				x /= 2
			} else {
				x = 3*x + 1
			}
		}
		if got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

// Behind an if and behind a loop the warp is whole again.
func TestReconvergence(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %i = mov.u32 0
  %q = setp.lt.u32 %t, 7
  @%q br low, high
low:
  %i = add.u32 %i, 1
  br joined
high:
  %q1 = setp.lt.u32 %t, 20
  @%q1 br middle, top
middle:
  %i = add.u32 %i, 2
  br joined
top:
  %i = add.u32 %i, 3
  br loop
loop:
  %i = add.u32 %i, 1
  %q = setp.lt.u32 %i, %t
  @%q br loop, joined
joined:
  %x = activemask
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 32)
	for i, got := range b.words() {
		if got != 0xffffffff {
			t.Errorf("thread %d: active are %#x", i, got)
		}
	}
}

// Each thread of a warp takes a lock in turn, in the way that deadlocks where a
// warp's threads make no progress of their own.
func TestSpinLockWithinAWarp(t *testing.T) {
	b := newBench(t, 8, kernel("", `
  br try
try:
  %x = atom.global.cas.b32 [%p], 0, 1
  %q = setp.ne.u32 %x, 0
  @%q br try, locked
locked:
  %y = ld.volatile.global.u32 [%p+4]
  %y = add.u32 %y, 1
  st.volatile.global.u32 [%p+4], %y
  fence.sc.gpu
  %x = atom.global.exch.b32 [%p], 0
  exit
`))
	b.run(t, 2, 64)
	if got := b.words()[1]; got != 128 {
		t.Errorf("got %d, want 128", got)
	}
}

// All blocks wait for one another: a barrier of the whole grid.
func TestBlocksThatWaitForOneAnother(t *testing.T) {
	b := newBench(t, 4+4*40, kernel("", `
  %q = setp.ne.u32 %t, 0
  @%q br after, first
first:
  red.release.gpu.global.add.u32 [%p], 1
  br spin
spin:
  %x = ld.acquire.gpu.global.u32 [%p]
  %q1 = setp.lt.u32 %x, 40
  @%q1 br spin, after
after:
  bar.sync.aligned 0
  %q = setp.ne.u32 %t, 0
  @%q br end, store
store:
  %o = mul.wide.u32 %b, 4
  %at = add.u64 %p, %o
  st.global.u32 [%at+4], %b
  br end
end:
  exit
`))
	b.run(t, 40, 64)
	for i, got := range b.words()[1:] {
		if int(got) != i {
			t.Errorf("block %d: got %d", i, got)
		}
	}
}

func TestShuffle(t *testing.T) {
	cases := []struct {
		mode string
		at   string
		mask string
		want func(l int) uint32
	}{
		{"up", "3", "0", func(l int) uint32 { return uint32(max(l-3, l*b2i(l < 3))) }},
		{"down", "5", "31", func(l int) uint32 { return uint32(l + 5*b2i(l+5 < 32)) }},
		{"bfly", "16", "31", func(l int) uint32 { return uint32(l ^ 16) }},
		{"idx", "9", "31", func(int) uint32 { return 9 }},
		// Segments of eight: the mask is 0b11000 above the clamp.
		{"idx", "9", "0x181f", func(l int) uint32 { return uint32(l&^7 | 1) }},
		{"down", "2", "0x1807", func(l int) uint32 { return uint32(l + 2*b2i(l%8 < 6)) }},
		{"up", "2", "0x1800", func(l int) uint32 { return uint32(l - 2*b2i(l%8 >= 2)) }},
	}
	for _, c := range cases {
		b := newBench(t, 4*32, kernel("", `
  %x, %q = shfl.`+c.mode+`.b32 %t, `+c.at+`, `+c.mask+`, 0xffffffff
  %y = selp.u32 0, 1000, %q
  %x = add.u32 %x, %y
  st.global.u32 [%at], %x
  exit
`))
		b.run(t, 1, 32)
		for l, got := range b.words() {
			want := c.want(l)
			if int(want) == l && c.mode != "idx" { // it reads itself: out of its segment
				want += 1000
			}
			if got != want {
				t.Errorf("shfl %s %s, %s: lane %d: got %d, want %d", c.mode, c.at, c.mask, l, got, want)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Members that come by different ways wait for one another.
func TestShuffleAfterDivergence(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %i = mov.u32 %t
  %q = setp.lt.u32 %t, 16
  @%q br low, high
low:
  %i = add.u32 %i, 1
  %q1 = setp.lt.u32 %i, 16
  @%q1 br low, joined
high:
  br joined
joined:
  %x = shfl.bfly.b32 %i, 31, 31, 0xffffffff
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 32)
	for l, got := range b.words() {
		want := uint32(16)
		if l < 16 {
			want = uint32(31 - l)
		}
		if got != want {
			t.Errorf("lane %d: got %d, want %d", l, got, want)
		}
	}
}

// The halves of a warp work for themselves, in different iterations of a loop.
func TestMasksOfHalves(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %q = setp.lt.u32 %t, 16
  %y = selp.b32 0x0000ffff, 0xffff0000, %q
  %i = redux.add.u32 %t, %y
  %q1 = vote.all %q, %y
  %z = vote.ballot %q1, %y
  %x = match.b32 %i, %y
  %x = xor.b32 %x, %z
  %x = add.u32 %x, %i
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 32)
	for l, got := range b.words() {
		want := uint32(0 + 120)
		if l >= 16 {
			want = 0xffff0000 + 376
		}
		if got != want {
			t.Errorf("lane %d: got %#x, want %#x", l, got, want)
		}
	}
}

func TestWarpOperations(t *testing.T) {
	b := newBench(t, 4*32*8, kernel("", `
  %x = and.b32 %t, 3
  %o = mul.wide.u32 %t, 32
  %at = add.u64 %p, %o
  %y = match.b32 %x, 0xffffffff
  st.global.u32 [%at], %y
  %y, %q = match.all.b32 %x, 0xffffffff
  %y = selp.b32 1, %y, %q
  st.global.u32 [%at+4], %y
  %y, %q = elect 0xffffffff
  @%q %y = add.u32 %y, 100
  st.global.u32 [%at+8], %y
  %q = setp.lt.u32 %t, 40
  %q1 = vote.all %q, 0xffffffff
  %q2 = vote.any !%q, 0xffffffff
  %q = vote.uni %q1, 0xffffffff
  %q = and.pred %q, %q1
  %q = and.pred %q, !%q2
  %y = selp.b32 1, 0, %q
  st.global.u32 [%at+12], %y
  %y = redux.max.s32 %t, 0xffffffff
  st.global.u32 [%at+16], %y
  %y = redux.xor.b32 %t, 0xffffffff
  st.global.u32 [%at+20], %y
  %y = mov.u32 lanemask_lt
  st.global.u32 [%at+24], %y
  %q = setp.gt.u32 %t, 20
  @%q %y = activemask
  st.global.u32 [%at+28], %y
  exit
`))
	b.run(t, 1, 32)
	w := b.words()
	for l := range 32 {
		third := uint32(0)
		if l == 0 {
			third = 100
		}
		below := uint32(1)<<l - 1
		last := below
		if l > 20 {
			last = 0xffe00000
		}
		for k, want := range []uint32{0x11111111 << (l & 3), 0, third, 1, 31, 0, below, last} {
			if got := w[8*l+k]; got != want {
				t.Errorf("lane %d, value %d: got %#x, want %#x", l, k, got, want)
			}
		}
	}
}

// Threads of a last warp that is not full, and threads that have ended, are not
// waited for.
func TestMembersThatEnded(t *testing.T) {
	b := newBench(t, 4*40, kernel("", `
  %q = setp.eq.u32 %t, 3
  @%q br end, go
go:
  %x = redux.add.u32 1, 0xffffffff
  st.global.u32 [%at], %x
  br end
end:
  exit
`))
	b.run(t, 1, 40)
	for i, got := range b.words() {
		want := uint32(31)
		switch {
		case i == 3:
			want = 0
		case i >= 32:
			want = 8
		}
		if got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

func TestBrx(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %x = and.b32 %t, 3
  brx %x, a, b, c, a
a:
  %y = mov.u32 10
  br end
b:
  %y = mov.u32 11
  br end
c:
  %y = mov.u32 12
  br end
end:
  %z = activemask
  %z = popc.b32 %z
  %y = add.u32 %y, %z
  st.global.u32 [%at], %y
  exit
`))
	b.run(t, 1, 32)
	for i, got := range b.words() {
		if want := []uint32{42, 43, 44, 42}[i%4]; got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

func TestDivergentWarpOperation(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %q = setp.lt.u32 %t, 16
  @%q br a, b
a:
  %x = shfl.idx.b32 %t, 0, 31, 0xffffffff
  br end
b:
  bar.sync 1, 64
  br end
end:
  exit
`))
	if f := b.fault(t, 1, 32); f.Kind != DivergentWarp || f.Thread != 0 {
		t.Errorf("got %v", f)
	}
}

// The order puts loops together and every block behind those that lead to it.
func TestOrder(t *testing.T) {
	b := newBench(t, 4, kernel("", `
  br head
exit1:
  exit
latch:
  br head
body:
  @%q1 br latch, inner
head:
  @%q br exit1, pre
pre:
  @%q br latch, body
inner:
  @%q2 br inner, latch
`))
	var got string
	for _, blk := range order(b.module.Funcs[0].Blocks[0]) {
		got += " " + blk.Name
	}
	if want := " entry head pre body inner latch exit1"; got != want {
		t.Errorf("got%s, want%s", got, want)
	}
}
