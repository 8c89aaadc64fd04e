// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var errType = errors.New("not of this type, or not with these modifiers")

// builders make the operations ready that are no scalars.
var builders map[ir.Op]func(*builder) error

func init() { // it refers to itself through calls
	builders = map[ir.Op]func(*builder) error{
		ir.NoOp: (*builder).nothing, ir.Prefetch: (*builder).nothing, ir.Nanosleep: (*builder).sleep, ir.Fence: (*builder).nothing,
		ir.CpAsyncCommit: (*builder).nothing, ir.CpAsyncWait: (*builder).nothing, ir.Free: (*builder).free,
		ir.Poll: (*builder).poll, ir.Gather: (*builder).nothing,
		ir.Pack: (*builder).pack, ir.Unpack: (*builder).unpack,
		ir.Setp: (*builder).setp, ir.Set: (*builder).set, ir.Selp: (*builder).selp, ir.Testp: (*builder).testp,
		ir.Ld: (*builder).load, ir.St: (*builder).store, ir.Cvta: (*builder).cvta, ir.CvtaTo: (*builder).cvta,
		ir.Isspacep: (*builder).isspacep, ir.Atom: (*builder).atom, ir.Red: (*builder).atom,
		ir.Alloca: (*builder).alloca, ir.StackSave: (*builder).stackSave, ir.StackRestore: (*builder).stackRestore,
		ir.CpAsync: (*builder).cpAsync, ir.MbarInit: (*builder).mbarInit, ir.MbarInval: (*builder).mbarInit,
		ir.MbarArrive: (*builder).mbarArrive, ir.MbarArriveDrop: (*builder).mbarArrive, ir.MbarExpect: (*builder).mbarExpect,
		ir.MbarTest: (*builder).mbarTest, ir.MbarTry: (*builder).mbarTest, ir.MbarPending: (*builder).mbarPending,
		ir.Bar: (*builder).bar, ir.WarpSync: (*builder).warpSync, ir.Shfl: (*builder).shfl, ir.Vote: (*builder).vote,
		ir.Match: (*builder).match, ir.Redux: (*builder).redux, ir.Activemask: (*builder).activemask, ir.Elect: (*builder).elect,
		ir.Mma: (*builder).mma, ir.WmmaMma: (*builder).mma, ir.WmmaLoad: (*builder).wmmaLoad, ir.WmmaStore: (*builder).wmmaStore,
		ir.Ldmatrix: (*builder).ldmatrix, ir.Stmatrix: (*builder).stmatrix, ir.Movmatrix: (*builder).movmatrix,
		ir.Printf: (*builder).printf, ir.Assertfail: (*builder).assertfail, ir.Malloc: (*builder).malloc,
		ir.Call: (*builder).call, ir.Br: (*builder).branches, ir.Brx: (*builder).branches,
		ir.Ret: (*builder).branches, ir.Exit: (*builder).branches, ir.Trap: (*builder).branches,
	}
}

// builder makes one instruction ready.
type builder struct {
	*grid
	c *code
	i *inst
	*ir.Instr
	err error // of the first operand that is not what it must be
}

func (g *grid) build(c *code, i *inst) error {
	b := &builder{grid: g, c: c, i: i, Instr: i.in}
	switch f := builders[b.Op]; {
	case f != nil:
		if err := f(b); err != nil {
			return err
		}
	case b.Type == ir.Pred:
		if err := b.logic(); err != nil {
			return err
		}
	case b.Op == ir.Mov && b.Type == ir.B128:
		b.move128()
	default:
		f := scalarOf(b.Instr)
		if f == nil {
			return errType
		}
		b.lift(f)
	}
	return b.err
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// arg makes argument n ready; one that isn't there is 0.
func (b *builder) arg(n int) operand {
	if n >= len(b.Args) {
		return none
	}
	o, err := b.operand(b.c, b.Args[n])
	if err != nil {
		b.fail(err)
	}
	return o
}

// pred makes argument n ready, which must be a predicate; one that isn't there is
// false.
func (b *builder) pred(n int) predicate {
	if n >= len(b.Args) {
		return predicate{slot: -1}
	}
	p, err := b.c.predicate(b.Args[n])
	if err != nil {
		b.fail(err)
	}
	return p
}

// to is result n, of type t.
func (b *builder) to(n int, t ir.Type) target {
	d := b.c.target(b.Instr, n, t)
	if d.slot >= 0 && d.pred != (t == ir.Pred) {
		b.fail(fmt.Errorf("result %d must be of type %s", n, t))
		d.slot = -1
	}
	return d
}

func (b *builder) nothing() error {
	b.i.run = func(*warp, *frame, uint32) {}
	return nil
}

// sleep tells that the block waits for something.
func (b *builder) sleep() error {
	b.i.run = func(w *warp, _ *frame, _ uint32) { w.polls += often; w.looks += often }
	return nil
}

// resultType of a scalar operation.
func resultType(in *ir.Instr) ir.Type {
	switch in.Op {
	case ir.Popc, ir.Clz, ir.Bfind, ir.Fns, ir.CvtPack, ir.Dp4a, ir.Dp2a, ir.Prmt:
		return ir.B32
	}
	if in.Mods.Half == ir.Wide {
		switch in.Type {
		case ir.U16, ir.S16:
			return ir.B32
		case ir.U32, ir.S32:
			return ir.B64
		}
	}
	return in.Type
}

// lift makes of a scalar's meaning that for a warp.
func (b *builder) lift(fn scalar) {
	carry, flag := b.carry()
	a0, a1, a2, a3 := b.arg(0), b.arg(1), none, none
	if carry < 0 || carry > 2 {
		a2 = b.arg(2)
	}
	if (carry < 0 || carry > 3) && b.Op != ir.Lop3 {
		a3 = b.arg(3)
	}
	d := b.to(0, resultType(b.Instr))
	if carry >= 0 || len(b.Dst) > 1 {
		b.liftCarry(fn, d, [4]operand{a0, a1, a2, a3}, carry, flag)
		return
	}
	if d.slot < 0 {
		_ = b.nothing()
		return
	}
	if d.extend != 0 || d.size < resultType(b.Instr).Size() {
		narrow := fn
		fn = func(x, y, z, v uint64) uint64 { return d.fit(narrow(x, y, z, v)) }
	}
	to := d.slot
	switch len(b.Args) {
	case 1:
		b.i.run = func(w *warp, f *frame, mask uint32) {
			x, r := a0.get(w, f), &f.regs[to]
			if mask == ^uint32(0) {
				for l := range r {
					r[l] = fn(x[l], 0, 0, 0)
				}
				return
			}
			for ; mask != 0; mask &= mask - 1 {
				l := bits.TrailingZeros32(mask)
				r[l] = fn(x[l], 0, 0, 0)
			}
		}
	case 2:
		b.i.run = func(w *warp, f *frame, mask uint32) {
			x, y, r := a0.get(w, f), a1.get(w, f), &f.regs[to]
			if mask == ^uint32(0) {
				for l := range r {
					r[l] = fn(x[l], y[l], 0, 0)
				}
				return
			}
			for ; mask != 0; mask &= mask - 1 {
				l := bits.TrailingZeros32(mask)
				r[l] = fn(x[l], y[l], 0, 0)
			}
		}
	default:
		b.i.run = func(w *warp, f *frame, mask uint32) {
			x, y, z, v, r := a0.get(w, f), a1.get(w, f), a2.get(w, f), a3.get(w, f), &f.regs[to]
			for ; mask != 0; mask &= mask - 1 {
				l := bits.TrailingZeros32(mask)
				r[l] = fn(x[l], y[l], z[l], v[l])
			}
		}
	}
}

// carry is which argument is the carry that comes in, or -1.
func (b *builder) carry() (int, predicate) {
	if !b.Mods.CarryIn {
		return -1, predicate{slot: -1}
	}
	n := len(b.Args) - 1
	return n, b.pred(n)
}

// liftCarry is for instructions with a carry, in or out, and for Lop3 with a
// predicate as its second result.
func (b *builder) liftCarry(fn scalar, d target, args [4]operand, carry int, flag predicate) {
	out := b.to(1, ir.Pred)
	over := carryOut(b.Instr)
	var third predicate
	if b.Op == ir.Lop3 {
		third = b.pred(3)
	} else if over == nil {
		b.fail(errType)
		return
	}
	op, is := b.Mods.Bool, b.Op == ir.Lop3
	b.i.run = func(w *warp, f *frame, mask uint32) {
		var v [4]*lanes
		for n := range v {
			v[n] = args[n].get(w, f)
		}
		in := flag.get(f)
		var result lanes
		var carries uint32
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			x := [4]uint64{v[0][l], v[1][l], v[2][l], v[3][l]}
			if carry >= 0 {
				x[carry] = uint64(in >> l & 1)
			}
			result[l] = fn(x[0], x[1], x[2], x[3])
			c := result[l]
			if !is {
				c = over(x[0], x[1], x[2], x[3])
			}
			if c != 0 {
				carries |= 1 << l
			}
		}
		if is {
			carries = combine(op, carries, third.get(f))
		}
		d.set(f, &result, mask)
		out.setPred(f, carries, mask)
	}
}

// move128 copies both halves.
func (b *builder) move128() {
	a, d := b.arg(0), b.to(0, ir.B128)
	if a.slot < 0 || d.slot < 0 {
		b.fail(errType)
		return
	}
	b.i.run = func(_ *warp, f *frame, mask uint32) {
		for ; mask != 0; mask &= mask - 1 {
			l := bits.TrailingZeros32(mask)
			f.regs[d.slot][l], f.regs[d.slot+1][l] = f.regs[a.slot][l], f.regs[a.slot+1][l]
		}
	}
}

// logic is for operations on predicates: those of all threads at once.
func (b *builder) logic() error {
	x, y, d := b.pred(0), b.pred(1), b.to(0, ir.Pred)
	var op func(x, y uint32) uint32
	switch b.Op {
	case ir.Mov:
		op = func(x, _ uint32) uint32 { return x }
	case ir.Not, ir.Cnot:
		op = func(x, _ uint32) uint32 { return ^x }
	case ir.And:
		op = func(x, y uint32) uint32 { return x & y }
	case ir.Or:
		op = func(x, y uint32) uint32 { return x | y }
	case ir.Xor:
		op = func(x, y uint32) uint32 { return x ^ y }
	default:
		return errType
	}
	b.i.run = func(_ *warp, f *frame, mask uint32) { d.setPred(f, op(x.get(f), y.get(f)), mask) }
	return nil
}

// branches is for the ends of blocks.
func (b *builder) branches() error {
	switch b.Op {
	case ir.Br:
		b.i.control = branch
		if b.Guard == ir.NoReg && len(b.i.to) != 1 || b.Guard != ir.NoReg && len(b.i.to) != 2 {
			return fmt.Errorf("%d targets", len(b.i.to))
		}
	case ir.Brx:
		b.i.control = branchIndexed
		b.i.args = []operand{b.arg(0)}
	case ir.Ret:
		b.i.control = returning
	case ir.Exit:
		b.i.control = exit
	case ir.Trap:
		b.i.control = trap
	}
	return nil
}

func (b *builder) call() error {
	b.i.control = calling
	if b.Callee == nil {
		b.i.args = []operand{b.arg(0)}
		return nil
	}
	var err error
	b.i.callee, err = b.decode(b.Callee)
	return err
}

// meets makes an operation one of the members of a mask, argument n; n below 0:
// of the whole warp.
func (b *builder) meets(n int, run step) {
	b.i.control, b.i.run = meet, run
	b.i.members = same(0xffffffff)
	if n >= 0 {
		b.i.members = b.arg(n)
	}
}

func (b *builder) warpSync() error {
	b.meets(0, func(*warp, *frame, uint32) {})
	return nil
}
