// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// A loop that can be entered at more than one place makes PoCL 3.1 end the
// process. So where there is one, or where threads come in from elsewhere, all
// ways to the blocks that join ways of it lead over one place: a switch, which is
// then the loop's only beginning.

// dispatch says that all ways to a block lead over the switch.
func (e *emitter) dispatch(b *ir.Block) {
	if e.dispatched[b] == 0 {
		e.joins = append(e.joins, b)
		e.dispatched[b] = len(e.joins)
	}
}

// dispatchCycles finds the loops that have several beginnings. In general mode all
// have that in which threads meet: they go on behind the meeting.
func (e *emitter) dispatchCycles() {
	c := passes.NewCFG(e.f)
	twice := map[int]bool{}
	for _, edge := range c.Loops(c.Dominators()).Irreducible {
		twice[edge.To] = true
	}
	for _, component := range c.Components() {
		several := false
		for _, b := range component {
			several = several || twice[b] || e.mode == General && e.meets(c.Blocks[b])
		}
		if !several {
			continue
		}
		for _, b := range component {
			if len(c.Preds[b]) > 1 {
				e.dispatch(c.Blocks[b])
			}
		}
	}
}

// meets tells of blocks in which threads wait for others.
func (e *emitter) meets(b *ir.Block) bool {
	for _, in := range b.Instrs {
		if together(in) || yields(in) {
			return true
		}
	}
	return false
}

// dispatcher writes the switch.
func (e *emitter) dispatcher() {
	if len(e.joins) == 0 {
		return
	}
	e.label("hg_dispatch")
	e.line("switch (hg_at) {")
	for i, b := range e.joins {
		e.line("case %d: goto B%d;", i+1, e.order[b])
	}
	e.line("default: goto hg_end;")
	e.line("}")
}
