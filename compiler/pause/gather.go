// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// Prepare lets threads leave the loops between the barriers of m's kernels for the
// next barrier (passes.Gather), so that a block can stop there while they are in such
// a loop. It is done where a kernel is paused at barriers, before New is asked; kernels
// that nobody prepared stop when their threads have come out of these loops.
//
// It is done where that is surely right: all threads of a block come together to all of
// the kernel's barriers; every way out of the loop leads to the same barrier, or to
// the kernel's end, past nothing that the threads of a warp do together; and no loop
// between barriers waits for other threads, which could have left theirs.
//
// Threads of a warp come to that barrier one by one, which NVIDIA's devices can since
// sm_70.
func Prepare(m *ir.Module) {
	if before70(m.Target) {
		return
	}
	for _, f := range m.Funcs {
		if f.Kernel && f.Blocks != nil && !prepared(f) && !passes.TooLarge(f) {
			prepare(m, f)
		}
	}
}

func before70(target string) bool {
	digits := strings.TrimRight(strings.TrimPrefix(target, "sm_"), "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(digits)
	return err == nil && n < 70
}

func prepared(f *ir.Func) bool {
	return slices.ContainsFunc(f.Blocks, passes.Gathering)
}

func prepare(m *ir.Module, f *ir.Func) {
	p := newPlanner(m, f)
	p.decide()
	sites, _ := p.gatherings()
	if len(sites) == 0 {
		return
	}
	undo := backup(f)
	passes.Gather(f, sites)
	after := newPlanner(m, f)
	after.decide()
	whole := passes.NewCFG(f)
	if len(after.Points) < len(p.Points) || len(whole.Loops(whole.Dominators()).Irreducible) > 0 {
		undo()
	}
}

// backup returns how to make a function again what it is, for changes of its blocks'
// instructions as passes.Gather makes them.
func backup(f *ir.Func) (undo func()) {
	type body struct {
		instrs  []*ir.Instr
		targets []*ir.Block
	}
	blocks, regs, bodies := f.Blocks, f.Regs, make([]body, len(f.Blocks))
	for i, b := range blocks {
		bodies[i] = body{slices.Clone(b.Instrs), b.Term().Targets}
	}
	return func() {
		f.Blocks, f.Regs = blocks, regs
		for i, b := range blocks {
			b.Instrs = bodies[i].instrs
			b.Term().Targets = bodies[i].targets
		}
	}
}

// Loop is a loop between barriers at which threads don't stop.
type Loop struct {
	Pos ir.Pos // where a round ends
	Why string
}

// gatherings finds the barriers to which threads can go from loops, and the loops from
// which they can't, with the reason. Loops that Prepare has seen to are neither.
func (p *planner) gatherings() ([]passes.GatherSite, []Loop) {
	if p.Class != BarrierPausable {
		return nil, nil
	}
	g := &gatherings{
		planner: p, dom: p.cfg.Dominators(), post: p.cfg.Surviving(),
		barrier: map[*passes.Loop]bool{}, at: map[meeting]*passes.GatherSite{},
	}
	for b, block := range p.cfg.Blocks {
		if slices.ContainsFunc(block.Instrs, isBar) {
			for loop := p.loops.Innermost[b]; loop != nil; loop = loop.Parent {
				g.barrier[loop] = true
			}
		}
	}
	why := g.never()
	for _, loop := range p.loops.All {
		if !g.barrier[loop] && (loop.Parent == nil || g.barrier[loop.Parent]) {
			g.nest(loop, why)
		}
	}
	var sites []passes.GatherSite
	for _, at := range g.order {
		sites = append(sites, *g.at[at])
	}
	return sites, g.kept
}

func isBar(in *ir.Instr) bool { return in.Op == ir.Bar }

// gatherings is the search for them.
type gatherings struct {
	*planner
	dom, post *passes.Tree
	barrier   map[*passes.Loop]bool // there is one in it
	order     []meeting
	at        map[meeting]*passes.GatherSite
	kept      []Loop
}

// meeting is a place where all threads of a block come together: before an
// instruction, or, with no block, the kernel's end. In later ones a barrier is there;
// round is a loop's next round, whose beginning the barrier is in.
type meeting struct {
	block *ir.Block
	index int
	isNew bool
	round bool
}

// never says why threads of this kernel don't leave loops.
func (g *gatherings) never() string {
	for b, block := range g.cfg.Blocks {
		for _, in := range block.Instrs {
			if in.Op == ir.Bar && (!passes.WholeBlock(in) || !g.uniform.Block(b)) {
				return fmt.Sprintf("not all threads of a block come to the barrier in line %d", in.Pos.Line)
			}
		}
	}
	if len(g.loops.Irreducible) > 0 {
		return "a loop of the kernel has two beginnings"
	}
	if in := g.spins(); in != nil {
		return fmt.Sprintf("a loop may wait in line %d for other threads of its block", in.Pos.Line)
	}
	return ""
}

// spins finds a read for which a loop without barriers goes round.
func (g *gatherings) spins() *ir.Instr {
	w := &waits{
		planner: g.planner, pointers: passes.FindPointers(g.module, g.Func), of: passes.Spaces(ir.Global, ir.Shared),
	}
	w.index()
	for _, c := range w.cycles(w.heads()) {
		free := true
		for b := range c.blocks {
			free = free && !slices.ContainsFunc(w.cfg.Blocks[b].Instrs, isBar)
		}
		if !free {
			continue
		}
		if in, _ := w.polls(c.blocks, c.part, w.leaves(c.blocks)); in != nil {
			return in
		}
	}
	return nil
}

// nest looks at a loop between barriers with those in it.
func (g *gatherings) nest(outer *passes.Loop, why string) {
	var loops []*passes.Loop
	for _, loop := range g.loops.All {
		switch latch := g.cfg.Blocks[loop.Latches[0]]; {
		case !outer.Contains(loop.Header) || latch.Instrs[0].Op == ir.Poll:
		case g.short(loop):
			g.keep(loop, "it is short")
		default:
			loops = append(loops, loop)
		}
	}
	if len(loops) == 0 {
		return
	}
	var at meeting
	if why == "" {
		at, why = g.meeting(outer)
	}
	if why != "" {
		for _, loop := range loops {
			g.keep(loop, why)
		}
		return
	}
	g.add(at, outer, loops)
}

func (g *gatherings) keep(loop *passes.Loop, why string) {
	g.kept = append(g.kept, Loop{g.cfg.Blocks[loop.Latches[0]].Term().Pos, why})
}

// add lets threads go from loops, the outermost first, to a meeting.
func (g *gatherings) add(at meeting, outer *passes.Loop, loops []*passes.Loop) {
	site := g.at[at]
	if site == nil {
		site = &passes.GatherSite{Block: at.block, Index: at.index, New: at.isNew}
		g.at[at] = site
		g.order = append(g.order, at)
		site.Before = at.block
		if at.block == nil {
			for b, succs := range g.cfg.Succs {
				if len(succs) == 0 && !traps(g.cfg.Blocks[b]) {
					site.Before = g.common(site.Before, g.cfg.Blocks[b], nil)
				}
			}
		}
	}
	site.Before = g.common(site.Before, g.cfg.Blocks[outer.Header], outer.Parent)
	first := len(site.Loops)
	for i, loop := range loops {
		l := passes.GatherLoop{Header: g.cfg.Blocks[loop.Header]}
		for _, latch := range loop.Latches {
			l.Latches = append(l.Latches, g.cfg.Blocks[latch])
		}
		l.Exit, l.Exits = g.exit(loop)
		for j, other := range loops[:i] {
			if other.Contains(loop.Header) {
				l.Around = append(l.Around, first+j)
			}
		}
		site.Loops = append(site.Loops, l)
	}
}

// exit returns the place to which all ways lead out of a loop, but for traps, and the
// blocks from which; nil if there are several.
func (g *gatherings) exit(loop *passes.Loop) (to *ir.Block, from []*ir.Block) {
	for _, b := range loop.Blocks() {
		for _, s := range g.cfg.Succs[b] {
			switch out := g.cfg.Blocks[s]; {
			case loop.Contains(s) || traps(out):
			case to == nil || to == out:
				to = out
				from = append(from, g.cfg.Blocks[b])
			default:
				return nil, nil
			}
		}
	}
	return to, from
}

func traps(b *ir.Block) bool { return b.Term().Op == ir.Trap }

// common returns the last block before two others, nil being none, that is in no loop
// but one.
func (g *gatherings) common(a, b *ir.Block, loop *passes.Loop) *ir.Block {
	at := g.cfg.Number[b]
	if a != nil {
		for at >= 0 && !g.dom.Dominates(at, g.cfg.Number[a]) {
			at = g.dom.Parent[at]
		}
	}
	for g.loops.Innermost[at] != loop {
		at = g.dom.Parent[at]
	}
	return g.cfg.Blocks[at]
}

// meeting finds where threads come together behind a loop, or says why nowhere.
func (g *gatherings) meeting(loop *passes.Loop) (meeting, string) {
	why := "what follows it is not always the same barrier"
	first := -1 // where they come together without a barrier
	for b := g.post.Parent[loop.Header]; b >= 0; b = g.post.Parent[b] {
		if g.loops.Innermost[b] != loop.Parent || !g.uniform.Block(b) {
			continue
		}
		block := g.cfg.Blocks[b]
		if i := slices.IndexFunc(block.Instrs, isBar); i >= 0 {
			sync := block.Instrs[i].Mods.Bar == ir.BarSync
			at := meeting{block: block, index: i, isNew: !sync, round: g.dom.Dominates(b, loop.Header)}
			if why = g.clear(loop, b, i); why == "" && (sync || loop.Parent == nil) {
				return at, g.oneWay(at)
			}
			switch {
			case why != "":
			case slices.ContainsFunc(block.Succs(), passes.Gathering): // it was prepared, and this loop was left out
				why = otherSide
			default:
				why = fmt.Sprintf("the barrier in line %d, which follows it, is a reduction", block.Instrs[i].Pos.Line)
			}
			break
		}
		if first < 0 {
			first = b
		}
	}
	if loop.Parent != nil { // one more barrier in a loop would cost too much
		return meeting{}, why
	}
	if first >= 0 {
		at := meeting{block: g.cfg.Blocks[first], isNew: true}
		return at, g.clear(loop, first, 0)
	}
	return meeting{isNew: true}, g.clear(loop, -1, 0)
}

const otherSide = "other loops lead to the same barrier from its other side"

// oneWay says why threads can't go to a barrier as well from behind it as from before
// it, where some already do: the way back would have two beginnings.
func (g *gatherings) oneWay(at meeting) string {
	other := at
	other.round = !at.round
	if g.at[other] != nil {
		return otherSide
	}
	return ""
}

// clear says what is between a loop and an instruction of a block, or the kernel's
// end, that threads can't pass over: other barriers, and what warps do together.
func (g *gatherings) clear(loop *passes.Loop, to, index int) string {
	seen := make([]bool, len(g.cfg.Blocks))
	seen[loop.Header] = true
	for todo := []int{loop.Header}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		instrs := g.cfg.Blocks[b].Instrs
		if b == to {
			instrs = instrs[:index]
		}
		for _, in := range instrs {
			switch {
			case in.Op == ir.Bar:
				return "what follows it is not always the same barrier"
			case passes.WarpSynchronous(in.Op):
				return fmt.Sprintf("in it or behind it is %s (line %d), which the threads of a warp do together", in.Op, in.Pos.Line)
			}
		}
		if b == to {
			continue
		}
		for _, s := range g.cfg.Succs[b] {
			if !seen[s] {
				seen[s] = true
				todo = append(todo, s)
			}
		}
	}
	return ""
}

// shortLoop is how many instructions a loop may execute whose end is not worth a look
// at the flag: some microseconds.
const shortLoop = 4096

// short tells of a loop, with none in it, that counts from a number to a number. If it
// is mistaken the kernel stops later, or asks more often.
func (g *gatherings) short(loop *passes.Loop) bool {
	size := int64(0)
	for _, b := range loop.Blocks() {
		if g.loops.Innermost[b] != loop {
			return false
		}
		size += int64(len(g.cfg.Blocks[b].Instrs))
	}
	if len(loop.Latches) > 1 {
		return false
	}
	for _, b := range loop.Blocks() {
		last := g.cfg.Blocks[b].Term()
		if last.Op != ir.Br || last.Guard == ir.NoReg || !slices.ContainsFunc(g.cfg.Succs[b], func(s int) bool { return !loop.Contains(s) }) {
			continue
		}
		for _, in := range g.cfg.Blocks[b].Instrs {
			if in.Op != ir.Setp || in.Dst[0] != last.Guard || in.Args[0].Kind != ir.RegOperand || in.Args[1].Kind != ir.ImmOperand {
				continue
			}
			if rounds := g.counts(loop, in.Args[0].Reg, int64(in.Args[1].Imm)); rounds > 0 && rounds*size <= shortLoop {
				return true
			}
		}
	}
	return false
}

// counts returns how many rounds it takes until a register, which begins with a number
// and has another one added in each round, is an end; 0: it is none such.
func (g *gatherings) counts(loop *passes.Loop, r ir.Reg, end int64) int64 {
	counter, _ := g.counter(loop, r, ir.NoReg)
	if counter == ir.NoReg {
		return 0
	}
	again, step := g.counter(loop, counter, counter)
	begin, _ := g.writes(loop, counter, false)
	if again != counter || step == 0 || begin == nil || begin.Op != ir.Mov || begin.Args[0].Kind != ir.ImmOperand {
		return 0
	}
	bits := 8 * g.Func.Regs[r].Type.Size()
	way := signed(uint64(end), bits) - signed(begin.Args[0].Imm, 8*g.Func.Regs[counter].Type.Size())
	return max(way/step, -way/step) + 1
}

// counter follows what a loop writes to a register back to one that it is made of by
// copies and additions of numbers, and that has another value when the loop begins, or to
// a known one; step is what is added on the way.
func (g *gatherings) counter(loop *passes.Loop, r, known ir.Reg) (counter ir.Reg, step int64) {
	for range 4 {
		in, once := g.writes(loop, r, true)
		if in == nil || !once || in.Args[0].Kind != ir.RegOperand {
			break
		}
		switch before, _ := g.writes(loop, r, false); {
		case known == ir.NoReg && before != nil:
			return r, 0
		case in.Op == ir.Add && len(in.Args) == 2 && in.Args[1].Kind == ir.ImmOperand:
			step += signed(in.Args[1].Imm, 8*g.Func.Regs[r].Type.Size())
		case in.Op != ir.Mov && in.Op != ir.Cvt:
			return ir.NoReg, 0
		}
		if r = in.Args[0].Reg; r == known {
			return r, step
		}
	}
	return ir.NoReg, 0
}

// writes returns the first instruction that writes a register, inside a loop or
// outside, and whether it is the only one there.
func (g *gatherings) writes(loop *passes.Loop, r ir.Reg, inside bool) (first *ir.Instr, once bool) {
	n := 0
	for b, block := range g.cfg.Blocks {
		if loop.Contains(b) != inside {
			continue
		}
		for _, in := range block.Instrs {
			if slices.Contains(in.Dst, r) {
				n++
				if first == nil {
					first = in
				}
			}
		}
	}
	return first, n == 1
}

func signed(v uint64, bits int) int64 { return int64(v<<(64-bits)) >> (64 - bits) }
