// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// site is what a barrier that is a point has of its own.
type site struct {
	// round is in which of the rounds of its loop that are printed one after the
	// other it is: in the others it is a barrier like any.
	round int
	// weight is how many clocks the block may have been busy since the last site. 0:
	// no check is made here.
	weight int
}

// What instructions may take, in clocks, where a multiprocessor is full.
const (
	instrClocks   = 16
	barrierClocks = 40
	memoryClocks  = 400
	// unknownClocks is for a loop without a site in it.
	unknownClocks = firstBudget / 8
)

// findSites chooses where checks are made: so that nothing goes round for long
// without coming to one, and that it is rare.
//
// Of a loop whose every round comes to some barrier one is enough, in the last of
// the rounds that are printed. Where a loop is around it it must be the first barrier
// of the first round: inner loops may be short. Outside of loops only those barriers
// count from which the kernel can come to a loop that has none.
func findSites(plan *pause.Plan, loops *passes.Loops, cfg *passes.CFG, dom *passes.Tree, unrolled map[*ir.Block]*unrolled, all bool) []site {
	sites := make([]site, len(plan.Points))
	if plan.Class != pause.BarrierPausable {
		return sites
	}
	of := map[*passes.Loop][]int{} // the points that are in no loop further in
	for i := range plan.Points {
		loop := loops.Innermost[cfg.Number[plan.Points[i].Block]]
		of[loop] = append(of[loop], i)
	}
	blind := blindLoops(plan, loops, cfg)
	ahead := reaches(cfg, blind)
	for i := range plan.Points {
		p := &plan.Points[i]
		n := cfg.Number[p.Block]
		loop := loops.Innermost[n]
		rounds := 1
		if u := unrolled[p.Block]; u != nil {
			rounds = u.rounds
			if loop.Parent == nil {
				sites[i].round = rounds - 1
			}
		}
		switch {
		case all || len(loops.Irreducible) > 0:
			sites[i].weight = mostBudget
		case loop == nil && ahead[n]:
			sites[i].weight = unknownClocks
		case loop != nil && chosen(plan, cfg, dom, loop, of[loop]) == i, loop != nil && chosen(plan, cfg, dom, loop, of[loop]) < 0:
			sites[i].weight = clocks(cfg, loops, loop, blind, rounds)
		}
	}
	return sites
}

// chosen returns which of a loop's points is in every round, and before the others
// where a loop is around this one; -1: none is.
func chosen(plan *pause.Plan, cfg *passes.CFG, dom *passes.Tree, loop *passes.Loop, points []int) int {
	before := func(i, j int) bool {
		p, q := &plan.Points[i], &plan.Points[j]
		if p.Block == q.Block {
			return p.Index <= q.Index
		}
		return dom.Dominates(cfg.Number[p.Block], cfg.Number[q.Block])
	}
	for _, i := range points {
		n := cfg.Number[plan.Points[i].Block]
		every := !slices.ContainsFunc(loop.Latches, func(latch int) bool { return !dom.Dominates(n, latch) })
		first := !slices.ContainsFunc(points, func(j int) bool { return !before(i, j) })
		if every && (first || loop.Parent == nil) {
			return i
		}
	}
	return -1
}

// blindLoops are the loops without points in them, by whether each block is in one.
func blindLoops(plan *pause.Plan, loops *passes.Loops, cfg *passes.CFG) []bool {
	blind := make([]bool, len(cfg.Blocks))
	for b := range cfg.Blocks {
		loop := loops.Innermost[b]
		blind[b] = loop != nil && !slices.ContainsFunc(plan.Points, func(p pause.Point) bool { return loop.Contains(cfg.Number[p.Block]) })
	}
	return blind
}

// reaches tells from which blocks one of some others can be reached.
func reaches(cfg *passes.CFG, those []bool) []bool {
	found := slices.Clone(those)
	var todo []int
	for b := range found {
		if found[b] {
			todo = append(todo, b)
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		for _, before := range cfg.Preds[todo[0]] {
			if !found[before] {
				found[before] = true
				todo = append(todo, before)
			}
		}
	}
	return found
}

// clocks guesses how long so many rounds of a loop take, without the loops in it that
// have sites of their own.
func clocks(cfg *passes.CFG, loops *passes.Loops, loop *passes.Loop, blind []bool, rounds int) int {
	sum, unknown := 0, false
	for _, b := range loop.Blocks() {
		if loops.Innermost[b] != loop {
			unknown = unknown || blind[b]
			continue
		}
		for _, in := range cfg.Blocks[b].Instrs {
			switch in.Op {
			case ir.Ld, ir.Atom, ir.WmmaLoad:
				if in.Mods.Space == ir.Global || in.Mods.Space == ir.Generic {
					sum += memoryClocks
				}
			case ir.Bar:
				sum += barrierClocks
			}
			sum += instrClocks
		}
	}
	sum *= rounds
	if unknown {
		sum += unknownClocks
	}
	return max(min(sum, firstBudget), 1)
}
