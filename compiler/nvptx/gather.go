// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Loops between barriers (pause.Prepare): each thread counts its rounds, as at back-edges
// of kernels without barriers, and one that finds the flag up goes to the barrier behind,
// which is a reduction always: has anybody come because of the flag? Then the block stops.
// So nobody goes back to a loop but in the kernel that resumes, and the other one has
// no code for that, nor registers that would be alive for it.
//
// A warp's threads come to that barrier one by one, so it is none of the aligned ones.

// gathers tells of a kernel with such loops.
func gathers(plan *pause.Plan) bool {
	return slices.ContainsFunc(plan.Points, func(p pause.Point) bool { return len(p.Polls) > 0 })
}

// meets tells of a point that is at such a barrier.
func (e *emitter) meets(point int) bool {
	return point > 0 && len(e.plan.Points[point-1].Polls) > 0
}

// polls begins to count rounds: %hg_rounds are left of the %hg_every between two looks at
// the clock, which stood at %hg_looked when the flag was read.
func (e *emitter) polls() {
	if gathers(e.plan) {
		e.line(".reg .b32 %%hg_rounds, %%hg_every, %%hg_looked;")
		e.line("mov.u32 %%hg_every, 1;")
		e.line("mov.u32 %%hg_rounds, 1;")
		e.line("mov.u32 %%hg_looked, %%clock;")
	}
}

// unused tells of blocks that are executed only where a block is resumed.
func (e *emitter) unused(b *ir.Block) bool { return e.ways == nil && passes.Returning(b) }

// stays tells of a branch that only those take who are on their way back, or whose
// other way poll prints.
func (e *emitter) stays(b *ir.Block, in *ir.Instr) bool {
	return in.Op == ir.Br && in.Guard != ir.NoReg && (e.unused(in.Targets[0]) || b.Instrs[0].Op == ir.Poll)
}

// poll prints the end of a round.
func (e *emitter) poll(b *ir.Block) {
	leave, stay := e.target(b, b.Succs()[0]), e.target(b, b.Succs()[1])
	e.countRound(func() {
		e.line("@%%hg_p bra %s;", leave)
		e.line("bra %s;", stay)
	}, stay)
}

// meet prints the barrier, at which each thread looks at the flag too, as seldom.
func (e *emitter) meet(in *ir.Instr, point int) {
	met := e.label()
	e.line("mov.pred %%hg_q, %s;", e.operand(in.Args[2]))
	e.countRound(func() {
		e.line("or.pred %%hg_q, %%hg_q, %%hg_p;")
		e.line("bra %s;", met)
	}, met)
	e.place(met)
	e.line("barrier.red.or.pred %s, 0, %%hg_q;", regName(e.fn, in.Dst[0]))
	e.line("@%s bra %s;", regName(e.fn, in.Dst[0]), saveLabel(point))
	e.place(afterLabel(point))
}

// countRound counts a round. In some of them it looks at the clock, and if it is time at the
// flag: what it does then, with %hg_p telling whether it is up, is printed behind
// the program; otherwise it goes to a label.
func (e *emitter) countRound(looked func(), otherwise string) {
	slow, soon := e.label(), e.label()
	e.line("sub.u32 %%hg_rounds, %%hg_rounds, 1;")
	e.line("setp.eq.u32 %%hg_p, %%hg_rounds, 0;")
	e.line("@%%hg_p bra %s;", slow)
	e.seldom = append(e.seldom, func() {
		e.place(slow)
		e.line("mov.u32 %%hg_i, %%clock;")
		e.line("sub.u32 %%hg_v, %%hg_i, %%hg_looked;")
		e.line("setp.lt.u32 %%hg_p, %%hg_v, %d;", e.checks.Clocks)
		e.line("@%%hg_p bra %s;", soon)
		e.line("mov.u32 %%hg_looked, %%hg_i;")
		e.line("setp.gt.u32 %%hg_p, %%hg_v, %d;", slowClocks)
		e.line("@%%hg_p shr.u32 %%hg_every, %%hg_every, 2;")
		e.line("max.u32 %%hg_every, %%hg_every, 1;")
		e.line("mov.u32 %%hg_rounds, %%hg_every;")
		e.line("mov.pred %%hg_p, 1;")
		e.together()
		e.line("@!%%hg_p bra %s;", otherwise)
		e.look("%hg_v")
		e.line("setp.ne.u32 %%hg_p, %%hg_v, 0;")
		looked()
		e.place(soon)
		e.line("shl.b32 %%hg_every, %%hg_every, 1;")
		e.line("min.u32 %%hg_every, %%hg_every, %d;", e.checks.Rounds)
		e.line("mov.u32 %%hg_rounds, %%hg_every;")
		e.line("bra %s;", otherwise)
	})
}
