// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// pointAt returns the number of the pause point behind an instruction, or 0.
func (e *emitter) pointAt(b *ir.Block, index int) int {
	if e.origin != nil {
		if e.order[b] == 0 {
			index += e.skipped
		}
		b = e.origin[b]
	}
	return e.points[pointAt{b, nil, index}]
}

// pointAt is where a point is: behind an instruction of a block, or on the edge to
// a block from another.
type pointAt struct {
	block, from *ir.Block
	index       int
}

// pointsOf counts a plan's points, from 1.
func pointsOf(plan *pause.Plan) map[pointAt]int {
	points := make(map[pointAt]int, len(plan.Points))
	for i, p := range plan.Points {
		points[pointAt{p.Block, p.From, p.Index}] = i + 1
	}
	return points
}

// pointOn returns the number of the pause point on a back-edge, or 0.
func (e *emitter) pointOn(from, to *ir.Block) int {
	return e.points[pointAt{to, from, 0}]
}

// backEdges tells of a kernel whose threads stop each at a point of its own.
func (e *emitter) backEdges() bool {
	return len(e.plan.Points) > 0 && e.plan.Points[0].Kind == pause.BackEdge
}

// edge is the jump from a block to another. On a back-edge with a point the flag
// is looked at in every flagRounds-th round.
func (e *emitter) edge(from, to *ir.Block) string {
	jump := fmt.Sprintf("goto B%d;", e.order[to])
	if n := e.dispatched[to]; n > 0 {
		jump = fmt.Sprintf("{ hg_at = %d; goto hg_dispatch; }", n)
	}
	k := e.pointOn(from, to)
	if k == 0 {
		return jump
	}
	e.saved[k] = true
	return fmt.Sprintf("{ if ((++hg_round & %d) == 0 && hg_flagged(hg)) goto hg_save%d; %s }", flagRounds-1, k, jump)
}

// poll is the end of a loop's round between barriers: the same.
func (e *emitter) poll() string {
	if len(e.plan.Points) == 0 {
		return "false"
	}
	return fmt.Sprintf("(++hg_round & %d) == 0 && hg_flagged(hg)", flagRounds-1)
}

// gathers tells of a kernel in natural mode with loops between barriers that threads
// leave to stop.
func (e *emitter) gathers() bool {
	return e.mode == Natural && slices.ContainsFunc(e.plan.Points, func(p pause.Point) bool { return len(p.Polls) > 0 })
}

// meetWords are where the words of barriers begin to which these threads go.
const meetWords = 4

// clearMeet clears them, by the leader.
func (e *emitter) clearMeet() {
	for i := range 3 {
		if e.gathers() {
			e.line("hg_pf[%d] = 0;", meetWords+i)
		}
	}
}

// flagRounds is a power of two: a read of the flag costs about as much as a round
// of a short loop.
const flagRounds = 64

// enter writes what comes before a block's first instruction: nothing begins once
// the flag is set. Blocks that wait for one another all begin, or the others would
// wait for ever, unless they stop while they wait.
func (e *emitter) enter() {
	if e.plan.Waits && len(e.plan.Points) == 0 {
		return
	}
	e.open("if (hg_t == 0)")
	e.line("hg_pf[%d] = hg_flagged(hg);", e.entryWord())
	if e.backEdges() {
		e.line("hg_pf[%d] = 0;", e.anyWord())
	}
	e.clearMeet()
	e.close()
	e.line(barrier)
	if e.backEdges() && e.mode == Natural {
		// Straight to the barrier at the end: if a way led past it, PoCL's compiler
		// would copy all ways to it, for ever where there are many.
		e.line("hg_none = hg_pf[%d];", e.entryWord())
		e.open("if (hg_none)")
		e.line("goto hg_out;")
		e.close()
	} else {
		e.open("if (hg_pf[%d])", e.entryWord())
		e.line("return;")
		e.close()
	}
	if e.mode == Natural {
		e.line("hg_ph = 1;")
	}
}

// entryWord is where the flag's value is at the entry. In natural mode it is the
// first of the two that take turns.
func (e *emitter) entryWord() int {
	if e.mode == General {
		return generalWords
	}
	return 0
}

// anyWord tells, in a kernel with back-edge points, whether a thread has stopped.
func (e *emitter) anyWord() int {
	if e.mode == General {
		return generalWords + 1
	}
	return 2
}

// sharedBytes is how much shared memory the block has, static and dynamic.
func (e *emitter) sharedBytes() string {
	return fmt.Sprintf("((%du + hg->shared + 15) & ~15u)", e.shared.Size)
}

// area declares where the block's state is, and its values.
func (e *emitter) area() {
	e.line("const uint shared = %s;", e.sharedBytes())
	e.line("const ulong area = hg_area(hg, hg_b, hg_n, shared, %d, %d), values = area + shared;", e.plan.ThreadBytes, e.local.Size)
}

// value is where a saved register of this thread is.
func value(v pause.Value) string {
	t := v.Type
	if t == ir.Pred {
		t = ir.B8
	}
	place := fmt.Sprintf("values + %d * (ulong)hg_n + %d * hg_t", v.Offset, t.Size())
	if t.Size() == 16 {
		return fmt.Sprintf("*(__global ulong2 *)(%s)", place)
	}
	return fmt.Sprintf("*(__global hg_b%d *)(%s)", 8*t.Size(), place)
}

// localArea is where this thread's local memory is saved.
func (e *emitter) localArea() string {
	return fmt.Sprintf("values + %d * (ulong)hg_n + %d * (ulong)hg_t", e.plan.ThreadBytes, e.local.Size)
}

// savers writes, for each point, how it is saved. Threads go on at a label.
func (e *emitter) savers(label string) {
	for i, p := range e.plan.Points {
		if !e.saved[i+1] {
			continue
		}
		e.label("hg_save%d", i+1)
		e.open("")
		e.area()
		if p.Kind == pause.Barrier {
			e.line("hg_save_shared(area, hg_shared, shared, hg_t, hg_n);")
			e.open("if (hg_t == 0)")
			e.line("hg_status(hg, hg_b, %d);", i+1)
			e.close()
		} else {
			e.line("*(__global uint *)(values + 4 * hg_t) = %d;", i+1)
			e.line("hg_pf[%d] = 1;", e.anyWord())
		}
		for _, v := range p.Values {
			e.line("%s = %s;", value(v), reg(v.Reg))
		}
		e.localParts("hg_save_local", i+1)
		e.close()
		e.line("goto %s;", label)
	}
}

// loadValues writes how a thread gets back what was saved of it at a point.
func (e *emitter) loadValues(k int) {
	for _, v := range e.plan.Points[k-1].Values {
		e.line("%s = %s;", reg(v.Reg), value(v))
	}
	e.localParts("hg_load_local", k)
}

// localParts writes a call for each part of local memory that a point saves.
func (e *emitter) localParts(call string, k int) {
	for _, p := range e.plan.LocalParts(k) {
		size := fmt.Sprint(p.Size)
		if p.Stack != nil {
			size = fmt.Sprintf("hg_used(%s, %d, %d)", reg(p.Stack.Top), p.Offset-p.Stack.Above, p.Size)
		}
		e.line("%s(%s, %s, %d, %s);", call, e.localArea(), e.localPointer(), p.Offset, size)
	}
}

// restore writes how a block gets back its state at a barrier.
func (e *emitter) restore(k int) {
	e.open("")
	e.area()
	e.line("hg_load_shared(area, hg_shared, shared, hg_t, hg_n);")
	e.loadValues(k)
	e.close()
	if e.gathers() {
		e.open("if (hg_t == 0)")
		e.clearMeet()
		e.close()
	}
	e.line(barrier)
}

// restoreAny writes how a block gets back its state wherever it is, or begins; a
// point's number is counted on from meetings.
func (e *emitter) restoreAny(meetings int) {
	e.line("const uint hg_from = ((__global const uint *)hg->state)[hg_b];")
	e.line("uint hg_pc = 0, hg_bar = 16;")
	e.open("if (hg_t == 0)")
	e.line("hg_pf[%d] = hg_flagged(hg);", e.entryWord())
	e.close()
	e.line(barrier)
	e.open("if (hg_from == %d && hg_pf[%d])", pause.NotStarted, e.entryWord())
	e.line("return;")
	e.close()
	e.open("if (hg_from != %d)", pause.NotStarted)
	e.area()
	e.line("hg_load_shared(area, hg_shared, shared, hg_t, hg_n);")
	e.line("hg_pc = %d + hg_from;", meetings)
	e.line("switch (hg_from) {")
	for i := range e.plan.Points {
		e.line("case %d:", i+1)
		e.depth++
		e.loadValues(i + 1)
		e.line("break;")
		e.depth--
	}
	e.line("default: break;")
	e.line("}")
	e.close()
	e.line(barrier)
}

// restoreThreads writes how threads go on that stopped at points of their own, and
// returns the blocks at which they do.
func (e *emitter) restoreThreads() []*ir.Block {
	var begin []*ir.Block
	for _, p := range e.plan.Points {
		begin = append(begin, p.Block)
		e.dispatch(p.Block)
	}
	e.open("if (hg_t == 0)")
	e.line("hg_pf[%d] = 0;", e.anyWord())
	e.close()
	e.line(barrier)
	e.open("")
	e.area()
	e.line("switch (*(__global uint *)(values + 4 * hg_t)) {")
	for i, p := range e.plan.Points {
		e.line("case %d:", i+1)
		e.depth++
		e.loadValues(i + 1)
		e.line("hg_at = %d;", e.dispatched[p.Block])
		e.line("break;")
		e.depth--
	}
	e.line("default: break;")
	e.line("}")
	e.close()
	e.line("goto hg_dispatch;")
	return begin
}

// ended writes that this thread has come to its end, for those that are resumed.
func (e *emitter) ended() {
	if !e.backEdges() {
		return
	}
	e.open("if (hg->state != 0)")
	e.area()
	e.line("*(__global uint *)(values + 4 * hg_t) = %#xu;", pause.ThreadEnded)
	e.close()
}

// threadStatus writes the status of a block whose threads have points of their own,
// unless it has not begun.
func (e *emitter) threadStatus() {
	e.open("if (hg_t == 0 && !hg_none)")
	e.line("hg_status(hg, hg_b, hg_pf[%d] ? %#xu : %#xu);", e.anyWord(), pause.ThreadPoints, pause.Done)
	e.close()
}

// leave writes the end of a kernel in natural mode: the block's status.
func (e *emitter) leave() {
	e.label("hg_end")
	e.ended()
	if e.backEdges() {
		e.line("goto hg_out;")
		e.savers("hg_out")
		e.label("hg_out")
		e.line(barrier)
		e.threadStatus()
		return
	}
	e.open("if (hg_t == 0)")
	e.line("hg_status(hg, hg_b, %#xu);", pause.Done)
	e.close()
	if len(e.saved) > 0 {
		e.line("return;")
		e.savers("hg_out")
		e.label("hg_out")
	}
}
