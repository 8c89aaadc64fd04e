// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// stops lists the points of a plan: the block of a barrier, and for a loop's end the
// block that goes back and where it goes.
func stops(p *Plan) string {
	var list []string
	for i := range p.Points {
		if at := &p.Points[i]; at.Kind == Barrier {
			list = append(list, fmt.Sprintf("%s:%d", at.Block.Name, at.Index))
		} else {
			list = append(list, at.From.Name+"->"+at.Block.Name)
		}
	}
	return strings.Join(list, " ")
}

// Where kernels stop, and why nowhere else. %t is the thread's index, %n a parameter.
func TestWhereKernelsStop(t *testing.T) {
	const (
		head   = "  %i = mov.u32 0\n  br round\nround:\n"
		latch  = "  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br round, done\ndone:\n"
		single = head + latch
	)
	for name, tc := range map[string]struct {
		shared bool
		body   string
		class  Class
		stops  string
		why    string // a part of the reason
	}{
		"a barrier":                            {body: "  bar.sync 0\n  exit\n", class: BarrierPausable, stops: "entry:2", why: "all threads of a block reach its barriers together"},
		"a barrier in a loop of all":           {body: head + "  bar.sync 0\n" + latch + "  exit\n", class: BarrierPausable, stops: "round:0"},
		"a barrier that is counted":            {body: "  bar.sync 0, 64\n  exit\n", class: RunsToEnd, why: "this one is for a part of them"},
		"a barrier with a name":                {body: "  bar.sync 1\n  exit\n", class: RunsToEnd, why: "this one is for a part of them"},
		"a barrier with a guard":               {body: "  %q = setp.lt.u32 %n, 9\n  @%q bar.sync 0\n  exit\n", class: RunsToEnd, why: "this one has a guard"},
		"a barrier that some come to":          {body: "  %q = setp.lt.u32 %t, 9\n  @%q br some, done\nsome:\n  bar.sync 0\n  br done\ndone:\n  exit\n", class: RunsToEnd, why: "threads decide on their own"},
		"one of two barriers":                  {body: "  bar.sync 0\n  %q = setp.lt.u32 %t, 9\n  @%q br some, done\nsome:\n  bar.sync 0\n  br done\ndone:\n  exit\n", class: BarrierPausable, stops: "entry:2", why: "reach 1 of its 2 barriers together"},
		"behind an assertion":                  {body: "  %q = setp.lt.u32 %t, 9\n  @%q br bad, on\nbad:\n  trap\non:\n  bar.sync 0\n  exit\n", class: BarrierPausable, stops: "on:0"},
		"a barrier where some have ended":      {body: "  %q = setp.lt.u32 %t, 9\n  @%q br gone, on\ngone:\n  exit\non:\n  bar.sync 0\n  exit\n", class: RunsToEnd, why: "threads decide on their own"},
		"bar.arrive":                           {body: "  bar.sync 0\n  bar.arrive 1, 64\n  exit\n", class: RunsToEnd, why: "bar.arrive leaves a count"},
		"local memory that grows":              {body: "  bar.sync 0\n  %d = alloca 64\n  exit\n", class: RunsToEnd, why: "its local memory grows"},
		"the heap":                             {body: "  bar.sync 0\n  %d = malloc 64\n  exit\n", class: RunsToEnd, why: "the device's own heap"},
		"an mbarrier":                          {shared: true, body: "  mbar_init.shared [@s], 1\n  bar.sync 0\n  exit\n", class: RunsToEnd, why: "mbarriers lie in shared memory"},
		"no barrier, no loop":                  {body: "  exit\n", class: RunsToEnd, why: "no barrier and no loop"},
		"a loop":                               {body: single + "  exit\n", class: BackEdgePausable, stops: "round->round", why: "each thread stops at the end of a round"},
		"a loop that each leaves itself":       {body: head + "  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %t\n  @%q br round, done\ndone:\n  exit\n", class: BackEdgePausable, stops: "round->round"},
		"a loop with two ends":                 {body: head + "  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br round, more\nmore:\n  %i = add.u32 %i, 3\n  %q = setp.lt.u32 %i, %t\n  @%q br round, done\ndone:\n  exit\n", class: BackEdgePausable, stops: "round->round more->round"},
		"loops in one another":                 {body: head + "  %j = mov.u32 0\n  br inner\ninner:\n  %j = add.u32 %j, 1\n  %q = setp.lt.u32 %j, %n\n  @%q br inner, outer\nouter:\n" + latch + "  exit\n", class: BackEdgePausable, stops: "outer->round inner->inner"},
		"a warp operation before the loop":     {body: "  %x = shfl.idx.b32 %t, 0, 31, 0xffffffff\n" + single + "  exit\n", class: BackEdgePausable, stops: "round->round"},
		"a warp operation in the loop":         {body: head + "  %x = shfl.idx.b32 %t, 0, 31, 0xffffffff\n" + latch + "  exit\n", class: RunsToEnd, why: "in or after each loop shfl"},
		"a warp operation behind the loop":     {body: single + "  %x = shfl.idx.b32 %t, 0, 31, 0xffffffff\n  exit\n", class: RunsToEnd, why: "in or after each loop shfl"},
		"a warp operation between two loops":   {body: single + "  %x = shfl.idx.b32 %t, 0, 31, 0xffffffff\n  %i = mov.u32 0\n  br again\nagain:\n  %i = add.u32 %i, 1\n  %q = setp.lt.u32 %i, %n\n  @%q br again, end\nend:\n  exit\n", class: BackEdgePausable, stops: "again->again", why: "the loops before shfl"},
		"shared memory and no barrier":         {shared: true, body: single + "  st.shared.u32 [@s], 1\n  exit\n", class: RunsToEnd, why: "no barrier at which that could be saved"},
		"a loop that waits for another block":  {body: "  br round\nround:\n  %x = ld.volatile.global.u32 [@lock]\n  %q = setp.eq.u32 %x, 0\n  @%q br round, done\ndone:\n  exit\n", class: RunsToEnd, why: "blocks wait for one another"},
		"a loop that looks, and counts":        {body: head + "  %x = ld.volatile.global.u32 [@lock]\n" + latch + "  exit\n", class: BackEdgePausable, stops: "round->round"},
		"a loop that never ends, but for done": {body: "  br round\nround:\n  %x = ld.global.u32 [@lock]\n  %q = setp.eq.u32 %x, %t\n  @%q br done, round\ndone:\n  exit\n", class: BackEdgePausable, stops: "round->round"},
	} {
		t.Run(name, func(t *testing.T) {
			shared := ""
			if tc.shared {
				shared = "var shared @s 8 align 8\n"
			}
			m := parse(t, shared+`var global @lock 4 align 4
kernel @k {
  param $n 4 align 4
  reg pred %q
  reg b32 %n %t %x %i %j
  reg b64 %d
entry:
  %n = ld.param.u32 [$n]
  %t = mov.u32 tid.x
`+tc.body+"}\n")
			if err := ir.Verify(m); err != nil {
				t.Fatal(err)
			}
			p := New(m, m.Funcs[len(m.Funcs)-1])
			if got := stops(p); p.Class != tc.class || got != tc.stops || !strings.Contains(p.Reason, tc.why) {
				t.Errorf("%v at %q: %s; want %v at %q: %s", p.Class, got, p.Reason, tc.class, tc.stops, tc.why)
			}
			if len(p.Points) == 0 && p.ThreadBytes != 0 {
				t.Errorf("it does not stop, and %d bytes would be saved", p.ThreadBytes)
			}
		})
	}
}
