// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"cmp"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// maxParts is how many registers a variable may become.
const maxParts = 64

// part is a piece of a variable that is accessed as a whole.
type part struct {
	offset int64
	size   int
}

// promote makes registers of local variables whose pieces are only loaded and
// stored whole, at places that are known: what calls passed, mostly. Registers
// are saved at a pause only where they are live.
func promote(m *ir.Module) error {
	for _, f := range m.Funcs {
		if f.Kernel {
			promoteIn(f)
		}
	}
	return nil
}

func promoteIn(f *ir.Func) {
	parts := map[*ir.Var]map[part]bool{}
	for _, v := range f.Vars {
		if v.Space == ir.Local {
			parts[v] = map[part]bool{}
		}
	}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			collect(parts, in)
		}
	}
	e := edit(f)
	regs := map[*ir.Var]map[part]ir.Reg{}
	f.Vars = slices.DeleteFunc(f.Vars, func(v *ir.Var) bool {
		list, there := parts[v]
		if !there || !apart(v, list) {
			return false
		}
		regs[v] = map[part]ir.Reg{}
		for _, p := range sorted(list) {
			regs[v][p] = e.reg(v.Name, registerOf(p.size))
		}
		return true
	})
	if len(regs) == 0 {
		return
	}
	f.Stacks = slices.DeleteFunc(f.Stacks, func(s ir.Stack) bool { return regs[s.Var] != nil })
	for _, b := range f.Blocks {
		var out []*ir.Instr
		for _, in := range b.Instrs {
			v := accessed(in)
			if v == nil || regs[v] == nil {
				out = append(out, in)
				continue
			}
			out = append(out, moves(f, in, regs[v])...)
		}
		b.Instrs = out
	}
}

func registerOf(size int) ir.Type {
	return map[int]ir.Type{1: ir.B8, 2: ir.B16, 4: ir.B32, 8: ir.B64, 16: ir.B128}[size]
}

// accessed returns the variable that a plain load or store names.
func accessed(in *ir.Instr) *ir.Var {
	if in.Op != ir.Ld && in.Op != ir.St || in.Args[0].Kind != ir.VarOperand {
		return nil
	}
	return in.Args[0].Var
}

// collect notes what an instruction accesses, and drops the variables that it
// uses in another way.
func collect(parts map[*ir.Var]map[part]bool, in *ir.Instr) {
	v := accessed(in)
	for i := range in.Args {
		if i > 0 || v == nil {
			delete(parts, in.Args[i].Var)
		}
	}
	for _, v := range slices.Concat(in.CallArgs, in.CallResults) {
		delete(parts, v)
	}
	list := parts[v]
	if list == nil {
		return
	}
	if in.Mods.Volatile || in.Mods.Order != ir.Weak || len(list) > maxParts {
		delete(parts, v)
		return
	}
	for i := range max(int(in.Mods.Vec), 1) {
		list[partAt(in, i)] = true
	}
}

// partAt returns which part element i of an access is.
func partAt(in *ir.Instr, i int) part {
	size := in.Type.Size()
	return part{in.Offset + int64(in.Args[0].Imm) + int64(i*size), size}
}

func sorted(list map[part]bool) []part {
	var all []part
	for p := range list {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size))
	})
	return all
}

// apart tells whether no two parts overlap, and all are in the variable.
func apart(v *ir.Var, list map[part]bool) bool {
	end := int64(0)
	for _, p := range sorted(list) {
		if p.offset < end || p.offset+int64(p.size) > v.Size {
			return false
		}
		end = p.offset + int64(p.size)
	}
	return len(list) <= maxParts
}

// moves returns what a load or a store of parts that are registers now is. All
// is read before something is written: a vector's load may name a register twice,
// but never one that is a part.
func moves(f *ir.Func, in *ir.Instr, regs map[part]ir.Reg) []*ir.Instr {
	var out []*ir.Instr
	for i := range max(int(in.Mods.Vec), 1) {
		own := regs[partAt(in, i)]
		n := &ir.Instr{Guard: in.Guard, GuardNot: in.GuardNot, Pos: in.Pos}
		if in.Op == ir.Ld {
			if in.Dst[i] == ir.NoReg {
				continue
			}
			n.Dst, n.Args = []ir.Reg{in.Dst[i]}, []ir.Operand{ir.R(own)}
			resize(n, in.Type, f.Regs[in.Dst[i]].Type, registerOf(in.Type.Size()), in.Type.Signed())
		} else {
			value := in.Args[1+i]
			from := registerOf(in.Type.Size())
			if value.Kind == ir.RegOperand {
				from = f.Regs[value.Reg].Type
			}
			n.Dst, n.Args = []ir.Reg{own}, []ir.Operand{value}
			resize(n, in.Type, registerOf(in.Type.Size()), from, false)
		}
		out = append(out, n)
	}
	return out
}

// resize makes a mov of n, or a cvt where the registers' sizes differ.
func resize(n *ir.Instr, t, to, from ir.Type, signed bool) {
	if to == from {
		n.Op, n.Type = ir.Mov, registerOf(t.Size())
		return
	}
	n.Op, n.Type, n.Type2 = ir.Cvt, integerOf(to.Size(), signed), integerOf(from.Size(), signed)
}

func integerOf(size int, signed bool) ir.Type {
	if signed {
		return map[int]ir.Type{1: ir.S8, 2: ir.S16, 4: ir.S32, 8: ir.S64}[size]
	}
	return map[int]ir.Type{1: ir.U8, 2: ir.U16, 4: ir.U32, 8: ir.U64}[size]
}
