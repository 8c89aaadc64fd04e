// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var threadHandlers = map[string]func(*function){
	"bar": (*function).bar, "barrier": (*function).bar,
	"shfl": (*function).shfl, "vote": (*function).vote, "match": (*function).match, "redux": (*function).redux,
	"activemask": (*function).activemask, "elect": (*function).elect,
	"nanosleep": (*function).nanosleep, "griddepcontrol": (*function).gridDependency, "pmevent": (*function).event, "setmaxnreg": (*function).setMaxRegs,
}

func (f *function) bar() {
	// "bar" is "barrier.aligned".
	m := ir.Mods{Aligned: f.in.Op == "bar"}
	if f.mods.flag("warp") {
		if !f.mods.flag("sync") {
			f.fail(f.in.Pos, "%s is not known", clip(f.in.Opcode()))
		}
		a := f.args(1, 1)
		f.emit(&ir.Instr{Op: ir.WarpSync, Args: []ir.Operand{f.src(&a[0], ir.B32)}})
		return
	}
	f.mods.flag("cta")
	op, word := pick(&f.mods, map[string]string{"sync": "sync", "arrive": "arrive", "red": "red"})
	if f.mods.flag("aligned") {
		m.Aligned = true
	}
	switch op {
	case "sync":
		a := f.args(1, 2)
		f.barrier(m, ir.NoReg, a, nil)
	case "arrive":
		m.Bar = ir.BarArrive
		f.barrier(m, ir.NoReg, f.args(2, 2), nil)
	case "red":
		f.barRed(m)
	default:
		f.fail(f.in.Pos, "%s is not known%s", clip(f.in.Opcode()), word)
	}
}

// barrier emits a barrier: its number, the number of threads, if the program
// says one, and what is reduced.
func (f *function) barrier(m ir.Mods, dst ir.Reg, a []ptx.Operand, reduced *ptx.Operand) {
	in := &ir.Instr{Op: ir.Bar, Mods: m, Args: []ir.Operand{f.src(&a[0], ir.U32)}}
	if len(a) > 1 && a[1].Kind != ptx.Sink {
		in.Args = append(in.Args, f.src(&a[1], ir.U32))
	} else if reduced != nil {
		in.Args = append(in.Args, ir.Imm(0)) // the block's
	}
	if reduced != nil {
		in.Dst = []ir.Reg{dst}
		in.Args = append(in.Args, f.predicate(reduced))
	}
	f.emit(in)
}

func (f *function) barRed(m ir.Mods) {
	op, word := pick(&f.mods, map[string]ir.BarOp{"popc": ir.BarRedPopc, "and": ir.BarRedAnd, "or": ir.BarRedOr})
	t := f.typ()
	want := ir.Pred
	if op == ir.BarRedPopc {
		want = ir.U32
	}
	if f.err == nil && (word == "" || t != want) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	m.Bar = op
	a := f.args(3, 4)
	n := len(f.in.Args)
	if n < 3 || n > 4 {
		return
	}
	f.barrier(m, f.dst(&a[0], t), a[1:n-1], &a[n-1])
}

// members is the mask of the threads that take part: what the program says, or
// those that are there, for instructions from before there were masks.
func (f *function) members(sync bool, o *ptx.Operand) ir.Operand {
	if sync {
		return f.src(o, ir.B32)
	}
	mask := f.temp(ir.B32)
	f.emit(&ir.Instr{Op: ir.Activemask, Dst: []ir.Reg{mask}})
	return ir.R(mask)
}

func (f *function) shfl() {
	sync := f.mods.flag("sync")
	mode, word := pick(&f.mods, map[string]ir.ShflMode{"up": ir.ShflUp, "down": ir.ShflDown, "bfly": ir.ShflBfly, "idx": ir.ShflIdx})
	if word == "" {
		f.fail(f.in.Pos, "%s does not say from where", clip(f.in.Opcode()))
	}
	t := f.typeFor(ir.Shfl)
	n := 4
	if sync {
		n = 5
	}
	a := f.args(n, n)
	if f.err != nil {
		return
	}
	dst := f.pair(&a[0], t)
	if a[0].Kind != ptx.Pair {
		dst = dst[:1]
	}
	mask := f.members(sync, &a[n-1])
	f.emit(&ir.Instr{
		Op: ir.Shfl, Type: t, Mods: ir.Mods{Shfl: mode}, Dst: dst,
		Args: []ir.Operand{f.src(&a[1], t), f.src(&a[2], ir.B32), f.src(&a[3], ir.B32), mask},
	})
}

func (f *function) vote() {
	sync := f.mods.flag("sync")
	mode, word := pick(&f.mods, map[string]ir.VoteMode{"all": ir.VoteAll, "any": ir.VoteAny, "uni": ir.VoteUni, "ballot": ir.VoteBallot})
	t := f.typ()
	want := ir.Pred
	if mode == ir.VoteBallot {
		want = ir.B32
	}
	if f.err == nil && (word == "" || t != want) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	n := 2
	if sync {
		n = 3
	}
	a := f.args(n, n)
	mask := f.members(sync, &a[n-1])
	f.emit(&ir.Instr{Op: ir.Vote, Mods: ir.Mods{Vote: mode}, Dst: []ir.Reg{f.dst(&a[0], t)}, Args: []ir.Operand{f.predicate(&a[1]), mask}})
}

func (f *function) match() {
	all := f.mods.flag("all")
	if !f.mods.flag("sync") || all == f.mods.flag("any") {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	t := f.typeFor(ir.Match)
	a := f.args(3, 3)
	dst := f.pair(&a[0], ir.B32)
	if a[0].Kind != ptx.Pair {
		dst = dst[:1]
	}
	f.emit(&ir.Instr{Op: ir.Match, Type: t, Mods: ir.Mods{MatchAll: all}, Dst: dst, Args: []ir.Operand{f.src(&a[1], t), f.src(&a[2], ir.B32)}})
}

func (f *function) redux() {
	op, word := pick(&f.mods, atomOps)
	abs, nan := f.mods.flag("abs"), f.mods.flag("NaN")
	sync := f.mods.flag("sync")
	t := f.typeFor(ir.Redux)
	switch {
	case f.err != nil:
		return
	case word == "" || !sync || !reduxTakes(op, t) || (abs || nan) && t != ir.F32:
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(3, 3)
	value := f.src(&a[1], t)
	if abs {
		r := f.temp(ir.B32)
		f.op(ir.Abs, ir.F32, ir.Mods{}, r, value)
		value = ir.R(r)
	}
	f.op(ir.Redux, t, ir.Mods{Atom: op, NaN: nan}, f.dst(&a[0], t), value, f.src(&a[2], ir.B32))
}

func reduxTakes(op ir.AtomOp, t ir.Type) bool {
	switch op {
	case ir.AtomAdd:
		return t == ir.U32 || t == ir.S32
	case ir.AtomMin, ir.AtomMax:
		return t != ir.B32
	case ir.AtomAnd, ir.AtomOr, ir.AtomXor:
		return t == ir.B32
	}
	return false
}

func (f *function) activemask() {
	f.mods.flag("b32")
	a := f.args(1, 1)
	f.emit(&ir.Instr{Op: ir.Activemask, Dst: []ir.Reg{f.dst(&a[0], ir.B32)}})
}

func (f *function) elect() {
	if !f.mods.flag("sync") {
		f.fail(f.in.Pos, "%s lacks .sync", clip(f.in.Opcode()))
	}
	a := f.args(2, 2)
	f.emit(&ir.Instr{Op: ir.Elect, Dst: f.pair(&a[0], ir.B32), Args: []ir.Operand{f.src(&a[1], ir.B32)}})
}

func (f *function) nanosleep() {
	f.mods.flag("u32")
	a := f.args(1, 1)
	f.emit(&ir.Instr{Op: ir.Nanosleep, Args: []ir.Operand{f.src(&a[0], ir.U32)}})
}

// gridDependency waits for the grid before this one, or lets the next one begin.
// Here a grid begins when the one before has ended.
func (f *function) gridDependency() {
	f.args(0, 0)
	if f.mods.flag("wait") == f.mods.flag("launch_dependents") {
		f.fail(f.in.Pos, "%s is not known", clip(f.in.Opcode()))
	}
	f.emit(&ir.Instr{Op: ir.Fence, Mods: ir.Mods{Order: ir.AcqRel, Scope: ir.GPU}})
}

// event tells a profiler something.
func (f *function) event() {
	f.mods.flag("mask")
	f.args(1, 1)
}

// setMaxRegs tells the hardware how many registers the rest needs.
func (f *function) setMaxRegs() {
	inc, dec := f.mods.flag("inc"), f.mods.flag("dec")
	sync, aligned := f.mods.flag("sync"), f.mods.flag("aligned")
	f.mods.flag("u32")
	f.args(1, 1)
	if inc == dec || !sync || !aligned {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
}
