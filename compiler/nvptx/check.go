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
	// Barriers is how many barriers have one check, at most; 16.
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
	if c.Barriers == 0 {
		c.Barriers = 16
	}
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

// Bits of %hg_role.
const (
	roleReads = 1 // the thread reads the flag
	roleSlow  = 2 // it votes for closer checks
	roleBias  = 4 // somebody does
	roleFirst = 8 // the block has not come to a barrier yet, at which it decides whether it begins
)

func checkLabel(point int) string { return fmt.Sprintf("$hg_check%d", point) }
func firstLabel(point int) string { return fmt.Sprintf("$hg_first%d", point) }

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

// prologue computes what checks need, and looks at the flag once: a block does not
// begin once it is up, which is decided here or at the first barrier. It also reads the block's status, if that can be another
// one than not started.
//
// In blocks of three threads and more, threads 1 and 2 read the flag and vote to
// pause, and thread 0 votes for closer checks: one sum of votes carries both. In
// smaller ones thread 0 reads, at every barrier.
func (e *emitter) prologue() {
	e.thread()
	e.line("setp.ge.u32 %%hg_q, %%hg_threads, 3;")
	e.line("selp.b32 %%hg_i, 1, 0, %%hg_q;")
	e.line("selp.b32 %%hg_v, 2, 1, %%hg_q;") // so many readers, from thread %hg_i on
	e.line("sub.u32 %%hg_i, %%hg_tid, %%hg_i;")
	e.line("setp.lt.u32 %%hg_p, %%hg_i, %%hg_v;")
	e.line("selp.b32 %%hg_role, %d, 0, %%hg_p;", roleReads)
	e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
	e.line("selp.b32 %%hg_i, %d, %d, %%hg_p;", roleBias|roleSlow, roleBias)
	e.line("selp.b32 %%hg_i, %%hg_i, 0, %%hg_q;")
	e.line("or.b32 %%hg_role, %%hg_role, %%hg_i;")
	e.line("ld.param.u64 %%hg_a, [%s+%d];", LaunchParam, launchState)
	e.line("ld.param.u64 %%hg_b, [%s+%d];", LaunchParam, launchFlag)
	e.line("setp.eq.u64 %%hg_p, %%hg_a, 0;")
	e.line("setp.eq.or.u64 %%hg_p, %%hg_b, 0, %%hg_p;")
	if dynamic := e.dynamic(); dynamic != "" && e.plan.SharedBytes > 0 {
		// States have it behind the static memory. Where it isn't, nobody pauses.
		e.line("mov.u64 %%hg_t, %s;", dynamic)
		e.line("mov.u64 %%hg_a, %s;", sharedArray)
		e.line("sub.u64 %%hg_t, %%hg_t, %%hg_a;")
		e.line("setp.ne.or.u64 %%hg_p, %%hg_t, %d, %%hg_p;", e.plan.SharedBytes)
	}
	e.line("@%%hg_p and.b32 %%hg_role, %%hg_role, %d;", ^roleReads)
	e.line("mov.u32 %%hg_interval, %d;", e.firstInterval())
	e.line("mov.u32 %%hg_count, %d;", max(e.firstInterval(), 1))
	e.line("mov.u32 %%hg_clock, %%clock;")
	if e.ways != nil {
		e.statusAddress()
		e.line("ld.global.u32 %%hg_point, [%%hg_a];")
		e.line("setp.eq.u32 %%hg_p, %%hg_point, %d;", pause.Done)
		e.line("@%%hg_p bra.uni $hg_leave;")
	}
	e.line("and.b32 %%hg_v, %%hg_role, %d;", roleReads)
	e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
	e.look("%hg_seen")
	if len(e.first) > 0 { // the block goes on, and decides at its first barrier
		e.line("or.b32 %%hg_role, %%hg_role, %d;", roleFirst)
		e.line("mov.u32 %%hg_count, 1;")
		return
	}
	e.line("setp.ne.u32 %%hg_q, %%hg_seen, 0;")
	e.line("bar.red.or.pred %%hg_p, 0, %%hg_q;")
	if !e.checks.Late {
		e.line("@%%hg_p bra.uni $hg_leave;")
	}
}

// firstInterval: at barriers the interval is a number of barriers, at back-edges
// that of rounds less one.
func (e *emitter) firstInterval() int {
	if e.plan.Class == pause.BarrierPausable {
		return min(2, e.checks.Barriers)
	}
	return 0
}

// look reads the flag where %hg_p holds; in other threads it is 0.
func (e *emitter) look(to string) {
	e.line("ld.param.u64 %%hg_b, [%s+%d];", LaunchParam, launchFlag)
	e.line("mov.u32 %s, 0;", to)
	e.line("@%%hg_p ld.volatile.global.u32 %s, [%%hg_b];", to)
}

// barrier prints a barrier that is a point. Where it is time for a check that is
// made in its stead, or behind it if it is a reduction of the program's.
func (e *emitter) barrier(in *ir.Instr, point int) error {
	barrier, err := e.text(in)
	if err != nil {
		return err
	}
	if in.Mods.Bar != ir.BarSync {
		e.line("%s;", barrier)
	}
	e.line("sub.u32 %%hg_count, %%hg_count, 1;")
	e.line("setp.eq.u32 %%hg_p, %%hg_count, 0;")
	e.line("@%%hg_p bra.uni %s;", checkLabel(point))
	if in.Mods.Bar == ir.BarSync {
		e.line("%s;", barrier)
	}
	e.place(afterLabel(point))
	return nil
}

// check prints the check of a point, and how the kernel goes on if it is not to
// pause.
func (e *emitter) check(number int) {
	point := &e.plan.Points[number-1]
	e.place(checkLabel(number))
	if point.Kind == pause.BackEdge {
		e.checkBackEdge(point)
		return
	}
	bar := point.Block.Instrs[point.Index]
	reduce := "bar.red.popc.u32"
	if !bar.Mods.Aligned { // a warp's threads may come to it one by one
		reduce = "barrier.red.popc.u32"
	}
	first := slices.Contains(e.first, number)
	if first {
		e.line("and.b32 %%hg_v, %%hg_role, %d;", roleFirst)
		e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
		e.line("@%%hg_p bra.uni %s;", firstLabel(number))
	}
	// The flag is read when it is time, and what the clock says of this is the same
	// in threads 0 to 2, which are in one warp.
	e.line("mov.u32 %%hg_i, %%clock;")
	e.line("sub.u32 %%hg_v, %%hg_i, %%hg_clock;")
	e.line("setp.ge.u32 %%hg_p, %%hg_v, %d;", e.checks.Clocks)
	e.line("@%%hg_p mov.u32 %%hg_clock, %%hg_i;")
	e.line("setp.gt.u32 %%hg_slow, %%hg_v, %d;", slowClocks)
	e.line("and.b32 %%hg_v, %%hg_role, %d;", roleSlow)
	e.line("setp.ne.and.u32 %%hg_slow, %%hg_v, 0, %%hg_slow;")
	e.line("and.b32 %%hg_v, %%hg_role, %d;", roleReads)
	e.line("setp.ne.and.u32 %%hg_p, %%hg_v, 0, %%hg_p;")
	e.look("%hg_v")
	e.line("setp.ne.or.u32 %%hg_q, %%hg_v, 0, %%hg_slow;")
	e.line("%s %%hg_votes, %s, %%hg_q;", reduce, e.operand(bar.Args[0]))
	e.line("shr.u32 %%hg_v, %%hg_role, 2;") // 1 with roleBias
	e.line("setp.gt.u32 %%hg_p, %%hg_votes, %%hg_v;")
	e.line("@%%hg_p bra.uni %s;", saveLabel(number))
	// With the bias, one vote is for closer checks.
	e.line("setp.ne.u32 %%hg_q, %%hg_v, 0;")
	e.line("selp.b32 %%hg_v, %d, 1, %%hg_q;", e.checks.Barriers)
	e.line("shl.b32 %%hg_i, %%hg_interval, 1;")
	e.line("min.u32 %%hg_i, %%hg_i, %%hg_v;")
	e.line("shr.u32 %%hg_v, %%hg_interval, 2;")
	e.line("max.u32 %%hg_v, %%hg_v, 1;")
	e.line("setp.eq.u32 %%hg_slow, %%hg_votes, 1;")
	e.line("selp.b32 %%hg_interval, %%hg_v, %%hg_i, %%hg_slow;")
	e.line("mov.u32 %%hg_count, %%hg_interval;")
	e.line("bra.uni %s;", afterLabel(number))
	if first {
		e.place(firstLabel(number))
		e.line("and.b32 %%hg_role, %%hg_role, %d;", ^roleFirst)
		e.line("setp.ne.u32 %%hg_q, %%hg_seen, 0;")
		e.line("%s %%hg_votes, %s, %%hg_q;", reduce, e.operand(bar.Args[0]))
		e.line("setp.ne.u32 %%hg_p, %%hg_votes, 0;")
		e.line("@%%hg_p bra.uni $hg_leave;")
		e.line("mov.u32 %%hg_count, %%hg_interval;")
		e.line("bra.uni %s;", afterLabel(number))
	}
}

// backEdge prints the end of a loop's round that is a point. In some of the rounds,
// or of those that are printed together, a thread looks at the clock.
func (e *emitter) backEdge(point int, to *ir.Block) {
	e.line("add.u32 %%hg_count, %%hg_count, 1;")
	e.line("and.b32 %%hg_v, %%hg_count, %%hg_interval;")
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
	e.line("@%%hg_p shr.u32 %%hg_interval, %%hg_interval, 2;")
	e.line("ld.param.u64 %%hg_a, [%s+%d];", LaunchParam, launchState)
	e.line("ld.param.u64 %%hg_b, [%s+%d];", LaunchParam, launchFlag)
	e.line("setp.eq.u64 %%hg_p, %%hg_a, 0;")
	e.line("setp.eq.or.u64 %%hg_p, %%hg_b, 0, %%hg_p;")
	e.line("@%%hg_p bra %s;", blockLabel(e.blocks[point.Block]))
	e.line("ld.volatile.global.u32 %%hg_v, [%%hg_b];")
	e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
	e.line("@%%hg_p bra %s;", saveLabel(number))
	e.line("bra %s;", blockLabel(e.blocks[point.Block]))
	e.place(soon)
	e.line("shl.b32 %%hg_interval, %%hg_interval, 1;")
	e.line("or.b32 %%hg_interval, %%hg_interval, 1;")
	e.line("min.u32 %%hg_interval, %%hg_interval, %d;", e.maxInterval(point.Block))
	e.line("bra %s;", blockLabel(e.blocks[point.Block]))
}
