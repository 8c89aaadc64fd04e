// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// natural writes a kernel's own control flow: blocks with gotos. What can't be
// reached from the blocks at which it begins is left out.
func (e *emitter) natural(begin ...*ir.Block) {
	target, reached := e.reach(begin)
	for i, b := range e.f.Blocks {
		if !reached[b] {
			continue
		}
		if target[b] {
			e.label("B%d", i)
		}
		for j, in := range b.Instrs[:len(b.Instrs)-1] {
			if together(in) {
				e.uniform(b, j, in)
			} else {
				e.instr(in)
			}
		}
		e.terminator(b, i+1)
	}
	e.dispatcher(func(b *ir.Block) bool { return reached[b] })
	e.leave()
}

// reach returns the blocks that branches go to, and those that are executed.
func (e *emitter) reach(begin []*ir.Block) (target, reached map[*ir.Block]bool) {
	target, reached = map[*ir.Block]bool{}, map[*ir.Block]bool{}
	for _, b := range begin {
		target[b] = true
	}
	for todo := begin; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[b] {
			continue
		}
		reached[b] = true
		for _, s := range e.succs(b) {
			target[s] = true
			todo = append(todo, s)
		}
	}
	return target, reached
}

// succs returns where a block goes on. In natural mode a block stops where threads
// meet if some have left loops to do that, so that none goes back from there. They
// do where a block is resumed at such a point: all, if only to the barrier again, since
// a way around that barrier would have PoCL write all behind it twice.
func (e *emitter) succs(b *ir.Block) []*ir.Block {
	succs := b.Succs()
	if e.mode == General || b.Instrs[0].Op == ir.Poll || passes.Gathering(b) || !slices.ContainsFunc(succs, passes.Returning) {
		return succs
	}
	back, others := succs[:1], succs[1:]
	switch {
	case !e.returns:
		return others
	case b == e.f.Blocks[0], b == e.returnsTo():
		return back
	case e.origin[b] == e.origin[e.returnsTo()], back[0].Term().Op != ir.Brx, back[0].Term().Args[0] != e.returnsTo().Succs()[0].Term().Args[0]:
		return others
	}
	return succs
}

// returnsTo is the place from which threads find their way, where a block is resumed.
func (e *emitter) returnsTo() *ir.Block { return e.f.Blocks[0].Succs()[0].Succs()[0] }

// terminator writes what ends a block. A branch to the block that is written
// next is left out.
func (e *emitter) terminator(b *ir.Block, following int) {
	in := b.Term()
	next := func(t *ir.Block) bool { return e.order[t] == following && e.pointOn(b, t) == 0 && e.dispatched[t] == 0 }
	switch in.Op {
	case ir.Br:
		switch to := e.succs(b); {
		case in.Guard != ir.NoReg && len(to) == 1:
			if !next(to[0]) {
				e.line("%s", e.edge(b, to[0]))
			}
		case in.Guard == ir.NoReg:
			if !next(in.Targets[0]) {
				e.line("%s", e.edge(b, in.Targets[0]))
			}
		case next(in.Targets[0]):
			not := *in
			not.GuardNot = !in.GuardNot
			e.line("if (%s) %s", e.guard(&not), e.edge(b, in.Targets[1]))
		default:
			e.line("if (%s) %s", e.guard(in), e.edge(b, in.Targets[0]))
			if !next(in.Targets[1]) {
				e.line("%s", e.edge(b, in.Targets[1]))
			}
		}
	case ir.Brx:
		e.line("switch (%s) {", e.bits(in.Args[0], ir.B32))
		for i, t := range in.Targets {
			if i == len(in.Targets)-1 {
				e.line("default: %s", e.edge(b, t))
			} else {
				e.line("case %d: %s", i, e.edge(b, t))
			}
		}
		e.line("}")
	case ir.Trap:
		e.trap(TrapInstruction)
	default: // Exit, Ret
		e.line("goto hg_end;")
	}
}
