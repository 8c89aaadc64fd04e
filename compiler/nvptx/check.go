// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Checks is how often the flag is looked at. Zeroes are the defaults.
//
// One L2 hit of one warp and a reduction cost a matrix product 4% at every barrier
// and 1.3% at every 16th (shared/facts, bar.cu on an H200), so checks are thinned
// out, but not in time: where more than slowClocks go by between two of them, they
// come closer together again.
type Checks struct {
	// Barriers: each barrier that is a point counts, and a loop's rounds have this
	// many at most between two that do, for tests. 0: as sites says.
	Barriers int
	// Rounds is in how many rounds of a loop without barriers a thread looks at its
	// clock once, at most, a power of two; 256.
	Rounds int
	// Clocks go by at least between two looks at the flag, of the multiprocessor;
	// 32768, 17 to 30 microseconds.
	Clocks int
	// Pad is how many bytes lie before a kernel's shared and local memory, for
	// tests: a device has them anywhere.
	Pad int
	// Late: blocks begin without a look at the flag, for tests: one that is up stops
	// them at the first point where they look.
	Late bool
}

func (c Checks) orDefault() Checks {
	if c.Rounds == 0 {
		c.Rounds = 256
	}
	if c.Clocks == 0 {
		c.Clocks = 32768
	}
	return c
}

// slowClocks are 33 to 60 microseconds, at an SM's clock of 1.1 to 2 GHz.
const slowClocks = 65536

// firstBudget is for how many clocks' work, as sites guesses it, a block runs
// before its first check, and mostBudget bounds what comes of it.
const (
	firstBudget = 32768
	mostBudget  = 8 * firstBudget
)

// Bits of %hg_role.
const (
	roleReads = 1 // the thread reads the flag
	roleSlow  = 2 // it votes for closer checks
	roleBias  = 4 // somebody does
)

func checkLabel(point int) string { return fmt.Sprintf("$hg_check%d", point) }

// barrierPoint returns the number of the point at b's i-th instruction, or 0.
func (e *emitter) barrierPoint(b *ir.Block, i int) int {
	for _, n := range e.points[b] {
		if p := &e.plan.Points[n]; p.Kind == pause.Barrier && p.Index == i {
			return n + 1
		}
	}
	return 0
}

// backEdgePoint returns the number of the point on the edge, or 0.
func (e *emitter) backEdgePoint(from, to *ir.Block) int {
	for _, n := range e.points[to] {
		if p := &e.plan.Points[n]; p.Kind == pause.BackEdge && p.From == from {
			return n + 1
		}
	}
	return 0
}

// look reads the flag where %hg_p holds.
func (e *emitter) look(to string) {
	e.line("ld.param.u64 %%hg_b, [%s+%d];", LaunchParam, launchFlag)
	e.line("@%%hg_p ld.volatile.global.u32 %s, [%%hg_b];", to)
}

// barrier prints a barrier that is a point. At a site a check is made in its stead,
// or behind it if it is a reduction of the program's, when it is time for one.
func (e *emitter) barrier(in *ir.Instr, point int) error {
	barrier, err := e.text(in)
	if err != nil {
		return err
	}
	site := e.sites[point-1]
	if here := e.round == site.round; !here {
		e.line("%s;", barrier)
		return nil
	}
	if slices.Contains(e.first, point) {
		if in.Mods.Bar != ir.BarSync {
			e.line("%s;", barrier)
		}
		e.decide(e.reduce(in))
		if site.weight > 0 {
			e.count(point, site.weight)
		}
		e.place(afterLabel(point))
		return nil
	}
	if in.Mods.Bar != ir.BarSync {
		e.line("%s;", barrier)
	}
	if site.weight > 0 {
		e.count(point, site.weight)
	}
	if in.Mods.Bar == ir.BarSync {
		e.line("%s;", barrier)
	}
	e.place(afterLabel(point))
	return nil
}

// count takes what the way here may have taken from the block's budget.
func (e *emitter) count(point, weight int) {
	e.line("sub.s32 %%hg_count, %%hg_count, %d;", weight)
	e.line("setp.le.s32 %%hg_p, %%hg_count, 0;")
	e.line("@%%hg_p bra.uni %s;", checkLabel(point))
}

// reduce is the opcode of a reduction in a barrier's stead.
func (e *emitter) reduce(bar *ir.Instr) string {
	if !bar.Mods.Aligned { // a warp's threads may come to it one by one
		return "barrier.red"
	}
	return "bar.red"
}

// check prints the check of a point, and how the kernel goes on if it is not to
// pause.
//
// In blocks of three threads and more, threads 1 and 2 read the flag and vote to
// pause, and thread 0 votes for closer checks: one sum of votes carries both. In
// smaller ones thread 0 reads, at every site.
func (e *emitter) check(number int) {
	point := &e.plan.Points[number-1]
	if e.meets(number) {
		return
	}
	if point.Kind == pause.BackEdge {
		e.place(checkLabel(number))
		e.checkBackEdge(point)
		return
	}
	if e.sites[number-1].weight == 0 {
		return
	}
	e.place(checkLabel(number))
	bar := point.Block.Instrs[point.Index]
	e.role()
	// The flag is read when it is time, and what the clock says of this is the same
	// in threads 0 to 2, which are in one warp. Before the first check nobody has
	// read the clock.
	e.line("mov.u32 %%hg_i, %%clock;")
	e.line("sub.u32 %%hg_v, %%hg_i, %%hg_clock;")
	e.line("setp.eq.u32 %%hg_p, %%hg_clock, 0;")
	e.line("selp.b32 %%hg_v, %d, %%hg_v, %%hg_p;", e.checks.Clocks)
	e.line("@%%hg_p mov.u32 %%hg_budget, %d;", firstBudget)
	e.line("setp.ge.u32 %%hg_p, %%hg_v, %d;", e.checks.Clocks)
	e.line("@%%hg_p mov.u32 %%hg_clock, %%hg_i;")
	e.line("setp.gt.u32 %%hg_slow, %%hg_v, %d;", slowClocks)
	e.line("and.b32 %%hg_v, %%hg_role, %d;", roleSlow)
	e.line("setp.ne.and.u32 %%hg_slow, %%hg_v, 0, %%hg_slow;")
	e.line("and.b32 %%hg_v, %%hg_role, %d;", roleReads)
	e.line("setp.ne.and.u32 %%hg_p, %%hg_v, 0, %%hg_p;")
	e.line("mov.u32 %%hg_v, 0;")
	e.look("%hg_v")
	e.line("setp.ne.or.u32 %%hg_q, %%hg_v, 0, %%hg_slow;")
	e.line("%s.popc.u32 %%hg_votes, %s, %%hg_q;", e.reduce(bar), e.operand(bar.Args[0]))
	e.line("shr.u32 %%hg_v, %%hg_role, 2;") // 1 with roleBias
	e.line("setp.gt.u32 %%hg_p, %%hg_votes, %%hg_v;")
	e.same("%hg_p")
	e.line("@%%hg_p bra.uni %s;", saveLabel(number))
	// With the bias, one vote is for closer checks.
	e.line("setp.ne.u32 %%hg_q, %%hg_v, 0;")
	e.same("%hg_q")
	e.line("selp.b32 %%hg_v, %d, 1, %%hg_q;", mostBudget)
	e.line("shl.b32 %%hg_i, %%hg_budget, 1;")
	e.line("min.u32 %%hg_i, %%hg_i, %%hg_v;")
	e.line("shr.u32 %%hg_v, %%hg_budget, 2;")
	e.line("max.u32 %%hg_v, %%hg_v, 1;")
	e.line("setp.eq.u32 %%hg_slow, %%hg_votes, 1;")
	e.same("%hg_slow")
	e.line("selp.b32 %%hg_budget, %%hg_v, %%hg_i, %%hg_slow;")
	e.line("mov.u32 %%hg_count, %%hg_budget;")
	e.line("bra.uni %s;", afterLabel(number))
}

// role computes what this thread does in a check.
func (e *emitter) role() {
	e.thread()
	e.line("setp.ge.u32 %%hg_q, %%hg_threads, 3;")
	e.line("selp.b32 %%hg_i, 1, 0, %%hg_q;")
	e.line("selp.b32 %%hg_v, 2, 1, %%hg_q;") // so many readers, from thread %hg_i on
	e.line("sub.u32 %%hg_i, %%hg_tid, %%hg_i;")
	e.line("setp.lt.u32 %%hg_p, %%hg_i, %%hg_v;")
	e.together()
	e.line("selp.b32 %%hg_role, %d, 0, %%hg_p;", roleReads)
	e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
	e.line("selp.b32 %%hg_i, %d, %d, %%hg_p;", roleBias|roleSlow, roleBias)
	e.line("selp.b32 %%hg_i, %%hg_i, 0, %%hg_q;")
	e.line("or.b32 %%hg_role, %%hg_role, %%hg_i;")
}

// together makes %hg_p false where dynamic shared memory is not behind the static
// one, as states have it: there nobody pauses.
func (e *emitter) together() {
	dynamic := e.dynamic()
	if dynamic == "" || e.plan.SharedBytes == 0 {
		return
	}
	e.line("mov.u64 %%hg_t, %s;", dynamic)
	e.line("mov.u64 %%hg_a, %s;", sharedArray)
	e.line("sub.u64 %%hg_t, %%hg_t, %%hg_a;")
	e.line("setp.eq.and.u64 %%hg_p, %%hg_t, %d, %%hg_p;", e.plan.SharedBytes)
}

// backEdge prints the end of a loop's round that is a point. In some of the rounds,
// or of those that are printed together, a thread looks at the clock.
func (e *emitter) backEdge(point int, to *ir.Block) {
	e.line("add.u32 %%hg_count, %%hg_count, 1;")
	e.line("and.b32 %%hg_v, %%hg_count, %%hg_budget;")
	e.line("setp.eq.u32 %%hg_p, %%hg_v, 0;")
	e.line("@%%hg_p bra %s;", checkLabel(point))
	e.line("bra %s;", blockLabel(e.blocks[to]))
}

// checkBackEdge prints what each thread does for itself. The clock costs little and
// the flag much, so that it is looked at after so many clocks only, and until then
// the number of rounds between two looks at the clock grows; where these take too
// long it shrinks.
func (e *emitter) checkBackEdge(point *pause.Point) {
	number, soon := e.backEdgePoint(point.From, point.Block), e.label()
	e.line("mov.u32 %%hg_i, %%clock;")
	e.line("sub.u32 %%hg_v, %%hg_i, %%hg_clock;")
	e.line("setp.lt.u32 %%hg_p, %%hg_v, %d;", e.checks.Clocks)
	e.line("@%%hg_p bra %s;", soon)
	e.line("mov.u32 %%hg_clock, %%hg_i;")
	e.line("setp.gt.u32 %%hg_p, %%hg_v, %d;", slowClocks)
	e.line("@%%hg_p shr.u32 %%hg_budget, %%hg_budget, 2;")
	e.line("ld.param.u64 %%hg_b, [%s+%d];", LaunchParam, launchFlag)
	e.line("ld.volatile.global.u32 %%hg_v, [%%hg_b];")
	e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
	e.line("@%%hg_p bra %s;", saveLabel(number))
	e.line("bra %s;", blockLabel(e.blocks[point.Block]))
	e.place(soon)
	e.line("shl.b32 %%hg_budget, %%hg_budget, 1;")
	e.line("or.b32 %%hg_budget, %%hg_budget, 1;")
	e.line("min.u32 %%hg_budget, %%hg_budget, %d;", e.maxInterval(point.Block))
	e.line("bra %s;", blockLabel(e.blocks[point.Block]))
}
