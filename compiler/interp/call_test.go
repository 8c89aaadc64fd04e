// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"strings"
	"testing"
)

// Direct, indirect and recursive calls, with local memory in each activation.
const functions = `
func @fib {
  param $n 4 align 4
  result $r 4 align 4
  var local $keep 4 align 4
  var param $a 4 align 4
  var param $b 4 align 4
  reg b32 %n %x %y
  reg pred %q
entry:
  %n = ld.param.u32 [$n]
  %q = setp.lt.u32 %n, 2
  @%q br small, large
small:
  st.param.u32 [$r], %n
  ret
large:
  %x = sub.u32 %n, 1
  st.param.u32 [$a], %x
  call @fib($a) -> ($b)
  %x = ld.param.u32 [$b]
  st.local.u32 [$keep], %x
  %y = sub.u32 %n, 2
  st.param.u32 [$a], %y
  call @fib($a) -> ($b)
  %x = ld.local.u32 [$keep]
  %y = ld.param.u32 [$b]
  %x = add.u32 %x, %y
  st.param.u32 [$r], %x
  ret
}

func @double {
  param $n 4 align 4
  result $r 4 align 4
  reg b32 %n
entry:
  %n = ld.param.u32 [$n]
  %n = shl.b32 %n, 1
  st.param.u32 [$r], %n
  ret
}

func @triple {
  param $n 4 align 4
  result $r 4 align 4
  reg b32 %n
entry:
  %n = ld.param.u32 [$n]
  %n = mul.lo.u32 %n, 3
  st.param.u32 [$r], %n
  ret
}

func @two {
  param $n 4 align 4
entry:
  ret
}
`

func TestRecursion(t *testing.T) {
	b := newBench(t, 4*40, kernel("  var param $a 4 align 4\n  var param $b 4 align 4", `
  %x = and.b32 %t, 7
  st.param.u32 [$a], %x
  call @fib($a) -> ($b)
  %y = ld.param.u32 [$b]
  %x = activemask
  %x = popc.b32 %x
  %x = mad.lo.u32 %x, 100, %y
  st.global.u32 [%at], %x
  exit
`)+functions)
	b.run(t, 1, 40)
	for i, got := range b.words() {
		active := uint32(32)
		if i >= 32 {
			active = 8
		}
		if want := []uint32{0, 1, 1, 2, 3, 5, 8, 13}[i&7] + 100*active; got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

func TestIndirectCalls(t *testing.T) {
	text := kernel("  var param $a 4 align 4\n  var param $b 4 align 4", `
  %o = and.b64 %o, 4
  %o = shl.b64 %o, 1
  %e = mov.u64 @table
  %e = add.u64 %e, %o
  %e = ld.global.u64 [%e]
  st.param.u32 [$a], %t
  %q = setp.ne.u32 %t, 9
  @%q call %e($a) -> ($b) of @double, @triple
  %y = ld.param.u32 [$b]
  @!%q %y = mov.u32 7777
  st.global.u32 [%at], %y
  exit
`) + functions
	text = strings.Replace(text, "kernel @k", `var global @table 16 align 8 = "00000000000000000000000000000000"
  address 0 @double
  address 8 @triple
kernel @k`, 1)
	b := newBench(t, 4*32, text)
	b.run(t, 1, 32)
	for i, got := range b.words() {
		want := uint32(i * (2 + i%2))
		if i == 9 {
			want = 7777
		}
		if got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}

func TestCallsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind FaultKind
	}{
		"no function":       {"  %e = mov.u64 0\n  call %e($a) -> ($b) of @fib !9:1\n  exit\n", BadCall},
		"other parameters":  {"  %e = mov.u64 @two\n  call %e($a) -> ($b) of @fib !9:1\n  exit\n", BadCall},
		"endless recursion": {"  st.param.u32 [$a], 0xffffffff\n  call @deep($a) -> ($b)\n  exit\n", StackOverflow},
	} {
		deep := strings.ReplaceAll(functions[:strings.Index(functions, "func @double")], "@fib", "@deep")
		b := newBench(t, 4, kernel("  var param $a 4 align 4\n  var param $b 4 align 4", c.body)+functions+deep)
		if f := b.fault(t, 1, 3); f.Kind != c.kind {
			t.Errorf("%s: got %v", name, f)
		}
	}
}

// Threads that come to a function by different ways are one warp in it, and
// behind it.
func TestCallsJoin(t *testing.T) {
	b := newBench(t, 4*32, kernel("", `
  %q = setp.lt.u32 %t, 5
  @%q br a, b
a:
  call @f() -> ()
  br end
b:
  %q1 = setp.lt.u32 %t, 9
  @%q1 br c, d
c:
  br d
d:
  call @f() -> ()
  br end
end:
  %x = activemask
  st.global.u32 [%at], %x
  exit
`)+`
func @f {
  reg b32 %x
entry:
  %x = redux.add.u32 1, 0xffffffe0
  ret
}
`)
	b.run(t, 1, 32)
	for i, got := range b.words() {
		if got != 0xffffffff {
			t.Errorf("thread %d: active are %#x", i, got)
		}
	}
}

func TestAllocaAndStack(t *testing.T) {
	b := newBench(t, 4*32, kernel("  var local $l 16 align 4", `
  %d = stacksave
  %o = add.u64 %o, 4
  %e = alloca %o
  st.local.u32 [%e], %t
  st.local.u32 [$l+12], 5
  stackrestore %d
  %o = alloca 16
  %x = ld.local.u32 [%o]
  %q = setp.eq.u64 %o, %e
  @!%q %x = mov.u32 1000
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 1, 32)
	for i, got := range b.words() {
		if int(got) != i {
			t.Errorf("thread %d: got %d", i, got)
		}
	}
}
