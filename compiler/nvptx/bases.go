// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// base is where the memory begins that a value points into, if it is an address:
// the value is that place plus something that is the same on every device.
type base uint8

// The bases. A device has shared and local memory at other numbers than the
// state has, and generic addresses of them at others again.
const (
	noBase        base = iota // a number like any other, or an address in global memory
	sharedBase                // of the block's shared memory, as an address in it
	localBase                 // of the thread's local memory, as an address in it
	genericShared             // the same, as generic addresses
	genericLocal
	otherBase // anything that can't be told: two bases, half of one, another variable's
)

// bases finds the base of each register. A register that has two at two times
// has otherBase.
type bases struct {
	f    *ir.Func
	regs []base
	set  []bool // what is known: nothing is written yet where it isn't
	// fragments are the registers with parts of wmma fragments.
	fragments map[ir.Reg]bool
	// stored tells that a value with a base is put into memory.
	stored bool
}

func findBases(f *ir.Func) *bases {
	b := &bases{f: f, regs: make([]base, len(f.Regs)), set: make([]bool, len(f.Regs)), fragments: fragments(f)}
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
					joined = otherBase
				}
				if !b.set[r] || joined != b.regs[r] {
					b.set[r], b.regs[r], changed = true, joined, true
				}
			}
		})
	}
	b.each(func(in *ir.Instr) { b.stored = b.stored || b.stores(in) })
	return b
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
			return sharedBase, true
		case ir.Local:
			return localBase, true
		}
		return otherBase, true
	case ir.FuncOperand:
		return otherBase, true
	}
	return noBase, true
}

// result returns the base of what an instruction writes.
func (b *bases) result(in *ir.Instr) (base, bool) {
	of := make([]base, len(in.Args))
	known := true
	for i := range in.Args {
		k := false
		of[i], k = b.operand(&in.Args[i])
		known = known && k
	}
	switch in.Op {
	case ir.Ld, ir.Atom, ir.Ldmatrix, ir.WmmaLoad, ir.Setp, ir.Isspacep, ir.Bar, ir.Vote, ir.Match:
		return noBase, true
	case ir.Mov, ir.Shfl:
		return of[0], known
	case ir.Cvt: // of an address that is small enough
		if in.Type.Size() >= 4 && in.Type2.Size() >= 4 && !in.Type.Float() && !in.Type2.Float() {
			return of[0], known
		}
	case ir.Add:
		return plus(of[0], of[1]), known
	case ir.Sub:
		if of[0] == of[1] && of[0] != otherBase {
			return noBase, known
		}
		if of[1] == noBase {
			return of[0], known
		}
	case ir.Mad:
		if of[0] == noBase && of[1] == noBase {
			return of[2], known
		}
	case ir.Selp:
		if of[0] == of[1] {
			return of[0], known
		}
	case ir.Cvta:
		return generic(of[0], in.Mods.Space), known
	case ir.CvtaTo:
		switch of[0] {
		case genericShared:
			return sharedBase, known
		case genericLocal:
			return localBase, known
		case noBase:
			if in.Mods.Space == ir.Global || in.Mods.Space == ir.Const {
				return noBase, known
			}
		}
	}
	for _, o := range of {
		if o != noBase {
			return otherBase, known
		}
	}
	return noBase, known
}

func plus(a, b base) base {
	switch {
	case a == noBase:
		return b
	case b == noBase:
		return a
	}
	return otherBase
}

func generic(of base, space ir.Space) base {
	switch {
	case of == sharedBase && space == ir.Shared:
		return genericShared
	case of == localBase && space == ir.Local:
		return genericLocal
	case of == noBase && space == ir.Global:
		return noBase
	}
	return otherBase
}

// stores tells of instructions that put a value with a base where nobody knows of
// it any more.
func (b *bases) stores(in *ir.Instr) bool {
	switch in.Op {
	case ir.St, ir.Atom, ir.Red, ir.Stmatrix, ir.WmmaStore:
		// Args[0] is where it goes.
		return slices.ContainsFunc(in.Args[1:], func(o ir.Operand) bool {
			of, _ := b.operand(&o)
			return of != noBase
		})
	}
	return false
}

// unsaved tells of what is in a register at a point and can't be in a state.
func (b *bases) unsaved(r ir.Reg) string {
	switch {
	case b.regs[r] == otherBase:
		return "an address whose base can't be told"
	case b.fragments[r]:
		return "a part of a wmma fragment"
	case b.f.Regs[r].Type != ir.B64 && b.f.Regs[r].Type != ir.B32 && b.regs[r] != noBase:
		return "a part of an address"
	}
	found := ""
	b.each(func(in *ir.Instr) {
		for i, d := range in.Dst {
			if d == r && i == 1 && in.Mods.CarryOut {
				found = "a carry"
			}
			if d == r && strings.HasPrefix(in.Text, "createpolicy.") {
				found = "a cache policy"
			}
		}
	})
	return found
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
