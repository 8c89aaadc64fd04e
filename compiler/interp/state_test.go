// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Sums over the block again and again: shared and local memory, predicates and
// registers of every size live on over the barriers.
const barriers = `
  %o = mul.wide.u32 %t, 4
  %e = mov.u64 $s
  %e = add.u64 %e, %o
  st.local.u32 [$l+4], %g
  %h = cvt.u16.u32 %g
  %q = setp.lt.u32 %t, 20
  %i = mov.u32 0
  br loop
loop:
  %x = ld.local.u32 [$l+4]
  %y = cvt.u32.u16 %h
  %x = add.u32 %x, %y
  @%q %x = add.u32 %x, %i
  st.shared.u32 [%e], %x
  bar.sync.aligned 0
  %z = add.u32 %t, 1
  %q1 = setp.eq.u32 %z, %n
  @%q1 %z = mov.u32 0
  %o = mul.wide.u32 %z, 4
  %d = mov.u64 $s
  %d = add.u64 %d, %o
  %x = ld.shared.u32 [%d]
  %y = bar.red_popc.aligned 0, 0, %q
  %x = add.u32 %x, %y
  st.local.u32 [$l+4], %x
  %h = add.u16 %h, 3
  %i = add.u32 %i, 1
  %q2 = setp.lt.u32 %i, 10
  @%q2 br loop, done
done:
  st.global.u32 [%at], %x
  exit
`

const barrierMemory = "  var shared $s 256 align 4\n  var local $l 8 align 4\n"

// Each thread has loops of its own length.
const loops = `
  %i = mov.u32 %t
  %x = mov.u32 0
  br outer
outer:
  %y = mov.u32 0
  br inner
inner:
  %x = mad.lo.u32 %x, 5, %y
  %y = add.u32 %y, 1
  %q = setp.le.u32 %y, %i
  @%q br inner, next
next:
  %d = mul.wide.u32 %x, %i
  %i = add.u32 %i, 3
  %q = setp.lt.u32 %i, 70
  @%q br outer, done
done:
  %z = cvt.u32.u64 %d
  %x = xor.b32 %x, %z
  st.global.u32 [%at], %x
  exit
`

// pauses runs a kernel with pauses as often as decide says, each resume with a
// state that was copied and memory that knows nothing of the run before.
func pauses(t *testing.T, text string, grid, block uint32, want pause.Class, decide func(point int) bool) ([]byte, int) {
	t.Helper()
	b := newBench(t, int(4*grid*block), text)
	l := b.launch(grid, block)
	l.Plan = pause.New(b.module, l.Kernel)
	if l.Plan.Class != want {
		t.Fatalf("the kernel is %s: %s", l.Plan.Class, l.Plan.Reason)
	}
	l.State = make([]byte, l.Plan.StateBytes(int64(grid), int64(block), 0))
	stops := 0
	l.Pause = func(_ uint32, point int) bool {
		if decide == nil || !decide(point) {
			return false
		}
		stops++
		return true
	}
	for n := 0; ; n++ {
		if n == 1000 {
			l.Pause = nil
		}
		if err := Run(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		l.State = slices.Clone(l.State)
		done := true
		for id := range grid {
			done = done && le.Uint32(l.State[4*id:]) == pause.Done
		}
		if done {
			return b.buffer, stops
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  string
		class pause.Class
	}{
		{"barriers", kernel(barrierMemory, barriers), pause.BarrierPausable},
		{"back-edges", kernel("", loops), pause.BackEdgePausable},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain := newBench(t, 4*3*50, c.text)
			plain.run(t, 3, 50)
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 7))
				got, stops := pauses(t, c.text, 3, 50, c.class, func(int) bool { return r.IntN(3) == 0 })
				if !bytes.Equal(got, plain.buffer) {
					t.Fatalf("after %d pauses memory differs", stops)
				}
				if stops < 5 {
					t.Errorf("only %d pauses", stops)
				}
			}
			got, stops := pauses(t, c.text, 3, 50, c.class, nil)
			if stops != 0 || !bytes.Equal(got, plain.buffer) {
				t.Error("without a pause memory differs")
			}
		})
	}
}

// The state is as compiler/pause says: words, shared memory, columns, local memory.
func TestStateLayout(t *testing.T) {
	const threads, grid = 50, 2
	b := newBench(t, 4*grid*threads, kernel(barrierMemory, barriers))
	l := b.launch(grid, threads)
	l.Plan = pause.New(b.module, l.Kernel)
	l.State = make([]byte, l.Plan.StateBytes(grid, threads, 0))
	l.Pause = func(block uint32, point int) bool { return block == 0 || point == 2 }
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if le.Uint32(l.State) != 0 || le.Uint32(l.State[4:]) != 2 {
		t.Fatalf("status words %x", l.State[:8])
	}
	if !bytes.Equal(l.State[16:16+l.Plan.AreaBytes(threads, 0)], make([]byte, l.Plan.AreaBytes(threads, 0))) {
		t.Error("the area of a block that has not begun was written")
	}
	area := l.State[l.Plan.StatusBytes(grid)+l.Plan.AreaBytes(threads, 0):]
	// Block 1 has stopped behind the second barrier of the first round.
	for n := range threads {
		g := uint32(threads + n)
		x := 2 * g // of the first round; the number of the round is 0
		if got := le.Uint32(area[4*n:]); got != x {
			t.Fatalf("shared memory of thread %d: got %d, want %d", n, got, x)
		}
		if got := le.Uint32(area[l.Plan.LocalOffset(threads, 0)+l.Plan.LocalBytes*int64(n)+4:]); got != g {
			t.Fatalf("local memory of thread %d: got %d, want %d", n, got, g)
		}
		for _, v := range l.Plan.Points[1].Values {
			column := area[l.Plan.ValuesOffset(0)+v.Offset*threads:]
			var want uint64
			switch l.Kernel.Regs[v.Reg].Name {
			case "t":
				want = uint64(n)
			case "h":
				want = uint64(g)
			case "y":
				want = 20
			case "q":
				want = uint64(b2i(n < 20))
			case "n":
				want = threads
			case "at":
				want = bufferAddress + 4*uint64(g)
			default:
				continue
			}
			size := v.Type.Size()
			if got := get(column[size*n : size*(n+1)]); got != want {
				t.Fatalf("%s of thread %d: got %d, want %d", l.Kernel.Regs[v.Reg].Name, n, got, want)
			}
		}
	}
}

func TestStatesThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{"barriers": kernel(barrierMemory, barriers), "loops": kernel("", loops)} {
		for _, word := range []uint32{77, 0x80000000, pause.ThreadPoints} {
			b := newBench(t, 4*64, text)
			l := b.launch(1, 64)
			l.Plan = pause.New(b.module, l.Kernel)
			l.State = make([]byte, l.Plan.StateBytes(1, 64, 0))
			le.PutUint32(l.State, word)
			if Run(t.Context(), l) == nil {
				t.Errorf("%s: a state with status %#x was resumed", name, word)
			}
		}
	}
	b := newBench(t, 4*64, kernel("", loops))
	l := b.launch(1, 64)
	l.Plan = pause.New(b.module, l.Kernel)
	l.State = make([]byte, 16)
	if Run(t.Context(), l) == nil {
		t.Error("a state that is too short was used")
	}
}

// Nothing is asked of blocks that are done, and every thread of a block whose
// threads all ended is not started again.
func TestAllThreadsEnded(t *testing.T) {
	b := newBench(t, 4*32, kernel("", loops))
	l := b.launch(1, 32)
	l.Plan = pause.New(b.module, l.Kernel)
	l.State = make([]byte, l.Plan.StateBytes(1, 32, 0))
	le.PutUint32(l.State, pause.ThreadPoints)
	a := l.State[l.Plan.StatusBytes(1)+l.Plan.ValuesOffset(0):]
	for n := range 32 {
		le.PutUint32(a[4*n:], pause.ThreadEnded)
	}
	l.Pause = func(uint32, int) bool { t.Error("asked"); return true }
	for range 2 {
		if err := Run(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if le.Uint32(l.State) != pause.Done {
			t.Error("the block is not done")
		}
	}
	if !bytes.Equal(b.buffer, make([]byte, 4*32)) {
		t.Error("a thread ran")
	}
}

// TestDeadStack: of a stack, what lies above its top is not in the state, and what
// the state has there comes back to nobody.
func TestDeadStack(t *testing.T) {
	const threads = 40
	text := kernel("  var local $first 16 align 16\n  var local $stack 64 align 16\n  stack $stack %e 0\n", `
  %e = mov.u64 $stack
  st.local.u32 [$first], %g
  st.local.u32 [%e], %g
  st.local.u32 [%e+32], %g
  %i = and.b32 %t, 3
  %o = mul.wide.u32 %i, 16
  %e = add.u64 %e, %o
  bar.sync 0
  %x = ld.local.u32 [$stack]
  %y = ld.local.u32 [$first]
  %x = add.u32 %x, %y
  %o = sub.u64 %e, %e
  %z = cvt.u32.u64 %o
  %x = add.u32 %x, %z
  st.global.u32 [%at], %x
  exit
`)
	b := newBench(t, 4*threads, text)
	l := b.launch(1, threads)
	l.Plan = pause.New(b.module, l.Kernel)
	l.State = bytes.Repeat([]byte{0xdb}, int(l.Plan.StateBytes(1, threads, 0)))
	clear(l.State[:16])
	l.Pause = func(_ uint32, point int) bool { return point == 1 }
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	local := l.State[16+l.Plan.LocalOffset(threads, 0):]
	for n := range threads {
		own := local[80*n:][:80]
		used := 16 * (n & 3)
		if got := le.Uint32(own); got != uint32(n) {
			t.Errorf("thread %d: %d in the first variable", n, got)
		}
		if !bytes.Equal(own[16+used:], bytes.Repeat([]byte{0xdb}, 64-used)) {
			t.Errorf("thread %d, %d bytes in use: %x was saved", n, used, own[16:])
		}
		if used > 0 && le.Uint32(own[16:]) != uint32(n) {
			t.Errorf("thread %d: %x in the stack", n, own[16:])
		}
	}
	l.Pause = nil
	if err := Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for n := range threads {
		want := uint32(2 * n)
		if n&3 == 0 {
			want = uint32(n) // nothing of the stack is in use: its memory is new
		}
		if got := le.Uint32(b.buffer[4*n:]); got != want {
			t.Errorf("thread %d: %d, want %d", n, got, want)
		}
	}
}
