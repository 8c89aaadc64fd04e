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

// thread computes the thread's number in its block, and how many there are.
func (e *emitter) thread() {
	e.line("mov.u32 %%hg_tid, %%tid.z;")
	e.line("mov.u32 %%hg_v, %%ntid.y;")
	e.line("mov.u32 %%hg_i, %%tid.y;")
	e.line("mad.lo.u32 %%hg_tid, %%hg_tid, %%hg_v, %%hg_i;")
	e.line("mov.u32 %%hg_threads, %%ntid.x;")
	e.line("mov.u32 %%hg_i, %%tid.x;")
	e.line("mad.lo.u32 %%hg_tid, %%hg_tid, %%hg_threads, %%hg_i;")
	e.line("mul.lo.u32 %%hg_threads, %%hg_threads, %%hg_v;")
	e.line("mov.u32 %%hg_v, %%ntid.z;")
	e.line("mul.lo.u32 %%hg_threads, %%hg_threads, %%hg_v;")
}

// blockNumber computes the block's number.
func (e *emitter) blockNumber() {
	e.line("mov.u32 %%hg_block, %%ctaid.z;")
	e.line("mov.u32 %%hg_v, %%nctaid.y;")
	e.line("mov.u32 %%hg_i, %%ctaid.y;")
	e.line("mad.lo.u32 %%hg_block, %%hg_block, %%hg_v, %%hg_i;")
	e.line("mov.u32 %%hg_v, %%nctaid.x;")
	e.line("mov.u32 %%hg_i, %%ctaid.x;")
	e.line("mad.lo.u32 %%hg_block, %%hg_block, %%hg_v, %%hg_i;")
}

// statusAddress makes %hg_a the address of the block's status.
func (e *emitter) statusAddress() {
	e.blockNumber()
	e.line("ld.param.u64 %%hg_a, [%s+%d];", LaunchParam, launchState)
	e.line("mul.wide.u32 %%hg_t, %%hg_block, 4;")
	e.line("add.u64 %%hg_a, %%hg_a, %%hg_t;")
}

// locate computes where the block's area and the values in it are.
func (e *emitter) locate() {
	e.thread()
	e.blockNumber()
	e.line("cvt.u64.u32 %%hg_t, %%hg_block;")
	e.line("ld.param.u64 %%hg_a, [%s+%d];", LaunchParam, launchAreaBytes)
	e.line("ld.param.u64 %%hg_area, [%s+%d];", LaunchParam, launchAreas)
	e.line("mad.lo.u64 %%hg_area, %%hg_a, %%hg_t, %%hg_area;")
	// Shared memory comes first.
	e.line("ld.param.u32 %%hg_i, [%s+%d];", LaunchParam, launchShared)
	e.line("add.u32 %%hg_i, %%hg_i, %d;", e.plan.SharedBytes+15)
	e.line("and.b32 %%hg_i, %%hg_i, -16;")
	e.line("cvt.u64.u32 %%hg_t, %%hg_i;")
	e.line("add.u64 %%hg_values, %%hg_area, %%hg_t;")
}

const savedLabel = "$hg_saved"

// save prints what a block does, or a thread, that pauses at a point.
func (e *emitter) save(number int) {
	point := &e.plan.Points[number-1]
	e.place(saveLabel(number))
	e.locate()
	e.values(point.Values, e.storeValue)
	e.local(number, false)
	e.line("mov.u32 %%hg_point, %d;", number)
	e.line("bra%s %s;", e.uni(), savedLabel)
}

// saved prints the end of it, which is the same for all points: the block's shared
// memory, and the status.
func (e *emitter) saved() {
	e.place(savedLabel)
	e.locate() // again, so that only the point's number comes here in a register
	if e.plan.Class == pause.BackEdgePausable {
		e.savedThread()
		return
	}
	if e.copiesLater() {
		e.line("cp.async.wait_all;")
		e.line("barrier.sync 0;") // at some points a warp's threads come one by one
	}
	e.shared(false)
	e.statusAddress()
	e.line("setp.eq.u32 %%hg_p, %%hg_tid, 0;")
	e.line("@%%hg_p st.global.u32 [%%hg_a], %%hg_point;")
	e.line("exit;")
}

// savedThread is the end of it where threads stop on their own. All that are left
// meet here, and say of the others that they have ended. They divide them by their
// numbers, which they take from the status, Done so far: the one before 0.
func (e *emitter) savedThread() {
	loop, behind := e.label(), e.label()
	e.statusAddress()
	e.line("atom.global.add.u32 %%hg_i, [%%hg_a], 1;")
	e.line("add.u32 %%hg_i, %%hg_i, 1;")
	e.line("mov.pred %%hg_p, 1;")
	e.line("barrier.red.popc.u32 %%hg_votes, 0, %%hg_p;")
	e.line("mov.u32 %%hg_v, %d;", pause.ThreadEnded)
	e.place(loop)
	e.line("setp.ge.u32 %%hg_p, %%hg_i, %%hg_threads;")
	e.line("@%%hg_p bra %s;", behind)
	e.line("mul.wide.u32 %%hg_t, %%hg_i, 4;")
	e.line("add.u64 %%hg_b, %%hg_values, %%hg_t;")
	e.line("st.global.u32 [%%hg_b], %%hg_v;")
	e.line("add.u32 %%hg_i, %%hg_i, %%hg_votes;")
	e.line("bra %s;", loop)
	e.place(behind)
	e.line("barrier.sync 0;")
	e.threadPoint()
	e.line("st.global.u32 [%%hg_b], %%hg_point;")
	e.line("mov.u32 %%hg_v, %d;", pause.ThreadPoints)
	e.line("st.global.u32 [%%hg_a], %%hg_v;")
	e.line("exit;")
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

// threadPoint makes %hg_b the address of the thread's own point.
func (e *emitter) threadPoint() {
	e.line("mul.wide.u32 %%hg_t, %%hg_tid, 4;")
	e.line("add.u64 %%hg_b, %%hg_values, %%hg_t;")
}

// values goes through the values of a point, with %hg_b the address of this
// thread's one. Each address is made of the one before it: all of the program's
// registers are alive here, and a kernel has as many as are alive at once.
func (e *emitter) values(values []pause.Value, do func(pause.Value)) {
	from, offset, size := "%hg_values", int64(0), 0
	for _, v := range values {
		e.line("mad.wide.s32 %%hg_b, %%hg_threads, %d, %s;", v.Offset-offset, from)
		if v.Type.Size() != size {
			e.line("mad.wide.s32 %%hg_b, %%hg_tid, %d, %%hg_b;", v.Type.Size()-size)
		}
		do(v)
		from, offset, size = "%hg_b", v.Offset, v.Type.Size()
	}
}

// exchange saves (by "sub") or loads (by "add") an address: a state has the
// distance of one of shared or local memory from where that begins, a generic one
// with the window before it, and one of a variable as if the variable were where
// Launch.Vars says. to is where the difference or sum goes, of 8 or of 4 bytes. It
// returns false for values that are none.
func (e *emitter) exchange(v pause.Value, op, to8, to4 string) bool {
	reg, to := regName(e.fn, v.Reg), to8
	switch of := e.bases.regs[v.Reg]; of.kind {
	case sharedBase:
		e.line("mov.u64 %%hg_a, %s;", e.beginning(ir.Shared))
	case localBase:
		e.line("mov.u64 %%hg_a, %s;", e.beginning(ir.Local))
	case genericShared:
		e.window(ir.Shared, ir.SharedWindow)
	case genericLocal:
		e.window(ir.Local, ir.LocalWindow)
	case variableBase, genericVariable:
		e.variable(of)
	default:
		return false
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

// window makes %hg_a how far a space's generic addresses are from the state's.
func (e *emitter) window(space ir.Space, state uint64) {
	e.line("mov.u64 %%hg_a, %s;", e.beginning(space))
	e.line("cvta.%s.u64 %%hg_a, %%hg_a;", space)
	e.line("sub.u64 %%hg_a, %%hg_a, %d;", state)
}

// variable makes %hg_a how far a variable's address is from the state's.
func (e *emitter) variable(of base) {
	e.line("mov.u64 %%hg_a, %s;", e.varName(of.of))
	if of.kind == genericVariable {
		e.line("cvta.const.u64 %%hg_a, %%hg_a;")
	}
	e.line("ld.param.u64 %%hg_t, [%s+%d];", LaunchParam, launchVars)
	e.line("setp.eq.u64 %%hg_p, %%hg_t, 0;")
	e.line("@!%%hg_p ld.global.u64 %%hg_t, [%%hg_t+%d];", 8*e.variables[of.of])
	e.line("@%%hg_p mov.u64 %%hg_t, %%hg_a;")
	e.line("sub.u64 %%hg_a, %%hg_a, %%hg_t;")
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

// shared copies the block's shared memory to the area or back, all threads
// together.
func (e *emitter) shared(back bool) {
	if e.plan.SharedBytes > 0 {
		e.copy(copying{space: ir.Shared, name: sharedArray, together: true, unit: 16, to: fmt.Sprint(e.plan.SharedBytes)}, back)
	}
	if dynamic := e.dynamic(); dynamic != "" {
		c := copying{space: ir.Shared, name: dynamic, at: e.plan.SharedBytes, together: true, unit: 16, to: "%hg_size"}
		e.line("ld.param.u32 %%hg_votes, [%s+%d];", LaunchParam, launchShared)
		e.line("and.b32 %%hg_size, %%hg_votes, -16;")
		e.copy(c, back)
		c.unit, c.from, c.to = 1, "%hg_size", "%hg_votes" // what is left
		e.copy(c, back)
	}
}

// local copies what a point saves of the thread's local memory, to the area or
// back. The values are saved or loaded before.
func (e *emitter) local(number int, back bool) {
	if e.plan.LocalBytes == 0 {
		return
	}
	e.line("mul.wide.u32 %%hg_t, %%hg_threads, %d;", e.plan.ThreadBytes)
	e.line("add.u64 %%hg_area, %%hg_values, %%hg_t;")
	e.line("mul.wide.u32 %%hg_t, %%hg_tid, %d;", e.plan.LocalBytes)
	e.line("add.u64 %%hg_area, %%hg_area, %%hg_t;")
	for _, p := range e.plan.LocalParts(number) {
		c := copying{space: ir.Local, name: localArray, in: p.Offset, at: p.Offset, unit: 16, to: fmt.Sprint(p.Size)}
		if p.Stack != nil { // as pause.LocalPart.Used has it
			c.to = "%hg_size"
			e.line("mov.u64 %%hg_a, %s;", localArray)
			e.line("sub.u64 %%hg_t, %s, %%hg_a;", regName(e.fn, p.Stack.Top))
			e.line("sub.u64 %%hg_t, %%hg_t, %d;", p.Offset-p.Stack.Above)
			e.line("min.u64 %%hg_t, %%hg_t, %d;", p.Size)
			e.line("cvt.u32.u64 %%hg_size, %%hg_t;")
			e.line("add.u32 %%hg_size, %%hg_size, 15;")
			e.line("and.b32 %%hg_size, %%hg_size, -16;")
		}
		e.copy(c, back)
	}
}

// copying is a copy between an array and %hg_area.
type copying struct {
	space    ir.Space
	name     string
	in, at   int64  // where it begins in the array and in the area
	from, to string // and ends, in bytes from there; from "" is 0
	unit     int    // bytes at a time, 1 or 16
	together bool   // each thread has its share
}

func (e *emitter) copy(c copying, back bool) {
	loop, done := e.label(), e.label()
	step := fmt.Sprint(c.unit)
	if c.together {
		e.line("mul.lo.u32 %%hg_i, %%hg_tid, %d;", c.unit)
		e.line("mul.lo.u32 %%hg_step, %%hg_threads, %d;", c.unit)
		step = "%hg_step"
	} else {
		e.line("mov.u32 %%hg_i, 0;")
	}
	if c.from != "" {
		e.line("add.u32 %%hg_i, %%hg_i, %s;", c.from)
	}
	e.line("mov.u64 %%hg_a, %s;", c.name)
	e.place(loop)
	e.line("setp.ge.u32 %%hg_p, %%hg_i, %s;", c.to)
	e.line("@%%hg_p bra %s;", done)
	e.line("cvt.u64.u32 %%hg_t, %%hg_i;")
	e.line("add.u64 %%hg_b, %%hg_area, %%hg_t;")
	e.line("add.u64 %%hg_t, %%hg_a, %%hg_t;")
	of, values := "u8", "%hg_v0"
	if c.unit == 16 {
		of, values = "v4.b32", "{%hg_v0, %hg_v1, %hg_v2, %hg_v3}"
	}
	memory, area := fmt.Sprintf("[%%hg_t+%d]", c.in), fmt.Sprintf("[%%hg_b+%d]", c.at)
	if back {
		e.line("ld.global.%s %s, %s;", of, values, area)
		e.line("st.%s.%s %s, %s;", c.space, of, memory, values)
	} else {
		e.line("ld.%s.%s %s, %s;", c.space, of, values, memory)
		e.line("st.global.%s %s, %s;", of, area, values)
	}
	e.line("add.u32 %%hg_i, %%hg_i, %s;", step)
	e.line("bra %s;", loop)
	e.place(done)
}
