// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// roundInstrs is how many of the program's instructions there should be to one count of
// rounds: that is three instructions, so that they are 2%. With twice as many a kernel
// became 9% slower on an H200 (bitonic), since its code was longer.
const roundInstrs = 150

// mostRounds bounds how often a loop is printed.
const mostRounds = 16

// unrolled is a short loop without others in it, of which several rounds are
// printed one after the other: only in the last of them rounds are counted.
// Registers are not in SSA form, so that a round is the same text with other labels.
type unrolled struct {
	header *ir.Block
	blocks []*ir.Block // in the order of the function's
	inside map[*ir.Block]bool
	rounds int
	sunk   map[*ir.Instr]bool // see findSunk
}

// findUnrolled returns the loops to unroll, by each of their blocks.
func findUnrolled(plan *pause.Plan, cfg *passes.CFG, dom *passes.Tree, loops *passes.Loops, checks Checks) (all []*unrolled, of map[*ir.Block]*unrolled) {
	of = map[*ir.Block]*unrolled{}
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
	most := min(mostRounds, checks.Rounds)
	if plan.Class == pause.BarrierPausable && checks.Barriers > 0 {
		most = checks.Barriers
	}
	var live *passes.Liveness
	for _, loop := range loops.All {
		u := &unrolled{header: cfg.Blocks[loop.Header], blocks: blocks[loop], inside: map[*ir.Block]bool{}, rounds: 1, sunk: map[*ir.Instr]bool{}}
		size := 0
		var in []int // the points
		for _, b := range u.blocks {
			u.inside[b] = true
			size += len(b.Instrs)
			in = append(in, points[b]...)
		}
		for u.rounds < most && u.rounds*size < roundInstrs {
			u.rounds *= 2
		}
		if outer[loop] || u.rounds == 1 || len(in) == 0 {
			continue
		}
		if plan.Class == pause.BarrierPausable && chosen(plan, cfg, dom, loop, in) < 0 {
			continue // it may come to a barrier in other rounds than the last only
		}
		if live == nil {
			live = cfg.Liveness()
		}
		for _, b := range u.blocks {
			of[b] = u
			u.findSunk(b, cfg, live)
		}
		all = append(all, u)
	}
	return all, of
}

// findSunk finds the copies in a block that nobody needs but behind the loop. They
// are made on the way out: in several rounds one after the other, the driver's
// compiler would make them in each.
func (u *unrolled) findSunk(b *ir.Block, cfg *passes.CFG, live *passes.Liveness) {
	term := b.Term()
	if term.Op != ir.Br || term.Guard == ir.NoReg || u.inside[term.Targets[0]] == u.inside[term.Targets[1]] {
		return
	}
	stays := term.Targets[0]
	if !u.inside[stays] {
		stays = term.Targets[1]
	}
	needed := map[ir.Reg]bool{} // what is read or written behind
	for _, in := range slices.Backward(b.Instrs) {
		if in.Op == ir.Bar {
			break // a state has what lives behind it
		}
		if in.Op == ir.Mov && in.Guard == ir.NoReg && len(in.Dst) == 1 && in.Dst[0] != ir.NoReg && !needed[in.Dst[0]] &&
			!live.In[cfg.Number[stays]].Has(in.Dst[0]) && in.Args[0].Kind != ir.SregOperand &&
			!(in.Args[0].Kind == ir.RegOperand && slices.ContainsFunc(b.Instrs, func(w *ir.Instr) bool { return slices.Contains(w.Dst, in.Args[0].Reg) })) {
			u.sunk[in] = true
		}
		passes.EachUse(in, func(r ir.Reg) { needed[r] = true })
		for _, r := range in.Dst {
			needed[r] = true
		}
	}
}

// stub is a way out of a loop that is unrolled, in one of its rounds.
type stub struct {
	from, to *ir.Block
	round    int
}

// leave returns where a way out of a loop begins: with the copies that are made there,
// if there are any.
func (e *emitter) leave(from, to *ir.Block) (label string, copies bool) {
	u := e.unrolled[from]
	if u == nil || u.inside[to] || !slices.ContainsFunc(from.Instrs, func(in *ir.Instr) bool { return u.sunk[in] }) {
		return "", false
	}
	at := stub{from, to, e.round}
	if label, known := e.stubs[at]; known {
		return label, true
	}
	label = e.label()
	e.stubs[at] = label
	out := e.out
	e.out = e.late
	e.place(label)
	for _, in := range from.Instrs {
		if u.sunk[in] {
			text, _ := e.text(in) // it was printable
			e.line("%s;", text)
		}
	}
	e.line("bra %s;", blockLabel(e.blocks[to]))
	e.out = out
	return label, true
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
	if label, copies := e.leave(from, to); copies {
		return label
	}
	if u := e.unrolled[from]; e.round > 0 && u != nil && u.inside[to] && to != u.header {
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

// maxInterval is what %hg_budget may be at a point on a back-edge: a power of two
// less one.
func (e *emitter) maxInterval(header *ir.Block) int {
	rounds := e.checks.Rounds
	if u := e.unrolled[header]; u != nil {
		rounds /= u.rounds
	}
	return max(rounds, 1) - 1
}

func roundLabel(block, round int) string { return fmt.Sprintf("$hg_block%d_%d", block, round) }
