// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// SpaceSet is a set of state spaces.
type SpaceSet uint8

// AnySpace has all that a generic address can point to.
const AnySpace = SpaceSet(1<<ir.Global | 1<<ir.Const | 1<<ir.Shared | 1<<ir.Local | 1<<ir.Param)

// Spaces makes a set.
func Spaces(spaces ...ir.Space) SpaceSet {
	var set SpaceSet
	for _, s := range spaces {
		set |= 1 << s
	}
	return set
}

// Has tells whether one of the others is in the set.
func (s SpaceSet) Has(others SpaceSet) bool { return s&others != 0 }

// Within tells whether the set has something, and nothing but what others have.
func (s SpaceSet) Within(others SpaceSet) bool { return s != 0 && s&^others == 0 }

// Pointers tells to which spaces the generic addresses in registers can point.
type Pointers struct {
	f    *ir.Func
	regs []SpaceSet
	// Loaded is what an address that comes from memory can point to.
	Loaded SpaceSet
	// Stores are the function's instructions that put into memory (or hand to
	// other threads) a generic address of shared or local memory that it made.
	// Escapes tells that some function of the module has such.
	Stores  []*ir.Instr
	Escapes bool
}

// Of returns to which spaces an operand can point, as a generic address. Nothing
// known (an integer made an address) is AnySpace.
func (p *Pointers) Of(a *ir.Operand) SpaceSet {
	set := p.operand(a)
	if set == 0 {
		return AnySpace
	}
	return set
}

// Accesses returns which spaces a memory instruction can access.
func (p *Pointers) Accesses(in *ir.Instr) SpaceSet {
	if in.Mods.Space != ir.Generic {
		return Spaces(in.Mods.Space)
	}
	return p.Of(&in.Args[0])
}

// FindPointers follows generic addresses through a function without calls: from
// cvta, from a kernel's parameters (the host has global addresses only), and
// from memory. If no function of the module stores an address of shared or local
// memory then none can be loaded.
func FindPointers(m *ir.Module, f *ir.Func) *Pointers {
	p := follow(f, Spaces(ir.Global, ir.Const))
	p.Escapes = len(p.Stores) > 0
	for _, other := range m.Funcs {
		if !p.Escapes && other != f && len(other.Blocks) > 0 {
			p.Escapes = len(follow(other, Spaces(ir.Global, ir.Const)).Stores) > 0
		}
	}
	if p.Escapes {
		stores := p.Stores
		p = follow(f, AnySpace)
		p.Stores, p.Escapes = stores, true
	}
	return p
}

func follow(f *ir.Func, loaded SpaceSet) *Pointers {
	p := &Pointers{f: f, regs: make([]SpaceSet, len(f.Regs)), Loaded: loaded}
	for changed := true; changed; {
		changed = false
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				set := p.result(in)
				for _, r := range in.Dst {
					if r != ir.NoReg && set&^p.regs[r] != 0 {
						p.regs[r] |= set
						changed = true
					}
				}
			}
		}
	}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			if p.keeps(in) {
				p.Stores = append(p.Stores, in)
			}
		}
	}
	return p
}

func (p *Pointers) operand(a *ir.Operand) SpaceSet {
	switch a.Kind {
	case ir.RegOperand:
		return p.regs[a.Reg]
	case ir.VarOperand:
		if s := a.Var.Space; s == ir.Global || s == ir.Const {
			return Spaces(s)
		}
	}
	return 0
}

// result returns what the registers that an instruction writes can point to.
func (p *Pointers) result(in *ir.Instr) SpaceSet {
	switch in.Op {
	case ir.Cvta:
		return Spaces(in.Mods.Space)
	case ir.CvtaTo:
		if s := in.Mods.Space; s == ir.Global || s == ir.Const {
			return Spaces(s)
		}
		return 0
	case ir.Ld:
		if in.Type.Size() < 4 {
			return 0
		}
		if in.Mods.Space == ir.Param && p.f.Kernel && (in.Args[0].Kind != ir.VarOperand || isParam(p.f, in.Args[0].Var)) {
			return Spaces(ir.Global, ir.Const)
		}
		if in.Mods.Space == ir.Param {
			return AnySpace
		}
		return p.Loaded
	case ir.Atom:
		return p.Loaded
	case ir.Malloc:
		return Spaces(ir.Global)
	case ir.Call:
		return AnySpace
	case ir.Mul, ir.Mul24, ir.Shl, ir.Div, ir.Rem, ir.Popc, ir.Clz, ir.Bfind, ir.Alloca, ir.StackSave:
		return 0 // no address is made of these
	case ir.Mad, ir.Mad24, ir.Sad, ir.Fma:
		return p.operand(&in.Args[2])
	case ir.Cvt:
		if in.Type2.Size() < 8 && in.Type.Size() == 8 {
			return 0 // an index
		}
	}
	var set SpaceSet
	for i := range in.Args {
		set |= p.operand(&in.Args[i])
	}
	return set
}

// keeps tells whether an instruction puts what may be an address of shared or
// local memory where other instructions, or threads, find it.
func (p *Pointers) keeps(in *ir.Instr) bool {
	var values []ir.Operand
	switch in.Op {
	case ir.St, ir.Atom, ir.Red:
		values = in.Args[1:]
	case ir.Shfl:
		values = in.Args[:1]
	}
	for i := range values {
		if p.operand(&values[i]).Has(Spaces(ir.Shared, ir.Local)) {
			return true
		}
	}
	return false
}
