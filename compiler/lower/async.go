// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// cp lowers cp.async and what belongs to it.
func (f *function) cp() {
	f.mods.flag("async")
	switch {
	case f.mods.flag("commit_group"):
		f.args(0, 0)
		f.emit(&ir.Instr{Op: ir.CpAsyncCommit})
	case f.mods.flag("wait_all"):
		f.args(0, 0)
		f.emit(&ir.Instr{Op: ir.CpAsyncWait})
	case f.mods.flag("wait_group"):
		if a := f.args(1, 1); a[0].Kind != ptx.Num {
			f.failAt(&a[0], "a number is expected")
		}
		f.emit(&ir.Instr{Op: ir.CpAsyncWait})
	case f.mods.flag("mbarrier"):
		f.copyArrive()
	default:
		f.copyAsync()
	}
}

// copyArrive arrives at a barrier when the thread's copies are done, which they
// are. Without .noinc the arrival is added to those that are waited for first,
// so that nothing changes.
func (f *function) copyArrive() {
	f.mods.flag("arrive")
	noinc := f.mods.flag("noinc")
	space := f.space()
	f.mods.flag("b64")
	a := f.args(1, 1)
	at, offset, space := f.addr(&a[0], space)
	if noinc {
		f.emit(&ir.Instr{Op: ir.MbarArrive, Mods: ir.Mods{Space: space}, Dst: []ir.Reg{ir.NoReg}, Args: []ir.Operand{at}, Offset: offset})
		return
	}
	f.emit(&ir.Instr{Op: ir.Prefetch, Mods: ir.Mods{Space: space}, Args: []ir.Operand{at}, Offset: offset})
}

func (f *function) copyAsync() {
	ca, cg := f.mods.flag("ca"), f.mods.flag("cg")
	shared := f.mods.flag("shared") || f.mods.flag("shared::cta")
	global := f.mods.flag("global")
	policy := 0
	if f.hints() {
		policy = 1
	}
	if ca == cg || !shared || !global {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(3+policy, 4+policy)
	if f.err != nil {
		return
	}
	size := &a[2]
	if n := size.Num.Bits; size.Kind != ptx.Num || n != 16 && (cg || n != 4 && n != 8) {
		f.failAt(size, "%s can't copy that many bytes", clip(f.in.Opcode()))
		return
	}
	m := ir.Mods{Bytes: uint8(size.Num.Bits)}
	to, offset, _ := f.addr(&a[0], ir.Shared)
	if to.Kind == ir.VarOperand {
		to = f.moved(to, ir.U64)
	}
	from := f.wholeAddress(&a[1], ir.Global)
	bytes := ir.Imm(size.Num.Bits)
	if len(f.in.Args)-policy == 4 {
		bytes = f.copied(&a[3], size.Num.Bits)
	}
	f.emit(&ir.Instr{Op: ir.CpAsync, Mods: m, Args: []ir.Operand{to, from, bytes}, Offset: offset})
}

// copied is how many bytes are copied: what the program says, or none where its
// predicate holds.
func (f *function) copied(o *ptx.Operand, size uint64) ir.Operand {
	if o.Kind == ptx.Name {
		if sym := f.lookup(o.Name); sym != nil && sym.reg != nil && sym.reg.typ == ir.Pred {
			n := f.temp(ir.B32)
			f.op(ir.Selp, ir.B32, ir.Mods{}, n, ir.Imm(0), ir.Imm(size), f.predicate(o))
			return ir.R(n)
		}
	}
	return f.src(o, ir.U32)
}

// wholeAddress is an address with its offset added.
func (f *function) wholeAddress(o *ptx.Operand, space ir.Space) ir.Operand {
	at, offset, _ := f.addr(o, space)
	switch {
	case offset == 0 && at.Kind != ir.VarOperand:
		return at
	case at.Kind == ir.VarOperand:
		at.Imm += uint64(offset)
		return f.moved(at, ir.U64)
	}
	sum := f.temp(ir.B64)
	f.op(ir.Add, ir.S64, ir.Mods{}, sum, at, ir.Imm(uint64(offset)))
	return ir.R(sum)
}

// mbarrier lowers barriers in memory.
func (f *function) mbarrier() {
	m := f.ordering()
	m.Space = f.space()
	f.mods.flag("b64")
	switch {
	case f.mods.flag("init"):
		a := f.args(2, 2)
		f.mbar(ir.MbarInit, m, ir.NoReg, &a[0], f.src(&a[1], ir.U32))
	case f.mods.flag("inval"):
		a := f.args(1, 1)
		f.mbar(ir.MbarInval, m, ir.NoReg, &a[0])
	case f.mods.flag("arrive"):
		f.arrive(ir.MbarArrive, m)
	case f.mods.flag("arrive_drop"):
		f.arrive(ir.MbarArriveDrop, m)
	case f.mods.flag("expect_tx"):
		a := f.args(2, 2)
		f.mbar(ir.MbarExpect, m, ir.NoReg, &a[0], f.src(&a[1], ir.U32))
	case f.mods.flag("test_wait"):
		f.mbarWait(ir.MbarTest, m)
	case f.mods.flag("try_wait"):
		f.mbarWait(ir.MbarTry, m)
	case f.mods.flag("pending_count"):
		a := f.args(2, 2)
		f.emit(&ir.Instr{Op: ir.MbarPending, Dst: []ir.Reg{f.dst(&a[0], ir.U32)}, Args: []ir.Operand{f.src(&a[1], ir.B64)}})
	default:
		f.fail(f.in.Pos, "%s is not known", clip(f.in.Opcode()))
	}
}

// mbar emits an operation on the barrier at an address; without a register for
// its result, it has none.
func (f *function) mbar(op ir.Op, m ir.Mods, dst ir.Reg, at *ptx.Operand, args ...ir.Operand) {
	in := &ir.Instr{Op: op}
	var address ir.Operand
	address, in.Offset, m.Space = f.addr(at, m.Space)
	in.Mods, in.Args = m, append([]ir.Operand{address}, args...)
	switch op {
	case ir.MbarArrive, ir.MbarArriveDrop, ir.MbarTest, ir.MbarTry:
		in.Dst = []ir.Reg{dst}
	}
	f.emit(in)
}

func (f *function) arrive(op ir.Op, m ir.Mods) {
	expect := f.mods.flag("expect_tx")
	f.mods.flag("noComplete")
	list := f.in.Args
	// mbarrier.arrive.expect_tx [addr], n has no state.
	dst := ir.NoReg
	if len(list) > 0 && list[0].Kind != ptx.Address {
		dst = f.dst(&list[0], ir.B64)
		list = list[1:]
	}
	if len(list) == 0 || len(list) > 2 || expect && len(list) != 2 {
		f.fail(f.in.Pos, "%s has %d operands", clip(f.in.Opcode()), len(f.in.Args))
		return
	}
	switch {
	case expect:
		n := f.src(&list[1], ir.U32)
		f.mbar(ir.MbarExpect, m, ir.NoReg, &list[0], n)
		f.mbar(op, m, dst, &list[0])
	case len(list) == 2:
		f.mbar(op, m, dst, &list[0], f.src(&list[1], ir.U32))
	default:
		f.mbar(op, m, dst, &list[0])
	}
}

func (f *function) mbarWait(op ir.Op, m ir.Mods) {
	m.Parity = f.mods.flag("parity")
	most := 3
	if op == ir.MbarTry {
		most = 4 // and how long to wait
	}
	a := f.args(3, most)
	state := ir.B64
	if m.Parity {
		state = ir.U32
	}
	if len(f.in.Args) == 4 {
		f.src(&a[3], ir.U32)
	}
	f.mbar(op, m, f.dst(&a[0], ir.Pred), &a[1], f.src(&a[2], state))
}
