// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

const unstartedLabel = "$hg_unstarted"

// prologue begins a block: one thread looks at the flag, and the block decides whether
// it begins, here or at its first barrier. Where blocks are short a GPU has nothing to
// spare but instructions, so that there are few, and all else is left to checks.
//
// The look is what costs most: the word is in one place, which all blocks ask for.
func (e *emitter) prologue() {
	if e.plan.Class == pause.BackEdgePausable {
		e.line("mov.u32 %%hg_budget, %d;", min(7, e.checks.Rounds-1))
		e.line("mov.u32 %%hg_count, 0;")
		e.line("mov.u32 %%hg_clock, %%clock;")
	} else if slices.ContainsFunc(e.sites, func(s site) bool { return s.weight > 0 }) {
		e.line("mov.u32 %%hg_count, %d;", firstBudget)
		e.line("mov.u32 %%hg_clock, 0;")
	}
	if e.ways != nil {
		e.statusAddress()
		e.line("ld.global.u32 %%hg_point, [%%hg_a];")
		e.line("setp.eq.u32 %%hg_p, %%hg_point, %d;", pause.Done)
		e.line("@%%hg_p exit;")
	}
	if !e.checks.Late {
		e.asks()
		e.line("mov.pred %%hg_p, %%hg_asks;")
		e.look("%hg_seen")
	}
	if len(e.first) == 0 {
		e.decide("bar.red")
	}
}

// asks makes %hg_asks true in thread 0 of the block. Where the kernel knows of one
// dimension only the others are left out: if there are any, several threads look, in
// vain.
func (e *emitter) asks() {
	e.leader()
	e.line("setp.eq.u32 %%hg_asks, %%hg_i, 0;")
}

// leader makes %hg_i 0 in thread 0.
func (e *emitter) leader() {
	e.line("mov.u32 %%hg_i, %%tid.x;")
	for _, s := range []ir.Sreg{ir.TidY, ir.TidZ} {
		if e.ways != nil || readsSreg(e.fn, s) {
			e.line("mov.u32 %%hg_v, %s;", e.sreg(s))
			e.line("or.b32 %%hg_i, %%hg_i, %%hg_v;")
		}
	}
}

func readsSreg(f *ir.Func, s ir.Sreg) bool {
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			for _, o := range in.Args {
				if o.Kind == ir.SregOperand && o.Sreg == s {
					return true
				}
			}
		}
	}
	return false
}

// decide is a barrier at which a block decides whether it begins, or goes on.
func (e *emitter) decide(reduce string) {
	if e.checks.Late {
		e.line("bar.sync 0;")
		return
	}
	e.line("setp.ne.and.u32 %%hg_q, %%hg_seen, 0, %%hg_asks;")
	e.line("%s.or.pred %%hg_p, 0, %%hg_q;", reduce)
	e.same("%hg_p")
	e.line("@%%hg_p bra.uni %s;", unstartedLabel)
}

// unstarted is what a block does that does not begin. In the kernel that resumes,
// its status is what it was.
func (e *emitter) unstarted() {
	e.place(unstartedLabel)
	if e.ways == nil {
		e.leader()
		e.line("setp.ne.u32 %%hg_p, %%hg_i, 0;")
		e.line("@%%hg_p exit;")
		e.statusAddress()
		e.line("mov.u32 %%hg_v, %d;", pause.NotStarted)
		e.line("st.global.u32 [%%hg_a], %%hg_v;")
	}
	e.line("exit;")
}

// same says that a predicate is the same in all threads of a warp. The driver's
// compiler doesn't know this of a barrier's result, and a branch by one that it
// takes for divergent makes each barrier behind it dearer.
func (e *emitter) same(predicate string) {
	e.line("vote.sync.any.pred %s, %s, -1;", predicate, predicate)
}
