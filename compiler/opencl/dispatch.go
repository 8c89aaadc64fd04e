// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"slices"

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
	// The switch joins what is written: a way from one of its blocks to another makes a
	// loop, into which others may lead.
	for more := e.joins; len(more) > 0; {
		more = e.beginnings()
		for _, b := range more {
			e.dispatch(b)
		}
	}
}

// beginnings returns blocks at which loops of what is written begin a second time,
// the switch being one of its blocks and, in general mode, the one that goes to where
// threads go on behind meetings.
func (e *emitter) beginnings() []*ir.Block {
	w := e.written()
	c := passes.NewCFG(w.f)
	var found []*ir.Block
	for _, edge := range c.Loops(c.Dominators()).Irreducible {
		if b := w.of[c.Blocks[edge.To]]; b != nil {
			found = append(found, b)
		}
	}
	if len(found) > 0 {
		return found
	}
	// Nor may there be ways beside the switch into a loop that it is in.
	for _, component := range c.Components() {
		inside := map[int]bool{}
		for _, n := range component {
			inside[n] = true
		}
		if len(component) == 1 || !inside[c.Number[w.dispatch]] {
			continue
		}
		for _, n := range component {
			b := w.of[c.Blocks[n]]
			if b != nil && e.dispatched[b] == 0 && slices.ContainsFunc(c.Preds[n], func(from int) bool { return !inside[from] }) {
				found = append(found, b)
			}
		}
	}
	return found
}

// writtenFlow is the control flow of the text: of each block what comes before its
// first meeting, and what comes behind the last one.
type writtenFlow struct {
	f        *ir.Func
	of       map[*ir.Block]*ir.Block // the program's block, of those where one begins
	dispatch *ir.Block
}

func (e *emitter) written() writtenFlow {
	ends := func(op ir.Op, to ...*ir.Block) []*ir.Instr {
		return []*ir.Instr{{Op: op, Guard: ir.NoReg, Targets: to}}
	}
	w := writtenFlow{f: &ir.Func{}, of: map[*ir.Block]*ir.Block{}, dispatch: &ir.Block{}}
	begin := map[*ir.Block]*ir.Block{}
	for _, b := range e.f.Blocks {
		begin[b] = &ir.Block{}
		w.of[begin[b]] = b
	}
	root := &ir.Block{}
	next := []*ir.Block{begin[e.f.Blocks[0]]}
	w.f.Blocks = []*ir.Block{root}
	for _, b := range e.f.Blocks {
		last := begin[b]
		w.f.Blocks = append(w.f.Blocks, last)
		if e.mode == General && e.meets(b) {
			begin[b].Instrs = ends(ir.Exit) // the loop around all is not of interest
			last = &ir.Block{}
			next = append(next, last)
			w.f.Blocks = append(w.f.Blocks, last)
		}
		var to []*ir.Block
		for _, s := range b.Succs() {
			if e.dispatched[s] > 0 {
				to = append(to, w.dispatch)
			} else {
				to = append(to, begin[s])
			}
		}
		if last.Instrs = ends(ir.Exit); len(to) > 0 {
			last.Instrs = ends(ir.Brx, to...)
		}
	}
	root.Instrs = ends(ir.Brx, next...)
	var joins []*ir.Block
	for _, b := range e.joins {
		joins = append(joins, begin[b])
	}
	w.dispatch.Instrs = ends(ir.Brx, joins...)
	w.f.Blocks = append(w.f.Blocks, w.dispatch)
	return w
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

// dispatcher writes the switch, for the blocks that are written.
func (e *emitter) dispatcher(written func(*ir.Block) bool) {
	if len(e.joins) == 0 {
		return
	}
	e.label("hg_dispatch")
	e.line("switch (hg_at) {")
	for i, b := range e.joins {
		if written(b) {
			e.line("case %d: goto B%d;", i+1, e.order[b])
		}
	}
	e.line("default: goto hg_end;")
	e.line("}")
}
