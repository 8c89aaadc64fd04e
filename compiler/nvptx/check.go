// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
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
	// Rounds is in how many rounds of a loop without barriers a thread looks once,
	// a power of two; 256.
	Rounds int
	// Pad is how many bytes lie before a kernel's shared and local memory, for
	// tests: a device has them anywhere.
	Pad int
}

func (c Checks) orDefault() Checks {
	if c.Barriers == 0 {
		c.Barriers = 16
	}
	if c.Rounds == 0 {
		c.Rounds = 256
	}
	return c
}

// slowClocks are 33 to 60 microseconds, at an SM's clock of 1.1 to 2 GHz.
const slowClocks = 65536

// barrierPoint returns the number of the point at b's i-th instruction, or 0.
func (e *emitter) barrierPoint(b *ir.Block, i int) int {
	for n := range e.plan.Points {
		if p := &e.plan.Points[n]; p.Kind == pause.Barrier && p.Block == b && p.Index == i {
			return n + 1
		}
	}
	return 0
}

// backEdgePoint returns the number of the point on the edge, or 0.
func (e *emitter) backEdgePoint(from, to *ir.Block) int {
	for n := range e.plan.Points {
		if p := &e.plan.Points[n]; p.Kind == pause.BackEdge && p.From == from && p.Block == to {
			return n + 1
		}
	}
	return 0
}

// prologue computes what checks need, in each kernel that is printed.
//
// In blocks of three threads and more, threads 1 and 2 read the flag and vote to
// pause, and thread 0 votes for closer checks: one sum of votes carries both. In
// smaller ones thread 0 reads, at every barrier.
func (e *emitter) prologue() {
	e.line("ld.param.u64 %%hg, [%s];", LaunchParam)
	e.line("ld.global.u64 %%hg_flag, [%%hg+%d];", launchFlag)
	e.line("ld.global.u64 %%hg_area, [%%hg+%d];", launchState)
	e.line("setp.eq.u64 %%hg_p, %%hg_area, 0;")
	e.line("@%%hg_p mov.u64 %%hg_flag, 0;")
	e.line("mov.u32 %%hg_tid, %%tid.z;")
	e.line("mov.u32 %%hg_v, %%ntid.y;")
	e.line("mov.u32 %%hg_i, %%tid.y;")
	e.line("mad.lo.u32 %%hg_tid, %%hg_tid, %%hg_v, %%hg_i;")
	e.line("mov.u32 %%hg_threads, %%ntid.x;")
	e.line("mov.u32 %%hg_i, %%tid.x;")
	e.line("mad.lo.u32 %%hg_tid, %%hg_tid, %%hg_threads, %%hg_i;")
	e.line("mul.lo.u32 %%hg_threads, %%hg_threads, %%hg_v;")
	e.line("mov.u32 %%hg_v, %%ntid.z;")
	e.line("mul.lo.u32 %%hg_threads, %%hg_threads, %%hg_v;")
	e.line("setp.ge.u32 %%hg_q, %%hg_threads, 3;")
	e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
	e.line("and.pred %%hg_first, %%hg_p, %%hg_q;")
	e.line("selp.b32 %%hg_most, %d, 1, %%hg_q;", e.checks.Barriers)
	e.line("selp.b32 %%hg_bias, 1, 0, %%hg_q;")
	e.line("selp.b32 %%hg_v, 1, 0, %%hg_q;")
	e.line("sub.u32 %%hg_i, %%hg_tid, %%hg_v;")
	e.line("add.u32 %%hg_v, %%hg_v, 1;") // 2 readers, or 1
	e.line("setp.lt.u32 %%hg_reads, %%hg_i, %%hg_v;")
	e.line("mov.u32 %%hg_interval, 1;")
	e.line("mov.u32 %%hg_count, 1;")
	e.line("mov.u32 %%hg_clock, %%clock;")
	e.line("mov.pred %%hg_saved, 0;")
	if dynamic := e.dynamic(); dynamic != "" && e.plan.SharedBytes > 0 {
		// States have it behind the static memory. Where it isn't, nobody pauses.
		e.line("mov.u64 %%hg_a, %s;", dynamic)
		e.line("mov.u64 %%hg_b, %s;", sharedArray)
		e.line("sub.u64 %%hg_a, %%hg_a, %%hg_b;")
		e.line("setp.ne.u64 %%hg_p, %%hg_a, %d;", e.plan.SharedBytes)
		e.line("@%%hg_p mov.u64 %%hg_flag, 0;")
	}
	e.line("setp.ne.u64 %%hg_p, %%hg_flag, 0;")
	e.line("and.pred %%hg_reads, %%hg_reads, %%hg_p;")
}

// askOnce makes %hg_p, the same in all threads, whether to leave at the entry.
func (e *emitter) askOnce() {
	e.line("mov.u32 %%hg_v, 0;")
	e.line("@%%hg_reads ld.volatile.global.u32 %%hg_v, [%%hg_flag];")
	e.line("setp.ne.u32 %%hg_q, %%hg_v, 0;")
	e.line("bar.red.or.pred %%hg_p, 0, %%hg_q;")
}

// checkBarrier prints a barrier with the check folded in, and behind it the
// place where the kernel goes on when it is resumed.
func (e *emitter) checkBarrier(in *ir.Instr, point int) error {
	barrier, err := e.text(in)
	if err != nil {
		return err
	}
	plain, after := e.label(), afterLabel(point)
	folded := in.Mods.Bar == ir.BarSync
	if !folded { // the program's own reduction comes first
		e.line("%s;", barrier)
	}
	e.line("sub.u32 %%hg_count, %%hg_count, 1;")
	e.line("setp.ne.u32 %%hg_p, %%hg_count, 0;")
	e.line("@%%hg_p bra.uni %s;", plain)
	e.line("mov.u32 %%hg_v, 0;")
	e.line("@%%hg_reads ld.volatile.global.u32 %%hg_v, [%%hg_flag];")
	e.line("setp.ne.u32 %%hg_q, %%hg_v, 0;")
	e.line("mov.u32 %%hg_i, %%clock;")
	e.line("sub.u32 %%hg_v, %%hg_i, %%hg_clock;")
	e.line("mov.u32 %%hg_clock, %%hg_i;")
	e.line("setp.gt.and.u32 %%hg_slow, %%hg_v, %d, %%hg_first;", slowClocks)
	e.line("or.pred %%hg_q, %%hg_q, %%hg_slow;")
	reduce := "bar.red.popc.u32"
	if !in.Mods.Aligned { // a warp's threads may come to it one by one
		reduce = "barrier.red.popc.u32"
	}
	e.line("%s %%hg_votes, %s, %%hg_q;", reduce, e.operand(in.Args[0]))
	e.line("setp.gt.u32 %%hg_p, %%hg_votes, %%hg_bias;")
	e.line("@%%hg_p bra.uni %s;", saveLabel(point))
	e.line("setp.eq.u32 %%hg_slow, %%hg_votes, 1;")
	e.line("add.u32 %%hg_i, %%hg_interval, 1;")
	e.line("min.u32 %%hg_i, %%hg_i, %%hg_most;")
	e.line("shr.u32 %%hg_v, %%hg_interval, 2;")
	e.line("max.u32 %%hg_v, %%hg_v, 1;")
	e.line("selp.b32 %%hg_interval, %%hg_v, %%hg_i, %%hg_slow;")
	e.line("mov.u32 %%hg_count, %%hg_interval;")
	e.line("bra.uni %s;", after)
	e.place(plain)
	if folded {
		e.line("%s;", barrier)
	}
	e.place(after)
	return nil
}

// checkBackEdge prints the check of a loop's end, which each thread makes for
// itself.
func (e *emitter) checkBackEdge(point int) {
	on := e.label()
	e.line("add.u32 %%hg_count, %%hg_count, 1;")
	e.line("and.b32 %%hg_v, %%hg_count, %d;", e.checks.Rounds-1)
	e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
	e.line("@%%hg_p bra %s;", on)
	e.line("setp.eq.u64 %%hg_p, %%hg_flag, 0;")
	e.line("@%%hg_p bra %s;", on)
	e.line("ld.volatile.global.u32 %%hg_v, [%%hg_flag];")
	e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
	e.line("@%%hg_p bra %s;", saveLabel(point))
	e.place(on)
}
