// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// code is a function made ready to run: its blocks one behind the other in the
// order of order, registers with their places, operands with their values.
type code struct {
	fn    *ir.Func
	insts []inst
	// slots is the number of places for registers, preds of those for predicates;
	// slot is each register's among its kind. B128 has two.
	slots, preds int
	slot         []int32
	// offsets of its variables in its part of local memory, of frameBytes.
	offsets    map[*ir.Var]int64
	frameBytes uint64
	begin      map[*ir.Block]int32 // where blocks begin among insts
}

// A step does an instruction for the threads of mask, of which there is one.
type step func(w *warp, f *frame, mask uint32)

// inst is an instruction made ready to run. control is nil for those that act in
// each thread alone.
type inst struct {
	in       *ir.Instr
	guard    int32 // the place of a predicate, or -1
	guardNot bool
	run      step
	control  control
	args     []operand
	to       []int32   // where targets begin
	points   [2]int    // pause points of the edges to the targets, or of the instruction
	members  operand   // of a warp's operation: the mask
	pred     predicate // of bar.red: what is reduced, to result
	result   target
	callee   *code
}

// decode makes a function ready, and those that it calls.
func (g *grid) decode(fn *ir.Func) (*code, error) {
	if c := g.codes[fn]; c != nil {
		return c, nil
	}
	c := &code{fn: fn, slot: make([]int32, len(fn.Regs))}
	g.codes[fn] = c
	c.place()
	if len(fn.Blocks) == 0 {
		return nil, fmt.Errorf("interp: function %s has no body", fn.Name)
	}
	blocks := order(fn.Blocks[0])
	c.begin = map[*ir.Block]int32{}
	n := int32(0)
	for _, b := range blocks {
		c.begin[b] = n
		n += int32(len(b.Instrs))
	}
	c.insts = make([]inst, 0, n)
	for _, b := range blocks {
		for _, in := range b.Instrs {
			i := inst{in: in, guard: -1}
			if in.Guard != ir.NoReg {
				i.guard, i.guardNot = c.slot[in.Guard], in.GuardNot
			}
			for _, t := range in.Targets {
				i.to = append(i.to, c.begin[t])
			}
			for n, t := range in.Targets {
				if p := g.edges[[2]*ir.Block{b, t}]; p != 0 && n < 2 {
					i.points[n] = p
				}
			}
			if err := g.build(c, &i); err != nil {
				return nil, fmt.Errorf("interp: %s: line %d: %s: %w", fn.Name, in.Pos.Line, in.Op, err)
			}
			c.insts = append(c.insts, i)
		}
	}
	return c, nil
}

// place gives registers and variables their places.
func (c *code) place() {
	for r, info := range c.fn.Regs {
		if info.Type == ir.Pred {
			c.slot[r] = int32(c.preds)
			c.preds++
			continue
		}
		c.slot[r] = int32(c.slots)
		c.slots++
		if info.Type == ir.B128 {
			c.slots++
		}
	}
	locals := c.fn.LocalLayout()
	c.offsets = locals.Offsets
	end := locals.Size
	add := func(v *ir.Var) {
		end = ir.AlignUp(end, max(v.Align, 1))
		c.offsets[v] = end
		end += v.Size
	}
	for _, v := range c.fn.Vars {
		if v.Space == ir.Param {
			add(v)
		}
	}
	if !c.fn.Kernel {
		for _, p := range c.fn.Params {
			add(&p.Var)
		}
		for _, p := range c.fn.Results {
			add(&p.Var)
		}
	}
	c.frameBytes = uint64(ir.AlignUp(end, 16))
}

// An operand is where an argument's values are.
type operand struct {
	slot    int32 // of a register; otherwise -1
	values  *lanes
	special func(w *warp, f *frame) *lanes
}

// get returns the values, one for each thread. They must not be changed.
func (o *operand) get(w *warp, f *frame) *lanes {
	if o.slot >= 0 {
		return &f.regs[o.slot]
	}
	if o.values != nil {
		return o.values
	}
	return o.special(w, f)
}

func same(x uint64) operand {
	v := &lanes{}
	for l := range v {
		v[l] = x
	}
	return operand{slot: -1, values: v}
}

var none = same(0)

// operand makes an argument ready that is no predicate.
func (g *grid) operand(c *code, a ir.Operand) (operand, error) {
	switch a.Kind {
	case ir.RegOperand:
		if int(a.Reg) >= len(c.slot) || a.Reg < 0 || c.fn.Regs[a.Reg].Type == ir.Pred {
			return none, fmt.Errorf("a predicate, or no register, is no operand of this")
		}
		return operand{slot: c.slot[a.Reg]}, nil
	case ir.ImmOperand:
		return same(a.Imm), nil
	case ir.VarOperand:
		return g.address(c, a.Var, a.Imm)
	case ir.FuncOperand:
		return same(g.Module.FuncIndex(a.Func)), nil
	}
	return g.sreg(a.Sreg)
}

// address is that of a variable plus an addend, in the variable's space.
func (g *grid) address(c *code, v *ir.Var, addend uint64) (operand, error) {
	switch v.Space {
	case ir.Global, ir.Const:
		at, ok := g.Vars[v]
		if !ok {
			return none, fmt.Errorf("variable %s has no address", v.Name)
		}
		return same(at + addend), nil
	case ir.Shared:
		off, ok := g.shared.Offsets[v]
		if !ok {
			return none, fmt.Errorf("shared variable %s is not the kernel's", v.Name)
		}
		return same(uint64(off) + addend), nil
	case ir.Param:
		for _, p := range g.Kernel.Params {
			if &p.Var == v {
				return same(uint64(p.Offset) + addend), nil
			}
		}
		addend += frameParams
	}
	off, ok := c.offsets[v]
	if !ok {
		return none, fmt.Errorf("variable %s is not the function's", v.Name)
	}
	addend += uint64(off)
	scratch := &lanes{}
	return operand{slot: -1, special: func(_ *warp, f *frame) *lanes {
		for l := range scratch {
			scratch[l] = f.base[l] + addend
		}
		return scratch
	}}, nil
}

// A predicate is an operand that is one.
type predicate struct {
	slot  int32 // or -1
	flip  uint32
	value uint32 // if slot is -1
}

func (p predicate) get(f *frame) uint32 {
	if p.slot >= 0 {
		return f.preds[p.slot] ^ p.flip
	}
	return p.value ^ p.flip
}

func (c *code) predicate(a ir.Operand) (predicate, error) {
	p := predicate{slot: -1}
	if a.Not {
		p.flip = ^uint32(0)
	}
	switch {
	case a.Kind == ir.ImmOperand && a.Imm&1 != 0:
		p.value = ^uint32(0)
	case a.Kind == ir.ImmOperand:
	case a.Kind == ir.RegOperand && int(a.Reg) < len(c.slot) && a.Reg >= 0 && c.fn.Regs[a.Reg].Type == ir.Pred:
		p.slot = c.slot[a.Reg]
	default:
		return p, fmt.Errorf("an operand must be a predicate")
	}
	return p, nil
}

// A target is a register that is written, or none.
type target struct {
	slot   int32 // -1: none
	pred   bool
	size   int  // bytes of the register
	extend uint // 64 less the bits of a signed value that is smaller than its register; otherwise 0
	mask   uint64
}

func (c *code) target(in *ir.Instr, n int, t ir.Type) target {
	if n >= len(in.Dst) || in.Dst[n] == ir.NoReg {
		return target{slot: -1}
	}
	r := in.Dst[n]
	rt := c.fn.Regs[r].Type
	d := target{slot: c.slot[r], pred: rt == ir.Pred, size: rt.Size(), mask: ones(rt)}
	if t.Signed() && t.Size() < rt.Size() {
		d.extend = uint(64 - 8*t.Size())
	}
	return d
}

// set writes the results of the threads of mask.
func (d *target) set(f *frame, v *lanes, mask uint32) {
	switch {
	case d.slot < 0:
	case d.pred:
		panic("BUG: a number for a predicate")
	default:
		r := &f.regs[d.slot]
		for l := range r {
			if mask>>l&1 != 0 {
				r[l] = d.fit(v[l])
			}
		}
	}
}

// fit extends a value to its register.
func (d *target) fit(x uint64) uint64 {
	return uint64(int64(x<<d.extend)>>d.extend) & d.mask
}

// setPred writes predicates.
func (d *target) setPred(f *frame, v, mask uint32) {
	if d.slot < 0 {
		return
	}
	if d.pred {
		f.preds[d.slot] = f.preds[d.slot]&^mask | v&mask
	}
}
