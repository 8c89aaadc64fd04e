// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// gatherKernel is a kernel that begins with what is in its parameter %n, the thread's
// number %t, and %x, 0.
func gatherKernel(target, body string) string {
	return fmt.Sprintf(`target %q
var shared @s 256 align 4
kernel @k {
  param $n 4 align 4
  reg b32 %%n %%t %%x %%i %%j
  reg pred %%p %%q %%a
entry:
  %%n = ld.param.u32 [$n]
  %%t = mov.u32 tid.x
  %%x = mov.u32 0
%s}
`, target, body)
}

// loop goes round until %x is as large as something; it is called name, and goes on at
// next.
func loop(name, end, next string) string {
	return fmt.Sprintf("%s:\n  %%x = add.u32 %%x, 1\n  %%p = setp.lt.u32 %%x, %s\n  @%%p br %s, %s\n", name, end, name, next)
}

var gatherTests = []struct {
	name, body string
	points     int    // what the kernel has then
	polls      int    // the loops that threads leave
	kept       string // why they don't leave others
}{
	{"before a barrier", "  br l\n" + loop("l", "%t", "m") + "m:\n  bar.sync 0\n  exit\n", 1, 1, ""},
	{"some threads go past the loop", "  %q = setp.lt.u32 %t, 7\n  @%q br l, m\n" + loop("l", "%t", "m") + "m:\n  bar.sync 0\n  exit\n", 1, 1, ""},
	{"two loops, and a way between them", "  br l\n" + loop("l", "%t", "l2") + loop("l2", "%n", "m") + "m:\n  st.shared.u32 [@s], %x\n  bar.sync 0\n  exit\n", 1, 2, ""},
	{"loops in one another", "  br o\no:\n  %i = mov.u32 0\n  br l\nl:\n  %i = add.u32 %i, 1\n  %p = setp.lt.u32 %i, %t\n  @%p br l, e\n" +
		"e:\n  %x = add.u32 %x, 1\n  %p = setp.lt.u32 %x, %t\n  @%p br o, m\nm:\n  bar.sync 0\n  exit\n", 1, 2, ""},
	{"in a loop with a barrier", "  %i = mov.u32 0\n  br o\no:\n  br l\n" + loop("l", "%t", "m") +
		"m:\n  bar.sync 0\n  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br o, e\ne:\n  exit\n", 1, 1, ""},
	{"the barrier is where the next round begins", "  %i = mov.u32 0\n  br o\no:\n  bar.sync 0\n  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br l, e\n" +
		loop("l", "%t", "o") + "e:\n  exit\n", 1, 1, ""},
	{"behind the last barrier", "  bar.sync 0\n  br l\n" + loop("l", "%t", "e") + "e:\n  exit\n", 2, 1, ""},
	{"threads end in it", "  bar.sync 0\n  br l\n" + loop("l", "%t", "h") + "h:\n  %q = setp.eq.u32 %t, %n\n  @%q br f, e\nf:\n  exit\ne:\n  exit\n", 2, 1, ""},
	{"an assertion fails in it", "  br l\nl:\n  %q = setp.eq.u32 %x, %n\n  @%q br bad, on\nbad:\n  trap\n" +
		"on:\n  %x = add.u32 %x, 1\n  %p = setp.lt.u32 %x, %t\n  @%p br l, m\nm:\n  bar.sync 0\n  exit\n", 1, 1, ""},
	{"a reduction behind it", "  br l\n" + loop("l", "%t", "m") + "m:\n  %a = bar.red_or 0, 0, %p\n  exit\n", 2, 1, ""},

	{"a reduction in a loop", "  br o\no:\n  br l\n" + loop("l", "%t", "m") + "m:\n  %a = bar.red_or 0, 0, %p !18:2\n  @%a br o, e\ne:\n  exit\n", 1, 0, "the barrier in line 18, which follows it, is a reduction"},
	{"it is short", "  br l\n" + loop("l", "40", "m") + "m:\n  bar.sync 0\n  exit\n", 1, 0, "it is short"},
	{"it is not as short", "  br l\n" + loop("l", "4000", "m") + "m:\n  bar.sync 0\n  exit\n", 1, 1, ""},
	{"a shuffle behind it", "  br l\n" + loop("l", "%t", "m") + "m:\n  %x = shfl.idx.b32 %x, 0, 31, 0xffffffff !18:2\n  bar.sync 0\n  exit\n", 1, 0, "in it or behind it is shfl (line 18), which the threads of a warp do together"},
	{"a vote in it", "  br l\nl:\n  %x = add.u32 %x, 1\n  %q = vote.any %p, 0xffffffff !15:2\n  @%q br l, m\nm:\n  bar.sync 0\n  exit\n", 1, 0, "in it or behind it is vote (line 15), which the threads of a warp do together"},
	{"one waits for others of the block", "  br l\n" + loop("l", "%t", "w") + "w:\n  %i = ld.shared.volatile.u32 [@s] !18:2\n  %p = setp.eq.u32 %i, 0\n  @%p br w, m\nm:\n  bar.sync 0\n  exit\n", 1, 0, "a loop may wait in line 18 for other threads of its block"},
	{"one of two barriers behind it", "  br o\no:\n  bar.sync 0\n  br l\n" + loop("l", "%t", "c") + "c:\n  %q = setp.eq.u32 %n, 3\n  @%q br f, o\nf:\n  bar.sync 0\n  exit\n", 2, 0, "what follows it is not always the same barrier"},
	{"a barrier that some come to", "  br l\n" + loop("l", "%t", "m") + "m:\n  bar.sync 0\n  %q = setp.lt.u32 %t, 3\n  @%q br f, e\nf:\n  bar.sync 0 !22:2\n  br e\ne:\n  exit\n", 1, 0, "not all threads of a block come to the barrier in line 22"},
	{"a loop with two beginnings", "  %q = setp.eq.u32 %n, 3\n  @%q br f, l\nf:\n  %x = add.u32 %x, 2\n  br g\nl:\n  %x = add.u32 %x, 1\n  br g\ng:\n  %p = setp.lt.u32 %x, %n\n  @%p br h, m\n" +
		"h:\n  @%q br f, l\nm:\n  br k\n" + loop("k", "%t", "e") + "e:\n  bar.sync 0\n  exit\n", 1, 0, "a loop of the kernel has two beginnings"},
	{"from both sides of a barrier", "  br h\nh:\n  %q = setp.eq.u32 %n, 3\n  @%q br l, b\n" + loop("l", "%t", "b") + "b:\n  bar.sync 0\n  %q = setp.eq.u32 %n, 4\n  @%q br k, e\n" + loop("k", "%t", "h") + "e:\n  exit\n", 1, 1, "other loops lead to the same barrier from its other side"},
	{"a barrier where another loop begins", "  br l\n" + loop("l", "%t", "o") + "o:\n  bar.sync 0\n  %q = setp.lt.u32 %n, 3\n  @%q br o, e\ne:\n  exit\n", 1, 0, "what follows it is not always the same barrier"},
}

// TestPrepare: which loops threads leave, for which barriers, and why not.
func TestPrepare(t *testing.T) {
	for _, c := range gatherTests {
		t.Run(c.name, func(t *testing.T) {
			m := parse(t, gatherKernel("sm_70", c.body))
			f, before := m.Funcs[0], New(m, m.Funcs[0])
			text := m.String()
			Prepare(m)
			if err := ir.Verify(m); err != nil {
				t.Fatalf("%v\n%s", err, m)
			}
			if whole := passes.NewCFG(f); c.polls > 0 && len(whole.Loops(whole.Dominators()).Irreducible) > 0 {
				t.Errorf("a loop has two beginnings\n%s", m)
			}
			plan, polls, kept := New(m, f), 0, ""
			for i := range plan.Points {
				polls += len(plan.Points[i].Polls)
			}
			for _, loop := range plan.Kept {
				kept = loop.Why
			}
			if len(plan.Points) != c.points || polls != c.polls || kept != c.kept {
				t.Errorf("%d points, %d loops, %q\n%s%s", len(plan.Points), polls, kept, Explain(m, []*Plan{plan}), m)
			}
			if changed := m.String() != text; changed != (c.polls > 0) {
				t.Errorf("it was changed: %v\n%s", changed, m)
			}
			if before.Class != plan.Class || before.Waits != plan.Waits {
				t.Errorf("%v, waits: %v; before: %v, %v", plan.Class, plan.Waits, before.Class, before.Waits)
			}
			// Once is enough, and what is parsed again is the same.
			text = m.String()
			if Prepare(m); m.String() != text {
				t.Error("it was changed again")
			}
			if again := parse(t, text); Explain(again, plans(again)) != Explain(m, plans(m)) {
				t.Error("parsed again it has another plan")
			}
		})
	}
}

// TestPrepareNot: kernels that are not paused at barriers stay as they are, and so do
// those for devices on which a warp's threads can't come to a barrier one by one.
func TestPrepareNot(t *testing.T) {
	for target, body := range map[string]string{
		"sm_61": gatherTests[0].body,
		"sm_70": "  br l\n" + loop("l", "%t", "e") + "e:\n  exit\n",
		"sm_80": "  br l\n" + loop("l", "%t", "w") + "w:\n  %i = ld.global.volatile.u32 [64]\n  %p = setp.eq.u32 %i, 0\n  @%p br w, m\nm:\n  bar.sync 0\n  exit\n",
	} {
		m := parse(t, gatherKernel(target, body))
		text := m.String()
		if Prepare(m); m.String() != text {
			t.Errorf("%s: it was changed\n%s", target, m)
		}
	}
}

// TestGatherSaves: at a barrier to which threads come from a loop what the loop needs is
// saved, and what is needed behind the barrier, but not what leads to the loop.
func TestGatherSaves(t *testing.T) {
	m := parse(t, gatherKernel("sm_70", "  %i = add.u32 %n, 5\n  %j = add.u32 %n, 6\n  %x = add.u32 %j, %n\n  br l\n"+loop("l", "%t", "m")+
		"m:\n  bar.sync 0\n  st.shared.u32 [@s], %i\n  exit\n"))
	Prepare(m)
	var saved []string
	for _, v := range New(m, m.Funcs[0]).Points[0].Values {
		saved = append(saved, m.Funcs[0].Regs[v.Reg].Name)
	}
	if got := strings.Join(saved, " "); got != "t x i at any" {
		t.Errorf("saved: %s\n%s", got, m)
	}
}
