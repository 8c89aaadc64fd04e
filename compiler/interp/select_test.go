// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"
	"testing"
)

// results runs lines that leave something in %x, each for itself, with one thread.
func results(t *testing.T, cases []struct {
	body string
	want uint32
},
) {
	t.Helper()
	for _, c := range cases {
		b := newBench(t, 4, kernel("  reg b128 %w\n  reg b64 %f", c.body+"\n  st.global.u32 [%p], %x\n  exit\n"))
		b.run(t, 1, 1)
		if got := b.words()[0]; got != c.want {
			t.Errorf("%s\ngot %#x, want %#x", c.body, got, c.want)
		}
	}
}

func TestSelect(t *testing.T) {
	results(t, []struct {
		body string
		want uint32
	}{
		// Both results of a comparison, combined with a third.
		{"  %q, %q1 = setp.lt.u32 1, 2\n  %x = selp.b32 1, 0, %q\n  @%q1 %x = mov.u32 9", 1},
		{"  %q2 = setp.eq.u32 1, 1\n  %q, %q1 = setp.gt.and.u32 1, 2, %q2\n  %x = selp.b32 1, 0, %q\n  @%q1 %x = add.u32 %x, 8", 8},
		{"  %q2 = setp.eq.u32 1, 1\n  %q, %q1 = setp.gt.or.u32 1, 2, !%q2\n  %x = selp.b32 1, 0, %q\n  @%q1 %x = add.u32 %x, 8", 8},
		{"  %q2 = setp.eq.u32 1, 1\n  %q, %q1 = setp.lt.xor.u32 1, 2, %q2\n  %x = selp.b32 1, 0, %q\n  @%q1 %x = add.u32 %x, 8", 8},
		// The halves of a pair.
		{"  %q, %q1 = setp.lt.f16x2 0x40003c00, 0x3c004000\n  %x = selp.b32 1, 0, %q\n  @%q1 %x = add.u32 %x, 8", 1},
		{"  %x = set.lt.u32.s32 0xffffffff, 0", 0xffffffff},
		{"  %x = set.lt.f32.s32 0xffffffff, 0", 0x3f800000},
		{"  %x = set.gt.f32.s32 0xffffffff, 0", 0},
		{"  %x = set.lt.f16x2.f16x2 0x40003c00, 0x3c004000", 0x00003c00},
		{"  %x = set.gt.bf16x2.bf16x2 0x40003f80, 0x3f804000", 0x3f800000},
		{"  %q = setp.eq.u32 1, 1\n  %x = set.gt.or.u32.u32 1, 2, %q", 0xffffffff},
		{"  %q = testp.infinite.f32 0x7f800000\n  %x = selp.b32 3, 4, %q", 3},
		{"  %q = testp.subnormal.f64 1\n  %x = selp.b32 3, 4, !%q", 4},
	})
}

func TestPredicates(t *testing.T) {
	results(t, []struct {
		body string
		want uint32
	}{
		{"  %q = mov.pred 1\n  %q1 = not.pred %q\n  %q2 = or.pred %q, %q1\n  %x = selp.b32 1, 0, %q2\n  @%q1 %x = mov.u32 9", 1},
		{"  %q = mov.pred 1\n  %q1 = mov.pred !%q\n  %q2 = xor.pred %q, %q1\n  %x = selp.b32 1, 0, %q2", 1},
		{"  %q = mov.pred 1\n  %q1 = mov.pred 0\n  %q2 = and.pred %q, %q1\n  %x = selp.b32 1, 0, %q2", 0},
		{"  %q = mov.pred 1\n  %q1 = mov.pred 0\n  %q2 = selp.pred %q1, %q, %q1\n  %x = selp.b32 1, 0, %q2", 1},
		{"  %x = mov.u32 5\n  %q = mov.pred 0\n  @%q %x = mov.u32 6", 5},
		{"  %x = mov.u32 5\n  %q = mov.pred 0\n  @!%q %x = mov.u32 6", 6},
		{"  %x, %q = lop3.lut_80.and.b32 15, 6, 12, 1\n  @%q %x = add.u32 %x, 100", 104},
		{"  %x, %q = lop3.lut_80.or.b32 1, 6, 8, 0\n  @%q %x = add.u32 %x, 100", 0},
	})
}

func TestParts(t *testing.T) {
	results(t, []struct {
		body string
		want uint32
	}{
		{"  %h = mov.u16 0x1234\n  %x = pack.b32 %h, 0x5678", 0x56781234},
		{"  %h, _ = unpack.b32 0xaabbccdd\n  %x = cvt.u32.u16 %h", 0xccdd},
		{"  _, %h = unpack.b32 0xaabbccdd\n  %x = cvt.u32.u16 %h", 0xaabb},
		{"  %d = pack.b64 1, 2\n  %y, %x = unpack.b64 %d\n  %x = mad.lo.u32 %x, 16, %y", 0x21},
		{"  %x = mov.u32 7\n  %d = mov.u64 0x300000004\n  %x, %y = unpack.b64 %d\n  %x = mad.lo.u32 %x, 16, %y", 0x43},
		{"  %d = mov.u64 5\n  %e = mov.u64 0x600000007\n  %w = pack.b128 %d, %e\n  _, %f = unpack.b128 %w\n  %x = cvt.u32.u64 %f", 7},
		{"  %w = pack.b128 1, 2, 3, 4\n  %x, %y, %z, %v = unpack.b128 %w\n  %x = mad.lo.u32 %x, 10, %y\n  %x = mad.lo.u32 %x, 10, %z\n  %x = mad.lo.u32 %x, 10, %v", 1234},
		// Registers wider than a type: extended by its sign.
		{"  %x = cvt.s8.s32 0x1ff", 0xffffffff},
		{"  %x = cvt.u8.s32 0x1ff", 0xff},
	})
}

// Special registers, in a grid and blocks of three dimensions.
func TestSpecialRegisters(t *testing.T) {
	regs := []string{"tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z", "laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_le", "lanemask_ge", "lanemask_gt", "warpsz", "smid", "nsmid", "gridid"}
	body := "  %x = mov.u32 tid.y\n  %y = mov.u32 tid.z\n  %x = mad.lo.u32 %y, 4, %x\n  %t = mad.lo.u32 %x, 5, %t\n" +
		"  %x = mov.u32 ctaid.y\n  %x = mad.lo.u32 %x, 2, %b\n  %y = mov.u32 ctaid.z\n  %x = mad.lo.u32 %y, 6, %x\n  %x = mad.lo.u32 %x, 60, %t\n" +
		"  %o = mul.wide.u32 %x, 128\n  %at = add.u64 %p, %o\n"
	for i, r := range regs {
		if r == "gridid" {
			body += "  %d = mov.u64 gridid\n  %x = cvt.u32.u64 %d\n"
		} else {
			body += "  %x = mov.u32 " + r + "\n"
		}
		body += fmt.Sprintf("  st.global.u32 [%%at+%d], %%x\n", 4*i)
	}
	b := newBench(t, 128*12*60, kernel("", body+"  exit\n"))
	l := b.launch(1, 1)
	l.Grid, l.Block = [3]uint32{2, 3, 2}, [3]uint32{5, 4, 3}
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for block := range uint32(12) {
		for thread := range uint32(60) {
			lane := thread % 32
			want := []uint32{
				thread % 5, thread / 5 % 4, thread / 20, 5, 4, 3,
				block % 2, block / 2 % 3, block / 6, 2, 3, 2,
				lane, thread / 32, 2, 1 << lane, 2<<lane - 1, -(1 << lane), -(2 << lane), 32, 0, 1, 0,
			}
			for i, w := range want {
				if got := le.Uint32(b.buffer[128*(60*block+thread)+4*uint32(i):]); got != w {
					t.Fatalf("%s of block %d, thread %d: got %#x, want %#x", regs[i], block, thread, got, w)
				}
			}
		}
	}
}

// Clocks grow.
func TestClocks(t *testing.T) {
	results(t, []struct {
		body string
		want uint32
	}{
		{"  %x = mov.u32 clock\n  %y = mov.u32 clock\n  %q = setp.gt.u32 %y, %x\n  %x = selp.b32 1, 0, %q", 1},
		{"  %d = mov.u64 clock64\n  %e = mov.u64 clock64\n  %q = setp.gt.u64 %e, %d\n  %x = selp.b32 1, 0, %q", 1},
		{"  %d = mov.u64 globaltimer\n  nanosleep 100\n  %e = mov.u64 globaltimer\n  %q = setp.gt.u64 %e, %d\n  %x = selp.b32 1, 0, %q", 1},
	})
}
