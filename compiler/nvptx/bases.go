// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// base is where the memory begins that a value points into, if it is an address:
// the value is that place plus something that is the same on every device.
type base struct {
	kind baseKind
	of   *ir.Var // of variableBase and genericVariable
}

type baseKind uint8

// The bases. A device has shared and local memory, and the module's variables, at
// other numbers than the state has.
const (
	noBase        baseKind = iota // a number like any other, or an address that is the same everywhere
	sharedBase                    // of the block's shared memory, as an address in it
	localBase                     // of the thread's local memory, as an address in it
	variableBase                  // of a global or const variable, as an address in its space
	genericShared                 // the same, as generic addresses
	genericLocal
	genericVariable // of a const variable: those of global ones are the same in their space
	otherBase       // anything that can't be told: two bases, half of one, a function's address
)

// bases finds the base of each register. A register that has two at two times
// has otherBase.
type bases struct {
	plan *pause.Plan
	f    *ir.Func
	regs []base
	set  []bool // what is known: nothing is written yet where it isn't
	// fragments are the registers with parts of wmma fragments, functions those
	// with addresses of functions that came from memory.
	fragments, functions map[ir.Reg]bool
	// unsavable are registers with what else no state can have, and what that is.
	unsavable map[ir.Reg]string
	// pointers tells that the kernel uses variables that begin with addresses of
	// others, so that it may load these.
	pointers bool
	// stored puts a value with a base into memory; nil: nothing does.
	stored *ir.Instr
}

func findBases(plan *pause.Plan) *bases {
	f := plan.Func
	b := &bases{
		plan: plan, f: f, regs: make([]base, len(f.Regs)), set: make([]bool, len(f.Regs)),
		fragments: fragments(f), functions: functions(f), unsavable: map[ir.Reg]string{},
	}
	b.each(func(in *ir.Instr) {
		b.pointers = b.pointers || usesPointers(in)
		switch {
		case in.Mods.CarryOut && len(in.Dst) > 1:
			b.unsavable[in.Dst[1]] = "a carry"
		case strings.HasPrefix(in.Text, "createpolicy."):
			b.unsavable[in.Dst[0]] = "a cache policy"
		}
	})
	for changed := true; changed; {
		changed = false
		b.each(func(in *ir.Instr) {
			of, known := b.result(in)
			if !known {
				return
			}
			for _, r := range in.Dst {
				if r == ir.NoReg {
					continue
				}
				joined := of
				if b.set[r] && b.regs[r] != of {
					joined = base{kind: otherBase}
				}
				if !b.set[r] || joined != b.regs[r] {
					b.set[r], b.regs[r], changed = true, joined, true
				}
			}
		})
	}
	b.each(func(in *ir.Instr) {
		if b.stored == nil && b.stores(in) {
			b.stored = in
		}
	})
	return b
}

func usesPointers(in *ir.Instr) bool {
	return slices.ContainsFunc(in.Args, func(o ir.Operand) bool {
		return o.Kind == ir.VarOperand && slices.ContainsFunc(o.Var.Addresses, func(a ir.Address) bool { return a.Var != nil })
	})
}

func (b *bases) each(do func(*ir.Instr)) {
	for _, block := range b.f.Blocks {
		for _, in := range block.Instrs {
			do(in)
		}
	}
}

// operand returns an operand's base, and whether it is known already.
func (b *bases) operand(o *ir.Operand) (base, bool) {
	switch o.Kind {
	case ir.RegOperand:
		return b.regs[o.Reg], b.set[o.Reg]
	case ir.VarOperand:
		switch o.Var.Space {
		case ir.Shared:
			return base{kind: sharedBase}, true
		case ir.Local:
			return base{kind: localBase}, true
		case ir.Global, ir.Const:
			return base{variableBase, o.Var}, true
		}
		return base{kind: otherBase}, true
	case ir.FuncOperand:
		return base{kind: otherBase}, true
	}
	return base{}, true
}

// result returns the base of what an instruction writes.
func (b *bases) result(in *ir.Instr) (base, bool) {
	none, other := base{}, base{kind: otherBase}
	of := make([]base, len(in.Args))
	known := true
	for i := range in.Args {
		k := false
		of[i], k = b.operand(&in.Args[i])
		known = known && k
	}
	switch in.Op {
	case ir.Ld:
		if b.pointers && in.Type.Size() == 8 && in.Mods.Space != ir.Param {
			return other, true
		}
		return none, true
	case ir.Atom, ir.Ldmatrix, ir.WmmaLoad, ir.Setp, ir.Isspacep, ir.Bar, ir.Vote, ir.Match:
		return none, true
	case ir.Mov, ir.Shfl:
		return of[0], known
	case ir.Cvt: // of an address that is small enough
		if in.Type.Size() >= 4 && in.Type2.Size() >= 4 && !in.Type.Float() && !in.Type2.Float() && of[0].of == nil {
			return of[0], known
		}
	case ir.Add:
		return plus(of[0], of[1]), known
	case ir.Sub:
		if of[0] == of[1] && of[0] != other {
			return none, known
		}
		if of[1] == none {
			return of[0], known
		}
	case ir.Mad:
		if of[0] == none && of[1] == none {
			return of[2], known
		}
	case ir.Selp:
		if of[0] == of[1] {
			return of[0], known
		}
	case ir.And, ir.Or, ir.Xor:
		if in.Args[1].Kind == ir.ImmOperand && b.lowBits(in, of[0]) {
			return of[0], known
		}
	case ir.Cvta:
		return generic(of[0], in.Mods.Space), known
	case ir.CvtaTo:
		return inSpace(of[0], in.Mods.Space), known
	}
	for _, o := range of {
		if o != none {
			return other, known
		}
	}
	return none, known
}

// lowBits tells whether an operation with a constant changes only bits of an
// address that are zero where its base begins, on each device.
func (b *bases) lowBits(in *ir.Instr, of base) bool {
	below := uint64(16)
	switch of.kind {
	case noBase, otherBase:
		return false
	case variableBase, genericVariable:
		below = uint64(max(of.of.Align, 1))
	case sharedBase, genericShared:
		below = uint64(arrayAlign(b.plan.Shared))
	case localBase, genericLocal:
		below = uint64(arrayAlign(b.plan.Local))
	}
	kept := in.Args[1].Imm &^ (below - 1)
	if in.Op == ir.And {
		return kept == (1<<(8*in.Type.Size()-1)<<1-1)&^(below-1)
	}
	return kept == 0
}

func plus(a, b base) base {
	switch none := (base{}); none {
	case a:
		return b
	case b:
		return a
	}
	return base{kind: otherBase}
}

// generic is what cvta makes of an address in a space.
func generic(of base, space ir.Space) base {
	switch {
	case of.kind == sharedBase && space == ir.Shared:
		return base{kind: genericShared}
	case of.kind == localBase && space == ir.Local:
		return base{kind: genericLocal}
	case of.kind == variableBase && of.of.Space == space && space == ir.Const:
		return base{genericVariable, of.of}
	case of.kind == variableBase && of.of.Space == space, of.kind == noBase && space == ir.Global:
		return of
	}
	return base{kind: otherBase}
}

// inSpace is what cvta.to makes of a generic address.
func inSpace(of base, space ir.Space) base {
	switch {
	case of.kind == genericShared && space == ir.Shared:
		return base{kind: sharedBase}
	case of.kind == genericLocal && space == ir.Local:
		return base{kind: localBase}
	case of.kind == genericVariable && space == ir.Const:
		return base{variableBase, of.of}
	case space == ir.Global && (of.kind == noBase || of.kind == variableBase && of.of.Space == ir.Global):
		return of
	}
	return base{kind: otherBase}
}

// stores tells of instructions that put a value with a base where nobody knows of
// it any more.
func (b *bases) stores(in *ir.Instr) bool {
	switch in.Op {
	case ir.St, ir.Atom, ir.Red, ir.Stmatrix, ir.WmmaStore:
		// Args[0] is where it goes.
		return slices.ContainsFunc(in.Args[1:], func(o ir.Operand) bool {
			of, _ := b.operand(&o)
			return of != base{}
		})
	}
	return false
}

// unsaved tells of what is in a register at a point and can't be in a state.
func (b *bases) unsaved(r ir.Reg) string {
	of, size := b.regs[r], b.f.Regs[r].Type
	switch {
	case b.functions[r]:
		return "the address of a function"
	case of.kind == otherBase:
		return "an address whose base can't be told"
	case b.fragments[r]:
		return "a part of a wmma fragment"
	case of.kind != noBase && size != ir.B64 && (size != ir.B32 || of.of != nil):
		return "a part of an address"
	}
	return b.unsavable[r]
}

// fragments are the registers that can hold elements of wmma fragments, or what
// was computed of them one by one.
func fragments(f *ir.Func) map[ir.Reg]bool {
	found := map[ir.Reg]bool{}
	for changed := true; changed; {
		changed = false
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				from := in.Op == ir.WmmaLoad || in.Op == ir.WmmaMma
				if in.Op != ir.Ld && in.Op != ir.Atom {
					passes.EachUse(in, func(r ir.Reg) { from = from || found[r] })
				}
				for _, r := range in.Dst {
					if from && r != ir.NoReg && !found[r] {
						found[r], changed = true, true
					}
				}
			}
		}
	}
	return found
}

// functions are the registers with what is compared with the address of a
// function, and where that comes from: what a call goes to. A predicate that chooses
// between two addresses is none.
func functions(f *ir.Func) map[ir.Reg]bool {
	candidates, found := map[ir.Reg]bool{}, map[ir.Reg]bool{}
	for changed := true; changed; {
		changed = false
		mark := func(of map[ir.Reg]bool, r ir.Reg) {
			if !of[r] && f.Regs[r].Type != ir.Pred {
				of[r], changed = true, true
			}
		}
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				switch {
				case in.Op == ir.Mov && in.Args[0].Kind == ir.FuncOperand:
					mark(candidates, in.Dst[0])
				case in.Op == ir.Setp:
					if usesAny(in, candidates) {
						passes.EachUse(in, func(r ir.Reg) { mark(found, r) })
					}
				case in.Op != ir.Ld && writesAny(in, found):
					passes.EachUse(in, func(r ir.Reg) { mark(found, r) })
				}
			}
		}
	}
	return found
}

func writesAny(in *ir.Instr, of map[ir.Reg]bool) bool {
	return slices.ContainsFunc(in.Dst, func(r ir.Reg) bool { return of[r] })
}

func usesAny(in *ir.Instr, of map[ir.Reg]bool) bool {
	found := false
	passes.EachUse(in, func(r ir.Reg) { found = found || of[r] })
	return found
}
