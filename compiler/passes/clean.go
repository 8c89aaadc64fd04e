// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// unreachable removes the blocks that a kernel's entry doesn't reach.
func unreachable(m *ir.Module) error {
	for _, f := range m.Funcs {
		if !f.Kernel {
			continue
		}
		reached := NewCFG(f).Number
		f.Blocks = slices.DeleteFunc(f.Blocks, func(b *ir.Block) bool {
			_, there := reached[b]
			return !there
		})
	}
	return nil
}

// unused removes the variables that a kernel doesn't name, and gives the
// registers that it does name new numbers: what inlining leaves behind.
func unused(m *ir.Module) error {
	for _, f := range m.Funcs {
		if !f.Kernel {
			continue
		}
		named := map[*ir.Var]bool{}
		regs := newRegSet(len(f.Regs))
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				for i := range in.Args {
					named[in.Args[i].Var] = true
				}
				EachUse(in, regs.Add)
				for _, r := range in.Dst {
					regs.Add(r)
				}
			}
		}
		f.Vars = slices.DeleteFunc(f.Vars, func(v *ir.Var) bool { return !named[v] })
		f.Stacks = slices.DeleteFunc(f.Stacks, func(s ir.Stack) bool { return !named[s.Var] || !regs.Has(s.Top) })
		renumber(f, regs)
	}
	return nil
}

func renumber(f *ir.Func, used RegSet) {
	number := make([]ir.Reg, len(f.Regs))
	var regs []ir.RegInfo
	for _, r := range used.Regs() {
		number[r] = ir.Reg(len(regs))
		regs = append(regs, f.Regs[r])
	}
	if len(regs) == len(f.Regs) {
		return
	}
	rename := func(r *ir.Reg) {
		if *r != ir.NoReg {
			*r = number[*r]
		}
	}
	for i := range f.Stacks {
		rename(&f.Stacks[i].Top)
	}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			rename(&in.Guard)
			for i := range in.Dst {
				rename(&in.Dst[i])
			}
			for i := range in.Args {
				if in.Args[i].Kind == ir.RegOperand {
					rename(&in.Args[i].Reg)
				}
			}
		}
	}
	f.Regs = regs
}
