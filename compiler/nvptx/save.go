// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

func saveLabel(point int) string  { return fmt.Sprintf("$hg_save%d", point) }
func afterLabel(point int) string { return fmt.Sprintf("$hg_after%d", point) }
func loadLabel(point int) string  { return fmt.Sprintf("$hg_load%d", point) }

const endLabel = "$hg_end"

// begin prints how a kernel gets to where it begins.
func (e *emitter) begin() error {
	if e.start.listed {
		e.listedBlock()
	}
	if e.start.point == 0 && !e.start.threads {
		e.askOnce()
		e.line("@%%hg_p bra.uni $hg_leave;")
		return nil
	}
	e.locate()
	if e.start.point > 0 {
		e.load(e.start.point)
		e.line("bar.sync 0;") // the shared memory is there
		e.line("bra.uni %s;", afterLabel(e.start.point))
		return nil
	}
	// Each thread at its own point, 0 is the beginning.
	e.line("mul.wide.u32 %%hg_t, %%hg_tid, 4;")
	e.line("add.u64 %%hg_b, %%hg_values, %%hg_t;")
	e.line("ld.global.u32 %%hg_v, [%%hg_b];")
	e.line("setp.eq.u32 %%hg_p, %%hg_v, %d;", pause.ThreadEnded)
	e.line("@%%hg_p bra %s;", endLabel)
	for i := range e.plan.Points {
		e.line("setp.eq.u32 %%hg_p, %%hg_v, %d;", i+1)
		e.line("@%%hg_p bra %s;", loadLabel(i+1))
	}
	e.line("bra %s;", blockLabel(0))
	for i, p := range e.plan.Points {
		e.place(loadLabel(i + 1))
		e.load(i + 1)
		e.line("bra %s;", e.target(p.Block))
	}
	return nil
}

// listedBlock finds which block of the launch this one is.
func (e *emitter) listedBlock() {
	e.line("ld.global.u64 %%hg_a, [%%hg+%d];", launchList)
	e.line("mov.u32 %%hg_block, %%ctaid.x;")
	e.line("mul.wide.u32 %%hg_t, %%hg_block, 4;")
	e.line("add.u64 %%hg_a, %%hg_a, %%hg_t;")
	e.line("ld.global.u32 %%hg_block, [%%hg_a];")
	e.grid()
	e.line("rem.u32 %%hg_cx, %%hg_block, %%hg_nx;")
	e.line("div.u32 %%hg_i, %%hg_block, %%hg_nx;")
	e.line("rem.u32 %%hg_cy, %%hg_i, %%hg_ny;")
	e.line("div.u32 %%hg_cz, %%hg_i, %%hg_ny;")
}

func (e *emitter) grid() {
	for i, r := range []string{"nx", "ny", "nz"} {
		e.line("ld.global.u32 %%hg_%s, [%%hg+%d];", r, launchGrid+4*i)
	}
}

// ownBlock is listedBlock for a kernel that was launched with the program's grid.
func (e *emitter) ownBlock() {
	if e.start.listed {
		return
	}
	e.grid()
	e.line("mov.u32 %%hg_cx, %%ctaid.x;")
	e.line("mov.u32 %%hg_cy, %%ctaid.y;")
	e.line("mov.u32 %%hg_cz, %%ctaid.z;")
	e.line("mad.lo.u32 %%hg_block, %%hg_cz, %%hg_ny, %%hg_cy;")
	e.line("mad.lo.u32 %%hg_block, %%hg_block, %%hg_nx, %%hg_cx;")
}

// locate computes where the block's area, values and status are, as
// pause.Plan.StateBytes has it.
func (e *emitter) locate() {
	e.line("ld.global.u64 %%hg_area, [%%hg+%d];", launchState)
	e.line("mul.wide.u32 %%hg_t, %%hg_block, 4;")
	e.line("add.u64 %%hg_status, %%hg_area, %%hg_t;")
	// The areas begin behind the status words.
	e.line("mul.lo.u32 %%hg_i, %%hg_nx, %%hg_ny;")
	e.line("mul.lo.u32 %%hg_i, %%hg_i, %%hg_nz;")
	e.line("mul.wide.u32 %%hg_t, %%hg_i, 4;")
	e.line("add.u64 %%hg_t, %%hg_t, 15;")
	e.line("and.b64 %%hg_t, %%hg_t, -16;")
	e.line("add.u64 %%hg_area, %%hg_area, %%hg_t;")
	// Shared memory comes first.
	e.line("ld.global.u32 %%hg_i, [%%hg+%d];", launchShared)
	e.line("cvt.u64.u32 %%hg_values, %%hg_i;")
	e.line("add.u64 %%hg_values, %%hg_values, %d;", e.plan.SharedBytes+15)
	e.line("and.b64 %%hg_values, %%hg_values, -16;")
	e.line("cvt.u64.u32 %%hg_b, %%hg_threads;")
	e.line("mul.lo.u64 %%hg_t, %%hg_b, %d;", e.plan.ThreadBytes+e.plan.LocalBytes)
	e.line("add.u64 %%hg_t, %%hg_t, %%hg_values;")
	e.line("cvt.u64.u32 %%hg_a, %%hg_block;")
	e.line("mul.lo.u64 %%hg_t, %%hg_t, %%hg_a;")
	e.line("add.u64 %%hg_area, %%hg_area, %%hg_t;")
	e.line("add.u64 %%hg_values, %%hg_values, %%hg_area;")
	e.line("mul.lo.u64 %%hg_local, %%hg_b, %d;", e.plan.ThreadBytes)
	e.line("add.u64 %%hg_local, %%hg_local, %%hg_values;")
	e.line("cvt.u64.u32 %%hg_t, %%hg_tid;")
	e.line("mul.lo.u64 %%hg_t, %%hg_t, %d;", e.plan.LocalBytes)
	e.line("add.u64 %%hg_local, %%hg_local, %%hg_t;")
}

// save prints what a block does that pauses at a point.
func (e *emitter) save(i int) {
	point := e.plan.Points[i]
	e.place(saveLabel(i + 1))
	e.ownBlock()
	e.locate()
	for _, v := range point.Values {
		e.valueAddress(v)
		e.storeValue(v)
	}
	if point.Kind == pause.BackEdge {
		e.line("mov.u32 %%hg_v, %d;", i+1)
		e.storeThreadPoint()
		e.line("mov.pred %%hg_saved, 1;")
		e.memory(false)
		e.line("bra %s;", endLabel)
		return
	}
	if e.copiesLater() {
		e.line("cp.async.wait_all;")
		e.line("bar.sync 0;")
	}
	e.memory(false)
	e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
	e.line("@%%hg_p st.global.u32 [%%hg_status], %d;", i+1)
	e.line("bra.uni $hg_leave;")
}

// copiesLater tells whether copies to shared memory can be under way at a barrier.
// Before it is saved, each thread waits for its own.
func (e *emitter) copiesLater() bool {
	for _, b := range e.fn.Blocks {
		for _, in := range b.Instrs {
			if in.Op == ir.CpAsync {
				return true
			}
		}
	}
	return false
}

// load prints the way back of save.
func (e *emitter) load(number int) {
	for _, v := range e.plan.Points[number-1].Values {
		e.valueAddress(v)
		e.loadValue(v)
	}
	e.memory(true)
}

func (e *emitter) storeThreadPoint() {
	e.line("mul.wide.u32 %%hg_t, %%hg_tid, 4;")
	e.line("add.u64 %%hg_b, %%hg_values, %%hg_t;")
	e.line("st.global.u32 [%%hg_b], %%hg_v;")
}

// valueAddress makes %hg_b the address of this thread's value.
func (e *emitter) valueAddress(v pause.Value) {
	e.line("mul.wide.u32 %%hg_t, %%hg_threads, %d;", v.Offset)
	e.line("add.u64 %%hg_b, %%hg_values, %%hg_t;")
	e.line("mul.wide.u32 %%hg_t, %%hg_tid, %d;", v.Type.Size())
	e.line("add.u64 %%hg_b, %%hg_b, %%hg_t;")
}

// exchange saves (by "sub") or loads (by "add") an address of shared or local
// memory: a state has its distance from where that begins, a generic one with the
// window before it. to is where the difference or sum goes, of 8 or of 4 bytes. It
// returns false for values that are none.
func (e *emitter) exchange(v pause.Value, op, to8, to4 string) bool {
	reg, to := regName(e.fn, v.Reg), to8
	of := e.bases.regs[v.Reg]
	window := map[base]uint64{genericShared: ir.SharedWindow, genericLocal: ir.LocalWindow}[of]
	switch of {
	case sharedBase, genericShared:
		e.line("mov.u64 %%hg_a, %s;", e.beginning(ir.Shared))
	case localBase, genericLocal:
		e.line("mov.u64 %%hg_a, %s;", e.beginning(ir.Local))
	default:
		return false
	}
	if window != 0 {
		space := ir.Shared
		if of == genericLocal {
			space = ir.Local
		}
		e.line("cvta.%s.u64 %%hg_a, %%hg_a;", space)
		e.line("sub.u64 %%hg_a, %%hg_a, %d;", window)
	}
	if v.Type == ir.B32 {
		to = to4
		e.line("cvt.u32.u64 %%hg_i, %%hg_a;")
	}
	from := reg
	if op == "add" {
		e.line("ld.global.%s %s, [%%hg_b];", v.Type, reg)
	}
	if v.Type == ir.B32 {
		e.line("%s.u32 %s, %s, %%hg_i;", op, to, from)
	} else {
		e.line("%s.u64 %s, %s, %%hg_a;", op, to, from)
	}
	if op == "sub" {
		e.line("st.global.%s [%%hg_b], %s;", v.Type, to)
	}
	return true
}

func (e *emitter) storeValue(v pause.Value) {
	reg := regName(e.fn, v.Reg)
	if e.exchange(v, "sub", "%hg_t", "%hg_v") {
		return
	}
	switch v.Type {
	case ir.Pred:
		e.line("selp.b32 %%hg_v, 1, 0, %s;", reg)
		e.line("st.global.u8 [%%hg_b], %%hg_v;")
	case ir.B128:
		e.line("mov.b128 {%%hg_t, %%hg_a}, %s;", reg)
		e.line("st.global.v2.b64 [%%hg_b], {%%hg_t, %%hg_a};")
	default:
		e.line("st.global.%s [%%hg_b], %s;", v.Type, reg)
	}
}

func (e *emitter) loadValue(v pause.Value) {
	reg := regName(e.fn, v.Reg)
	if e.exchange(v, "add", reg, reg) {
		return
	}
	switch v.Type {
	case ir.Pred:
		e.line("ld.global.u8 %%hg_v, [%%hg_b];")
		e.line("setp.ne.u32 %s, %%hg_v, 0;", reg)
	case ir.B128:
		e.line("ld.global.v2.b64 {%%hg_t, %%hg_a}, [%%hg_b];")
		e.line("mov.b128 %s, {%%hg_t, %%hg_a};", reg)
	default:
		e.line("ld.global.%s %s, [%%hg_b];", v.Type, reg)
	}
}

// memory copies the block's shared memory, all threads together, and each
// thread's local memory, to the area or back.
func (e *emitter) memory(back bool) {
	if e.plan.SharedBytes > 0 {
		e.copy(copying{space: "shared", name: sharedArray, area: "%hg_area", back: back, together: true, unit: 4}, fmt.Sprint(e.plan.SharedBytes))
	}
	if dynamic := e.dynamic(); dynamic != "" {
		e.line("ld.global.u32 %%hg_votes, [%%hg+%d];", launchShared)
		e.copy(copying{space: "shared", name: dynamic, area: "%hg_area", offset: e.plan.SharedBytes, back: back, together: true, unit: 1}, "%hg_votes")
	}
	if e.plan.LocalBytes > 0 {
		e.copy(copying{space: "local", name: localArray, area: "%hg_local", back: back, unit: 4}, fmt.Sprint(e.plan.LocalBytes))
	}
}

// copying is a copy between a variable and the area.
type copying struct {
	space, name, area string
	offset            int64 // in the area
	unit              int   // bytes at a time
	back              bool  // from the area
	together          bool  // each thread has its share
}

func (e *emitter) copy(c copying, size string) {
	loop, done := e.label(), e.label()
	step := fmt.Sprint(c.unit)
	if c.together {
		e.line("mul.lo.u32 %%hg_i, %%hg_tid, %d;", c.unit)
		e.line("mul.lo.u32 %%hg_count, %%hg_threads, %d;", c.unit)
		step = "%hg_count"
	} else {
		e.line("mov.u32 %%hg_i, 0;")
	}
	e.line("mov.u64 %%hg_a, %s;", c.name)
	e.place(loop)
	e.line("setp.ge.u32 %%hg_p, %%hg_i, %s;", size)
	e.line("@%%hg_p bra %s;", done)
	e.line("cvt.u64.u32 %%hg_t, %%hg_i;")
	e.line("add.u64 %%hg_b, %s, %%hg_t;", c.area)
	e.line("add.u64 %%hg_t, %%hg_a, %%hg_t;")
	of := map[int]string{1: "u8", 4: "u32"}[c.unit]
	if c.back {
		e.line("ld.global.%s %%hg_v, [%%hg_b+%d];", of, c.offset)
		e.line("st.%s.%s [%%hg_t], %%hg_v;", c.space, of)
	} else {
		e.line("ld.%s.%s %%hg_v, [%%hg_t];", c.space, of)
		e.line("st.global.%s [%%hg_b+%d], %%hg_v;", of, c.offset)
	}
	e.line("add.u32 %%hg_i, %%hg_i, %s;", step)
	e.line("bra %s;", loop)
	e.place(done)
	if c.together {
		e.line("mov.u32 %%hg_count, 1;")
	}
}

// ends prints how threads end that ran to their end.
//
// At a kernel's end no barrier is to come at which the block could pause, so that
// one thread's word is enough. Where threads pause by themselves they meet here,
// those that have saved too, and the block is done if nobody has.
func (e *emitter) ends() {
	e.place(endLabel)
	e.line("ld.global.u64 %%hg_a, [%%hg+%d];", launchState)
	e.line("setp.eq.u64 %%hg_p, %%hg_a, 0;")
	e.line("@%%hg_p bra $hg_leave;")
	if e.plan.Class == pause.BarrierPausable {
		e.line("setp.ne.u32 %%hg_p, %%hg_tid, 0;")
		e.line("@%%hg_p bra $hg_leave;")
		e.ownBlock()
		e.line("mul.wide.u32 %%hg_t, %%hg_block, 4;")
		e.line("add.u64 %%hg_a, %%hg_a, %%hg_t;")
		e.line("mov.u32 %%hg_v, %d;", pause.Done)
		e.line("st.global.u32 [%%hg_a], %%hg_v;")
	} else {
		e.line("barrier.red.popc.u32 %%hg_votes, 0, %%hg_saved;")
		e.ownBlock()
		e.locate()
		e.line("setp.eq.u32 %%hg_q, %%hg_votes, 0;")
		e.line("selp.b32 %%hg_v, %d, %d, %%hg_q;", pause.Done, pause.ThreadPoints)
		e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
		e.line("@%%hg_p st.global.u32 [%%hg_status], %%hg_v;")
		e.line("or.pred %%hg_p, %%hg_q, %%hg_saved;")
		e.line("@%%hg_p bra $hg_leave;")
		e.line("mov.u32 %%hg_v, %d;", pause.ThreadEnded)
		e.storeThreadPoint()
	}
	e.place("$hg_leave")
	e.line("exit;")
}
