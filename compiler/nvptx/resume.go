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

// ways are how a kernel gets from its beginning to its pause points.
//
// PTX may jump into the middle of a loop, but compilers know little of loops with
// two beginnings, and where the threads of a warp take different ways into one
// nobody says where they meet again. So the way leads over the headers of the
// loops around a point, from the outermost to the innermost: each has a branch
// that is only taken on the way.
type ways struct {
	// first is where to go for each point, from the kernel's beginning, and next
	// from the header of a loop.
	first []way
	next  map[*ir.Block][]way
}

// way is where to go to get to a point: to the header of a loop around it, or, if
// that is nil, to the point.
type way struct {
	point  int
	header *ir.Block
}

func findWays(plan *pause.Plan) *ways {
	cfg := passes.NewCFG(plan.Func)
	loops := cfg.Loops(cfg.Dominators())
	w := &ways{next: map[*ir.Block][]way{}}
	for i := range plan.Points {
		around := loops.Around(cfg.Number[plan.Points[i].Block])
		if plan.Points[i].Kind == pause.BackEdge { // it goes on at the loop's own header
			around = around[1:]
		}
		target := way{point: i + 1}
		for _, loop := range around {
			header := cfg.Blocks[loop.Header]
			w.next[header] = append(w.next[header], target)
			target.header = header
		}
		w.first = append(w.first, target)
	}
	return w
}

// wayLabel is where a way goes on.
func (e *emitter) wayLabel(w way) string {
	if w.header == nil {
		return loadLabel(w.point)
	}
	return blockLabel(e.blocks[w.header])
}

// resume prints what is done before the first block: what is the block's, or the
// thread's, status? No status changes before all threads have read it, for which
// they meet in prologue. Then it is that of a block which ends by itself; one that
// stops writes another.
func (e *emitter) resume() {
	e.leader()
	e.line("setp.eq.u32 %%hg_p, %%hg_i, 0;")
	e.line("mov.u32 %%hg_v, %d;", pause.Done)
	e.line("@%%hg_p st.global.u32 [%%hg_a], %%hg_v;")
	if e.plan.Class == pause.BackEdgePausable { // threads change it together
		e.line("bar.sync 0;")
	}
	e.line("mov.pred %%hg_resuming, 0;")
	e.line("setp.eq.u32 %%hg_p, %%hg_point, %d;", pause.NotStarted)
	e.line("@%%hg_p bra.uni %s;", blockLabel(0))
	e.locate()
	if e.plan.Class == pause.BackEdgePausable {
		e.line("setp.ne.u32 %%hg_p, %%hg_point, %d;", pause.ThreadPoints)
		e.line("@%%hg_p bra.uni $hg_bad;")
		e.threadPoint()
		e.line("ld.global.u32 %%hg_point, [%%hg_b];")
		e.line("setp.eq.u32 %%hg_p, %%hg_point, %d;", pause.ThreadEnded)
		e.line("@%%hg_p exit;")
		e.line("setp.eq.u32 %%hg_p, %%hg_point, 0;")
		e.line("@%%hg_p bra %s;", blockLabel(0))
	}
	e.line("setp.gt.u32 %%hg_p, %%hg_point, %d;", len(e.plan.Points))
	e.line("@%%hg_p bra%s $hg_bad;", e.uni())
	e.shared(true)
	if e.plan.Class == pause.BarrierPausable {
		e.line("bar.sync 0;") // the shared memory is there
	}
	e.line("mov.pred %%hg_resuming, 1;")
	e.dispatch(e.ways.first)
}

// dispatch goes on to the point %hg_point: ways are sorted by their points, and
// halved until all that are left lead to the same place.
func (e *emitter) dispatch(ways []way) {
	first := ways[0]
	if len(ways) == 1 || first.header != nil && !slices.ContainsFunc(ways, func(w way) bool { return w.header != first.header }) {
		e.line("bra%s %s;", e.uni(), e.wayLabel(first))
		return
	}
	half, upper := len(ways)/2, e.label()
	e.line("setp.ge.u32 %%hg_p, %%hg_point, %d;", ways[half].point)
	e.line("@%%hg_p bra%s %s;", e.uni(), upper)
	e.dispatch(ways[:half])
	e.place(upper)
	e.dispatch(ways[half:])
}

func onLabel(block int) string { return fmt.Sprintf("$hg_on%d", block) }

// passThrough is what the header of a loop with points begins with.
func (e *emitter) passThrough(b *ir.Block) {
	if e.ways != nil && len(e.ways.next[b]) > 0 {
		e.line("@%%hg_resuming bra%s %s;", e.uni(), onLabel(e.blocks[b]))
	}
}

// waysOn prints where these branches go, and behind them the loading of each
// point's values. These are loaded as late as that, so that none of them takes a
// register on the way.
func (e *emitter) waysOn() {
	for i, b := range e.fn.Blocks {
		if next := e.ways.next[b]; len(next) > 0 {
			e.place(onLabel(i))
			e.dispatch(next)
		}
	}
	for i, p := range e.plan.Points {
		e.place(loadLabel(i + 1))
		e.line("mov.pred %%hg_resuming, 0;")
		e.locate()
		e.values(p.Values, e.loadValue)
		e.local(i+1, true)
		if p.Kind == pause.BackEdge {
			e.line("bra %s;", blockLabel(e.blocks[p.Block]))
		} else {
			e.line("bra.uni %s;", afterLabel(i+1))
		}
	}
	e.place("$hg_bad") // no such status was ever written
	e.line("trap;")
	e.line("exit;")
}
