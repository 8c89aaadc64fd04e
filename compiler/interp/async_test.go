// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"bytes"
	"testing"
)

func TestAsynchronousCopies(t *testing.T) {
	b := newBench(t, 64, kernel("  var shared $s 64 align 16", `
  %e = mov.u64 $s
  st.shared.u32 [%e+28], 0xffffffff
  cp_async.bytes16 [%e], %p, 16
  %d = add.u64 %p, 8
  cp_async.bytes8 [%e+24], %d, 3
  cp_async_commit
  cp_async_wait
  %x, %y, %z, %v = ld.shared.v4.u32 [%e]
  st.global.v4.u32 [%p+32], %x, %y, %z, %v
  %x, %y = ld.shared.v2.u32 [%e+24]
  st.global.v2.u32 [%p+48], %x, %y
  exit
`))
	for i := range 16 {
		b.buffer[i] = byte(i + 1)
	}
	b.run(t, 1, 1)
	if !bytes.Equal(b.buffer[32:48], b.buffer[:16]) || !bytes.Equal(b.buffer[48:56], []byte{9, 10, 11, 0, 0, 0, 0, 0}) {
		t.Errorf("got %v", b.buffer[32:56])
	}
}

// Producers and consumers over two phases of an mbarrier.
func TestMbarrier(t *testing.T) {
	b := newBench(t, 4*64, kernel("  var shared $m 8 align 8\n  var shared $s 512 align 8", `
  %q = setp.ne.u32 %t, 0
  @%q br ready, init
init:
  mbar_init.shared [$m], 64
  br ready
ready:
  bar.sync.aligned 0
  %o = mul.wide.u32 %t, 8
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  st.shared.u32 [%e], %t
  %d = mbar_arrive.shared [$m]
  %x = mbar_pending %d
  br first
first:
  %q = mbar_test.shared [$m], %d
  @%q br over, first
over:
  %y = xor.b32 %t, 63
  %o = mul.wide.u32 %y, 8
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  %z = ld.shared.u32 [%e]
  _ = mbar_arrive.shared [$m], 1
  br second
second:
  %q = mbar_try.shared.parity [$m], 1
  @%q br end, second
end:
  %z = mad.lo.u32 %x, 1000, %z
  st.global.u32 [%at], %z
  exit
`))
	b.run(t, 1, 64)
	seen := map[uint32]bool{}
	for i, got := range b.words() {
		if got%1000 != uint32(63-i) {
			t.Errorf("thread %d: got %d of its neighbor", i, got%1000)
		}
		if n := got / 1000; n < 1 || n > 64 || seen[n] {
			t.Errorf("thread %d: %d were to come", i, n)
		}
		seen[got/1000] = true
	}
}

func TestMbarrierCounts(t *testing.T) {
	word := uint64(3<<mbarPending | 3)
	for i, c := range []struct {
		count uint64
		drop  bool
		want  uint64
	}{
		{1, false, 2<<mbarPending | 3},
		{2, false, mbarPhase | 3<<mbarPending | 3},
		{1, true, mbarPhase | 2<<mbarPending | 2},
		{2, false, 2<<mbarPending | 2},
		{99, false, mbarPhase | 2<<mbarPending | 2},
	} {
		if word = mbarArrived(word, c.count, c.drop); word != c.want {
			t.Fatalf("step %d: got %#x, want %#x", i, word, c.want)
		}
	}
}

// Every kind of atomic operation, on what 40 threads do to one place.
func TestAtomics(t *testing.T) {
	for _, c := range []struct {
		typ, op string
		init    uint64
		operand string // of %t or %x = 3*t, or a number
		want    uint64
	}{
		{"u32", "add", 5, "%t", 5 + 780},
		{"u64", "add", 1 << 33, "1", 1<<33 + 40},
		{"s32", "min", 7, "0xfffffff0", 0xfffffff0},
		{"u32", "min", 7, "0xfffffff0", 7},
		{"s32", "max", 7, "0xfffffff0", 7},
		{"u32", "max", 7, "%t", 39},
		{"u64", "max", 7, "0xffffffffffffffff", ^uint64(0)},
		{"b32", "and", 0xffff, "0xff0", 0xff0},
		{"b32", "or", 1, "%t", 63},
		{"b64", "xor", 9, "1", 9},
		{"b32", "exch", 5, "39", 39},
		{"u32", "inc", 0, "7", 40 % 8},
		{"u32", "dec", 3, "7", (3 + 8*5 - 40)},
		{"f32", "add", bits32(0.5), "0x3f800000", bits32(40.5)},
		{"f64", "add", bits64(0.5), "0x3ff0000000000000", bits64(40.5)},
		{"f16x2", "add", 0, "0x3c004000", half(40)<<16 | half(80)},
		{"bf16x2", "add", 0, "0x3f803f80", brain(40)<<16 | brain(40)},
		{"f16", "add", 0, "%h", half(20)},
	} {
		for _, space := range []string{"global", "shared"} {
			reg := map[string]string{"u64": "%d", "b64": "%d", "f64": "%d", "f16": "%h"}[c.typ]
			if reg == "" {
				reg = "%y"
			}
			at := "[%p]"
			if space == "shared" {
				at = "[$s]"
			}
			b := newBench(t, 16, kernel("  var shared $s 8 align 8", `
  %e = ld.global.u64 [%p]
  st.shared.u64 [$s], %e
  %h = mov.u16 0x3800
  bar.sync.aligned 0
  `+reg+` = atom.`+space+`.`+c.op+`.`+c.typ+` `+at+`, `+c.operand+`
  bar.sync.aligned 0
  %e = ld.shared.u64 [$s]
  st.global.u64 [%p+8], %e
  exit
`))
			le.PutUint64(b.buffer, c.init)
			b.run(t, 1, 40)
			got := le.Uint64(b.buffer)
			if space == "shared" {
				got = le.Uint64(b.buffer[8:])
			}
			if got != c.want {
				t.Errorf("%s.%s.%s: got %#x, want %#x", space, c.op, c.typ, got, c.want)
			}
		}
	}
}

func TestCompareAndSwap(t *testing.T) {
	b := newBench(t, 64, kernel("  reg b128 %w %u", `
  %h = atom.global.cas.b16 [%p], 0x1111, 0x2222
  st.global.u16 [%p+8], %h
  %h = atom.global.cas.b16 [%p], 0x1111, 0x3333
  st.global.u16 [%p+10], %h
  %d = atom.global.cas.b64 [%p], 0x2222, 7
  red.global.or.b64 [%p], 0x30
  %w = pack.b128 %d, %p
  st.global.b128 [%p+16], %w
  %u = mov.b128 %w
  %w = atom.global.exch.b128 [%p+32], %u
  %w = atom.global.cas.b128 [%p+32], %u, %w
  %d, %e = unpack.b128 %w
  st.global.v2.u64 [%p+48], %d, %e
  exit
`))
	le.PutUint64(b.buffer, 0x1111)
	le.PutUint64(b.buffer[32:], 5)
	b.run(t, 1, 1)
	for i, want := range []uint64{0x37, 0x22221111, 0x2222, bufferAddress, 5, 0, 0x2222, bufferAddress} {
		if got := le.Uint64(b.buffer[8*i:]); got != want {
			t.Errorf("word %d: got %#x, want %#x", i, got, want)
		}
	}
}

// Vectors of atomics are one access, each element for itself.
func TestVectorReduction(t *testing.T) {
	b := newBench(t, 16, kernel("", "  red.global.add.v2.f32 [%p+8], 0x3f800000, 0x40000000\n  exit\n"))
	b.run(t, 1, 3)
	if got := b.words(); got[2] != uint32(bits32(3)) || got[3] != uint32(bits32(6)) {
		t.Errorf("got %#x", got)
	}
}
