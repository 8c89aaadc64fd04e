// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// waits finds where a block waits for another one: a loop that goes on until
// what it reads in global memory has changed, and that has no pause point in it.
// Cooperative groups' grid barrier is one, and a lock. It returns the read and
// what to call it.
func (p *planner) waits() (*ir.Instr, string) {
	pointers := passes.FindPointers(p.module, p.Func)
	for _, cycle := range p.cycles() {
		if p.pausesIn(cycle) {
			continue
		}
		if in, what := p.polls(cycle, pointers); in != nil {
			return in, what
		}
	}
	return nil, ""
}

// cycles are the sets of blocks that go round: the loops, and what is irreducible.
func (p *planner) cycles() []map[int]bool {
	var cycles []map[int]bool
	set := func(blocks []int) {
		s := make(map[int]bool, len(blocks))
		for _, b := range blocks {
			s[b] = true
		}
		cycles = append(cycles, s)
	}
	for _, loop := range p.loops.All {
		set(loop.Blocks)
	}
	if len(p.loops.Irreducible) > 0 {
		for _, component := range p.cfg.Components() {
			if len(component) > 1 {
				set(component)
			}
		}
	}
	return cycles
}

func (p *planner) pausesIn(cycle map[int]bool) bool {
	for i := range p.Points {
		if cycle[p.cfg.Number[p.Points[i].Block]] {
			return true
		}
	}
	return false
}

// polls follows what decides over leaving the cycle back to a read, through the
// registers that the cycle writes.
func (p *planner) polls(cycle map[int]bool, pointers *passes.Pointers) (*ir.Instr, string) {
	written := map[ir.Reg][]*ir.Instr{}
	for b, block := range p.cfg.Blocks {
		if !cycle[b] {
			continue
		}
		for _, in := range block.Instrs {
			for _, r := range in.Dst {
				if r != ir.NoReg {
					written[r] = append(written[r], in)
				}
			}
		}
	}
	var todo []ir.Reg
	for b, block := range p.cfg.Blocks {
		if cycle[b] && p.leaves(cycle, b) {
			passes.EachUse(block.Term(), func(r ir.Reg) { todo = append(todo, r) })
		}
	}
	seen := map[ir.Reg]bool{}
	for len(todo) > 0 {
		r := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[r] {
			continue
		}
		seen[r] = true
		for _, in := range written[r] {
			if what := polling(in, written, pointers); what != "" {
				return in, what
			}
			passes.EachUse(in, func(r ir.Reg) { todo = append(todo, r) })
		}
	}
	return nil, ""
}

func (p *planner) leaves(cycle map[int]bool, b int) bool {
	for _, s := range p.cfg.Succs[b] {
		if !cycle[s] {
			return true
		}
	}
	return false
}

// polling tells of a read of global memory that makes sense in a loop only if
// somebody else writes there, and says what is read. "": it is none. Weak loads
// are none: the compiler may read once. Atomic operations are none that change
// what they find: a counter that hands out work, or a compare-and-swap that
// tries again with the value that it found.
func polling(in *ir.Instr, written map[ir.Reg][]*ir.Instr, pointers *passes.Pointers) string {
	switch in.Op {
	case ir.Ld:
		if !in.Mods.Volatile && in.Mods.Order == ir.Weak {
			return ""
		}
		if pointers.Accesses(in).Has(passes.Spaces(ir.Global)) {
			return "what it loads from global memory"
		}
	case ir.Atom:
		if pointers.Accesses(in).Has(passes.Spaces(ir.Global)) && keepsTrying(in, written) {
			return "what it finds in global memory with atom." + atomNames[in.Mods.Atom]
		}
	}
	return ""
}

var atomNames = map[ir.AtomOp]string{
	ir.AtomAdd: "add", ir.AtomAnd: "and", ir.AtomOr: "or", ir.AtomXor: "xor", ir.AtomExch: "exch",
	ir.AtomCas: "cas", ir.AtomMin: "min", ir.AtomMax: "max", ir.AtomInc: "inc", ir.AtomDec: "dec",
}

// keepsTrying tells of an atomic operation that does the same in every round.
func keepsTrying(in *ir.Instr, written map[ir.Reg][]*ir.Instr) bool {
	a := &in.Args[1]
	fixed := a.Kind != ir.RegOperand || len(written[a.Reg]) == 0
	zero := a.Kind == ir.ImmOperand && a.Imm == 0
	switch in.Mods.Atom {
	case ir.AtomCas, ir.AtomExch, ir.AtomMin, ir.AtomMax, ir.AtomAnd, ir.AtomOr:
		return fixed
	case ir.AtomAdd, ir.AtomXor:
		return zero
	}
	return false
}
