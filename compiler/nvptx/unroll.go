// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// roundInstrs is how many of the program's instructions there should be to one
// count of rounds: that is three instructions, so that they are 4%.
const roundInstrs = 75

// mostRounds bounds how often a loop is printed.
const mostRounds = 8

// unrolled is a short loop without others in it, of which several rounds are
// printed one after the other: only behind the last of them rounds are counted.
// Registers are not in SSA form, so that a round is the same text with other labels.
type unrolled struct {
	header *ir.Block
	blocks []*ir.Block // in the order of the function's
	inside map[*ir.Block]bool
	rounds int
}

// findUnrolled returns the loops to unroll, by each of their blocks.
func findUnrolled(plan *pause.Plan) (all []*unrolled, of map[*ir.Block]*unrolled) {
	of = map[*ir.Block]*unrolled{}
	if plan.Class != pause.BackEdgePausable {
		return nil, of
	}
	cfg := passes.NewCFG(plan.Func)
	loops := cfg.Loops(cfg.Dominators())
	if len(loops.Irreducible) > 0 {
		return nil, of
	}
	points := pointsOf(plan)
	blocks, outer := map[*passes.Loop][]*ir.Block{}, map[*passes.Loop]bool{}
	for _, b := range plan.Func.Blocks {
		loop := loops.Innermost[cfg.Number[b]]
		blocks[loop] = append(blocks[loop], b)
	}
	for _, loop := range loops.All {
		outer[loop.Parent] = true
	}
	for _, loop := range loops.All {
		u := &unrolled{header: cfg.Blocks[loop.Header], blocks: blocks[loop], inside: map[*ir.Block]bool{}, rounds: 1}
		size := 0
		for _, b := range u.blocks {
			u.inside[b] = true
			size += len(b.Instrs)
		}
		for u.rounds < mostRounds && u.rounds*size < roundInstrs {
			u.rounds *= 2
		}
		if outer[loop] || u.rounds == 1 || len(points[u.header]) == 0 {
			continue // the point is at the loop's end
		}
		for _, b := range u.blocks {
			of[b] = u
		}
		all = append(all, u)
	}
	return all, of
}

// rounds prints the rounds behind the first, which is where all that is not in the
// loop goes.
func (e *emitter) rounds() error {
	for _, u := range e.unrolledLoops {
		for e.round = 1; e.round < u.rounds; e.round++ {
			for _, b := range u.blocks {
				e.place(roundLabel(e.blocks[b], e.round))
				if err := e.block(b); err != nil {
					return err
				}
			}
		}
	}
	e.round = 0
	return nil
}

// target is where a branch from one block goes to another, in the round that is
// being printed.
func (e *emitter) target(from, to *ir.Block) string {
	if u := e.unrolled[from]; e.round > 0 && u != nil && u.inside[to] {
		return roundLabel(e.blocks[to], e.round)
	}
	return blockLabel(e.blocks[to])
}

// nextRound is where a back-edge goes of a loop that is unrolled, but behind the
// last round: false there, and for all other edges.
func (e *emitter) nextRound(from, to *ir.Block) (string, bool) {
	u := e.unrolled[from]
	if u == nil || u.header != to || e.round+1 == u.rounds {
		return "", false
	}
	return roundLabel(e.blocks[to], e.round+1), true
}

// maxInterval is what %hg_interval may be at a point on a back-edge: a power of two
// less one.
func (e *emitter) maxInterval(header *ir.Block) int {
	rounds := e.checks.Rounds
	if u := e.unrolled[header]; u != nil {
		rounds /= u.rounds
	}
	return max(rounds, 1) - 1
}

func roundLabel(block, round int) string { return fmt.Sprintf("$hg_block%d_%d", block, round) }
