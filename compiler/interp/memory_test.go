// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func TestMap(t *testing.T) {
	var m Memory
	a, b := make([]byte, 100), make([]byte, 50)
	if err := m.Map(1000, a); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(1100, b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr uint64
		n    int
	}{{950, 51}, {1099, 1}, {1000, 100}, {1149, 3}, {0, 1}, {1 << 60, 8}, {math.MaxUint64 - 3, 8}, {2000, 0}} {
		if m.Map(c.addr, make([]byte, c.n)) == nil {
			t.Errorf("%d bytes at %#x were mapped", c.n, c.addr)
		}
	}
	if got := m.At(1096, 4); &got[0] != &a[96] {
		t.Error("another place")
	}
	for _, c := range []struct {
		addr uint64
		n    int
	}{{1098, 4}, {999, 1}, {1150, 1}, {math.MaxUint64, 2}} {
		if m.At(c.addr, c.n) != nil {
			t.Errorf("%d bytes at %d", c.n, c.addr)
		}
	}
	if err := m.Unmap(1000); err != nil {
		t.Fatal(err)
	}
	if m.At(1000, 1) != nil || m.At(1100, 1) == nil || m.Unmap(1000) == nil {
		t.Error("the wrong region was unmapped")
	}
}

func TestVariables(t *testing.T) {
	b := newBench(t, 4*8, `target "sm_90"
var global @count 4 align 4 = "05000000"
var const @table 16 align 16 = "01020304050607080000000000000000"
  address 8 @count+0
var shared @tile 64 align 4
var shared @dyn 0 align 16 extern
`+strings.TrimPrefix(kernel("  var local $l 32 align 8", `
  %x = ld.global.u32 [@count]
  st.global.u32 [%p], %x
  %x = ld.const.u16 [@table+2]
  st.global.u32 [%p+4], %x
  %e = ld.const.u64 [@table+8]
  %x = ld.u32 [%e]
  %x = add.u32 %x, 1
  st.global.u32 [%p+8], %x
  %e = mov.u64 @dyn
  st.shared.u32 [%e+8], 77
  %e = cvta.shared %e
  %x = ld.u32 [%e+8]
  st.global.u32 [%p+12], %x
  %e = mov.u64 $l
  %e = cvta.local %e
  st.v2.u32 [%e+16], 1, 2
  %x = ld.local.s8 [$l+20]
  st.global.u32 [%p+16], %x
  %q = isspacep.local %e
  %q1 = isspacep.global %e
  %x = selp.b32 1, 0, %q
  %y = selp.b32 2, 0, %q1
  %x = or.b32 %x, %y
  st.global.u32 [%p+20], %x
  %x = mov.u32 dynamic_smem_size
  %y = mov.u32 total_smem_size
  st.global.v2.u32 [%p+24], %x, %y
  exit
`), `target "sm_90"`))
	l := b.launch(1, 1)
	l.DynamicShared = 16
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	// @tile is not used: only @dyn is in the kernel's shared memory.
	for i, want := range []uint32{5, 0x0403, 6, 77, 2, 1, 16, 16} {
		if got := b.words()[i]; got != want {
			t.Errorf("word %d: got %#x, want %#x", i, got, want)
		}
	}
}

func TestLoadsExtend(t *testing.T) {
	b := newBench(t, 64, kernel("", `
  st.global.u32 [%p], 0x80fe8283
  %x = ld.global.s8 [%p]
  st.global.u32 [%p+4], %x
  %x = ld.global.u8 [%p]
  st.global.u32 [%p+8], %x
  %e = ld.global.s16 [%p+2]
  st.global.u64 [%p+16], %e
  %e = ld.global.s32 [%p]
  st.global.u64 [%p+24], %e
  %h = ld.global.b16 [%p+2]
  st.global.b8 [%p+32], %h
  %x, %y = ld.global.v2.u16 [%p]
  st.global.v2.u32 [%p+40], %x, %y
  exit
`))
	b.run(t, 1, 1)
	want := []uint32{0x80fe8283, 0xffffff83, 0x83, 0, 0xffff80fe, 0xffffffff, 0x80fe8283, 0xffffffff, 0xfe, 0, 0x8283, 0x80fe}
	for i, w := range want {
		if got := b.words()[i]; got != w {
			t.Errorf("word %d: got %#x, want %#x", i, got, w)
		}
	}
}

func TestFaults(t *testing.T) {
	cases := []struct {
		name, body string
		want       Fault
	}{
		{"beyond a region", "  st.global.u32 [%at+384], 1 !9:1\n  exit\n", Fault{Kind: OutOfBounds, Thread: 0, Block: 1, Space: ir.Global, Address: bufferAddress + 512}},
		{"a null pointer", "  %e = mov.u64 0\n  %x = ld.u32 [%e+4] !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Generic, Address: 4}},
		{"misaligned", "  %q = setp.eq.u32 %t, 5\n  @%q %x = ld.global.u32 [%p+2] !9:1\n  exit\n", Fault{Kind: Misaligned, Thread: 5, Space: ir.Global, Address: bufferAddress + 2}},
		{"misaligned vector", "  %x, %y = ld.global.v2.u32 [%p+4] !9:1\n  exit\n", Fault{Kind: Misaligned, Space: ir.Global, Address: bufferAddress + 4}},
		{"beyond shared memory", "  %e = mov.u64 24\n  %x = atom.shared.add.u32 [%e], 1 !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Shared, Address: 24}},
		{"beyond local memory", "  %e = mov.u64 0\n  %e = cvta.local %e\n  st.u8 [%e], 1 !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Generic, Address: ir.LocalWindow}},
		{"no space at all", "  %e = mov.u64 0x9000000000000000\n  st.u8 [%e], 1 !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Generic, Address: 9 << 60}},
		{"parameters are read only", "  st.param.u32 [$out], 1 !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Param, Address: 0}},
		{"trap", "  %q = setp.eq.u32 %t, 7\n  @%q br bad, end\nbad:\n  trap !9:1\nend:\n  exit\n", Fault{Kind: Trapped, Thread: 7}},
		{"endless", "  br again\nagain:\n  br again !9:1\n", Fault{Kind: StepLimit}},
		{"free of what is none", "  free %p !9:1\n  exit\n", Fault{Kind: OutOfBounds, Space: ir.Generic, Address: bufferAddress}},
		{"brx beyond its list", "  brx 2, a, a !9:1\na:\n  exit\n", Fault{Kind: BadCall}},
		{"too large a stack", "  %e = alloca 600000 !9:1\n  exit\n", Fault{Kind: StackOverflow}},
	}
	for _, c := range cases {
		b := newBench(t, 512, kernel("", c.body))
		got := *b.fault(t, 2, 32)
		c.want.Func, c.want.Pos = "k", ir.Pos{Line: 9, Col: 1}
		if got.Kind == StepLimit {
			got.Block = 0 // blocks take turns
		}
		if got.Detail = ""; got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestLaunchesThatAreWrong(t *testing.T) {
	b := newBench(t, 4, kernel("", "  exit\n"))
	for name, change := range map[string]func(*Launch){
		"no parameters":       func(l *Launch) { l.Params = nil },
		"block too large":     func(l *Launch) { l.Block = [3]uint32{1025} },
		"grid too large":      func(l *Launch) { l.Grid = [3]uint32{math.MaxUint32, 2} },
		"no memory":           func(l *Launch) { l.Memory = nil },
		"a block that is not": func(l *Launch) { l.Blocks = []uint32{1} },
		"a state, no plan":    func(l *Launch) { l.State = make([]byte, 16) },
		"no body":             func(l *Launch) { l.Kernel = &ir.Func{Name: "none", Kernel: true} },
	} {
		l := b.launch(1, 32)
		change(l)
		err := Run(t.Context(), l)
		var f *Fault
		if err == nil || errors.As(err, &f) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, b.launch(1, 32)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSomeBlocks(t *testing.T) {
	b := newBench(t, 4*6, kernel("", "  %x = mov.u32 ctaid.y\n  %x = mad.lo.u32 %x, 3, %b\n  %o = mul.wide.u32 %x, 4\n  %at = add.u64 %p, %o\n  st.global.u32 [%at], 1\n  exit\n"))
	l := b.launch(1, 32)
	l.Grid, l.Blocks = [3]uint32{3, 2}, []uint32{4, 0}
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if got := b.words(); got[0] != 1 || got[1] != 0 || got[2] != 0 || got[3] != 0 || got[4] != 1 || got[5] != 0 {
		t.Errorf("got %v", got)
	}
}

func TestMalloc(t *testing.T) {
	text := kernel("", `
  %e = malloc 12
  st.u32 [%e+8], 9
  st.global.u64 [%p], %e
  %d = malloc 9000000
  st.global.u64 [%p+8], %d
  %d = malloc 16
  free %d
  %d = mov.u64 0
  free %d
  exit
`)
	b := newBench(t, 16, text)
	b.run(t, 1, 1)
	addr := le.Uint64(b.buffer)
	if got := b.memory.At(addr, 12); got == nil || !bytes.Equal(got[8:], []byte{9, 0, 0, 0}) {
		t.Errorf("malloc's memory at %#x has %v", addr, got)
	}
	if le.Uint64(b.buffer[8:]) != 0 {
		t.Error("more than the heap has")
	}
	if b.memory.heap.used != 12 {
		t.Errorf("%d bytes are in use", b.memory.heap.used)
	}
}
