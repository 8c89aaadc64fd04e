// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// New decides how kernel f of m is paused. f is as passes.Prepare leaves it, and, if
// threads are to stop in loops between barriers, Prepare behind that: a kernel that still
// has calls runs to its end.
func New(m *ir.Module, f *ir.Func) *Plan {
	p := newPlanner(m, f)
	if passes.TooLarge(f) {
		p.Waits = true // nobody has looked
		p.class(RunsToEnd, f.Pos, "it is too large: %d blocks, %d registers", len(f.Blocks), len(f.Regs))
		return p.Plan
	}
	p.decide()
	p.layOut()
	p.gathered()
	return p.Plan
}

func newPlanner(m *ir.Module, f *ir.Func) *planner {
	p := &planner{Plan: &Plan{Func: f, Shared: f.SharedLayout(m), Local: f.LocalLayout()}, module: m}
	p.SharedBytes, p.LocalBytes = p.Shared.Size, p.Local.Size
	if !passes.TooLarge(f) {
		p.cfg = passes.Undisturbed(f)
		p.loops = p.cfg.Loops(p.cfg.Dominators())
		p.uniform = p.cfg.Uniformity()
	}
	return p
}

type planner struct {
	*Plan
	module  *ir.Module
	cfg     *passes.CFG // as if nobody stopped
	loops   *passes.Loops
	uniform *passes.Uniformity
}

// class ends the decision.
func (p *planner) class(c Class, at ir.Pos, format string, args ...any) {
	p.Class, p.Pos, p.Reason = c, at, fmt.Sprintf(format, args...)
}

// decide finds the class and the points, which are empty for what runs to its
// end. The order matters: what forbids a pause comes first.
func (p *planner) decide() {
	if p.never() {
		in, _, _ := p.waits()
		p.Waits = in != nil
		return
	}
	first, total := p.barriers()
	in, what, blind := p.waits()
	p.Waits = in != nil
	if blind {
		p.Points = nil
		p.class(RunsToEnd, in.Pos, "blocks wait for one another: a loop ends when %s has another value", what)
		return
	}
	switch {
	case len(p.Points) > 0 && len(p.Points) == total:
		p.class(BarrierPausable, p.Points[0].Pos(), "all threads of a block reach its barriers together")
	case len(p.Points) > 0:
		p.class(BarrierPausable, p.Points[0].Pos(), "all threads of a block reach %d of its %d barriers together", len(p.Points), total)
	case total > 0:
		p.class(RunsToEnd, first.Pos, "no barrier is reached by all threads of a block together: %s", p.why(first))
	default:
		p.backEdges()
	}
	if p.Waits && len(p.Points) > 0 {
		p.Reason += fmt.Sprintf("; blocks may wait for one another in line %d, and are resumed together", in.Pos.Line)
	}
}

// never tells, and decides, that a kernel can't be paused wherever its barriers and
// loops are.
func (p *planner) never() bool {
	if why := p.Func.NVIDIAOnly; len(why) > 0 {
		p.class(NVIDIAOnly, why[0].Pos, "%s", why[0].Text)
		return true
	}
	in, why := p.forbidden()
	if in != nil {
		p.class(RunsToEnd, in.Pos, "%s", why)
	}
	return in != nil
}

// forbidden finds what can't be paused, wherever it stands.
func (p *planner) forbidden() (*ir.Instr, string) {
	for _, b := range p.cfg.Blocks {
		for _, in := range b.Instrs {
			switch {
			case in.Op == ir.Call:
				return in, "it calls functions"
			case in.Op == ir.Alloca:
				return in, "its local memory grows as it runs"
			case in.Op == ir.Malloc || in.Op == ir.Free:
				return in, "it takes memory from the device's own heap, which is not saved"
			case in.Op >= ir.MbarInit && in.Op <= ir.MbarExpect:
				return in, "its mbarriers lie in shared memory, in a form that each device has of its own"
			case in.Op == ir.Bar && in.Mods.Bar == ir.BarArrive:
				return in, "bar.arrive leaves a count in a barrier, which can't be saved"
			}
		}
	}
	return nil, ""
}

// barriers makes the points at barriers, and returns the first barrier that is
// none and the number of all.
func (p *planner) barriers() (first *ir.Instr, total int) {
	for n, b := range p.cfg.Blocks {
		for i, in := range b.Instrs {
			if in.Op != ir.Bar {
				continue
			}
			total++
			if passes.WholeBlock(in) && p.uniform.Block(n) {
				p.Points = append(p.Points, Point{Kind: Barrier, Block: b, Index: i})
			} else if first == nil {
				first = in
			}
		}
	}
	return first, total
}

// why says why a barrier is no point.
func (p *planner) why(in *ir.Instr) string {
	switch {
	case in.Guard != ir.NoReg:
		return "this one has a guard"
	case !passes.WholeBlock(in):
		return "this one is for a part of them"
	}
	return "threads decide on their own whether they come to this one"
}

// backEdges makes the points at loops' ends, in a kernel without barriers: each
// thread stops on its own there. So no thread may wait for another one that can
// have stopped: nothing that a warp does together can come after, or in the loop.
func (p *planner) backEdges() {
	if len(p.loops.All) == 0 {
		p.class(RunsToEnd, p.Func.Pos, "it has no barrier and no loop, and so it is short")
		return
	}
	if len(p.Shared.Vars) > 0 {
		p.class(RunsToEnd, p.Func.Pos, "it has shared memory, and no barrier at which that could be saved")
		return
	}
	var warp *ir.Instr
	after := p.warpAfter()
	for _, loop := range p.loops.All {
		if in := after[loop.Header]; in != nil {
			warp = in
			continue
		}
		for _, latch := range loop.Latches {
			p.Points = append(p.Points, Point{Kind: BackEdge, Block: p.cfg.Blocks[loop.Header], From: p.cfg.Blocks[latch]})
		}
	}
	switch {
	case len(p.Points) == 0:
		p.class(RunsToEnd, warp.Pos, "it has no barrier, and in or after each loop %s, which the threads of a warp do together", warp.Op)
	case warp != nil:
		p.class(BackEdgePausable, p.Points[0].Pos(), "it has no barrier; the loops before %s in line %d do not stop", warp.Op, warp.Pos.Line)
	default:
		p.class(BackEdgePausable, p.Points[0].Pos(), "it has no barrier; each thread stops at the end of a round")
	}
}

// warpAfter returns for each block an instruction for which threads of a warp wait
// for one another and that can be reached from there, the nearest, or nil.
func (p *planner) warpAfter() []*ir.Instr {
	after := make([]*ir.Instr, len(p.cfg.Blocks))
	var todo []int
	for n, b := range p.cfg.Blocks {
		if i := slices.IndexFunc(b.Instrs, func(in *ir.Instr) bool { return passes.WarpSynchronous(in.Op) }); i >= 0 {
			after[n] = b.Instrs[i]
			todo = append(todo, n)
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		for _, before := range p.cfg.Preds[todo[0]] {
			if after[before] == nil {
				after[before] = after[todo[0]]
				todo = append(todo, before)
			}
		}
	}
	return after
}

// maxValues is how many values the points of a kernel may have together: that many
// are saved and loaded in the text of each back end.
const maxValues = 100_000

// layOut fills in what is saved at each point.
func (p *planner) layOut() {
	if len(p.Points) == 0 {
		return
	}
	cfg := passes.NewCFG(p.Func)
	live := cfg.Liveness()
	start := int64(0)
	if p.Points[0].Kind == BackEdge {
		start = ThreadPointBytes
	}
	regs := make([][]ir.Reg, len(p.Points))
	var all []ir.Reg
	for i := range p.Points {
		point := &p.Points[i]
		n := cfg.Number[point.Block]
		if point.Kind == BackEdge {
			regs[i] = live.In[n].Regs()
		} else {
			regs[i] = live.After(n, point.Index).Regs()
		}
		all = append(all, regs[i]...)
		if len(all) > maxValues {
			p.class(RunsToEnd, p.Points[0].Pos(), "at its %d points more than %d registers would be saved together", len(p.Points), maxValues)
			p.Points = nil
			return
		}
	}
	if p.Points[0].Kind == BackEdge {
		p.layOutTogether(regs, all, start)
		return
	}
	for i := range p.Points {
		var end int64
		p.Points[i].Values, end = p.values(regs[i], start)
		p.ThreadBytes = max(p.ThreadBytes, ir.AlignUp(end, align))
	}
}

// gathered finds the loops from which threads come to points, and those from which
// they don't.
func (p *planner) gathered() {
	at := map[*ir.Block]int{}
	for i := range p.Points {
		at[p.Points[i].Block] = i + 1
	}
	for _, b := range p.Func.Blocks {
		if poll := b.Instrs[0]; poll.Op == ir.Poll {
			meet := b.Succs()[0].Succs()[0]
			for meet.Instrs[1].Op != ir.Bar { // it is a loop's exit
				meet = meet.Succs()[0].Succs()[0]
			}
			if n := at[meet]; n > 0 {
				p.Points[n-1].Polls = append(p.Points[n-1].Polls, poll)
			}
		}
	}
	_, p.Kept = p.gatherings()
}

// layOutTogether gives a register the same place at all points: where each
// thread has a point of its own, the values of two points lie side by side, and
// one thread's must not end up on another's.
func (p *planner) layOutTogether(regs [][]ir.Reg, all []ir.Reg, start int64) {
	slices.Sort(all)
	places, end := p.values(slices.Compact(all), start)
	p.ThreadBytes = ir.AlignUp(end, align)
	for i := range p.Points {
		for _, v := range places {
			if slices.Contains(regs[i], v.Reg) {
				p.Points[i].Values = append(p.Points[i].Values, v)
			}
		}
	}
}

// values gives each register its place. The largest come first, so that each
// column is aligned to its own size.
func (p *planner) values(regs []ir.Reg, offset int64) ([]Value, int64) {
	values := make([]Value, len(regs))
	for i, r := range regs {
		values[i] = Value{Reg: r, Type: p.Func.Regs[r].Type}
	}
	slices.SortStableFunc(values, func(a, b Value) int { return cmp.Compare(b.Type.Size(), a.Type.Size()) })
	for i := range values {
		values[i].Offset = offset
		offset += int64(values[i].Type.Size())
	}
	return values, offset
}
