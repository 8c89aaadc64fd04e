// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// constant tells of an instruction that writes the same wherever it stands:
// compilers repeat it rather than keep a register.
func (u *Uniformity) constant(in *ir.Instr) bool {
	if in.Guard != ir.NoReg || len(in.Dst) != 1 || in.Op != ir.Mov && in.Op != ir.Ld {
		return false
	}
	a := &in.Args[0]
	switch a.Kind {
	case ir.SregOperand:
		return uniformSreg(a.Sreg)
	case ir.RegOperand:
		return false
	}
	return in.Op == ir.Mov || u.readOnly(in)
}

// everywhere tells whether a constant that threads write on their own is what the
// register has in every thread wherever they are together again and read it: on
// all ways there the same was written last.
func (u *Uniformity) everywhere(b, i int) bool {
	in := u.cfg.Blocks[b].Instrs[i]
	if !u.constant(in) {
		return false
	}
	r := in.Dst[0]
	seen := make([]bool, len(u.cfg.Blocks))
	var together []int
	todo := [][2]int{{b, i + 1}}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if slices.ContainsFunc(u.cfg.Blocks[at[0]].Instrs[at[1]:], func(in *ir.Instr) bool {
			return in.Guard == ir.NoReg && slices.Contains(in.Dst, r)
		}) {
			continue
		}
		for _, to := range u.cfg.Succs[at[0]] {
			if seen[to] {
				continue
			}
			seen[to] = true
			switch {
			case !u.live.In[to].Has(r):
			case !u.blocks[to]:
				together = append(together, to)
			default:
				todo = append(todo, [2]int{to, 0})
			}
		}
	}
	return u.lastWrites(together, in)
}

// lastWrites tells whether all that can have been written last to a register, at
// the beginning of blocks, is what in writes.
func (u *Uniformity) lastWrites(blocks []int, in *ir.Instr) bool {
	r := in.Dst[0]
	seen := make([]bool, len(u.cfg.Blocks))
	var todo []int
	entry := false
	before := func(b int) {
		entry = entry || b == 0
		for _, from := range u.cfg.Preds[b] {
			if !seen[from] {
				seen[from] = true
				todo = append(todo, from)
			}
		}
	}
	for _, b := range blocks {
		before(b)
	}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ended := false
		for _, w := range slices.Backward(u.cfg.Blocks[b].Instrs) {
			if !slices.Contains(w.Dst, r) {
				continue
			}
			if !u.constant(w) || w.Op != in.Op || w.Type != in.Type || w.Mods != in.Mods || w.Args[0] != in.Args[0] || w.Offset != in.Offset {
				return false
			}
			ended = true
			break
		}
		if !ended {
			before(b)
		}
	}
	return !entry // where nothing was written yet
}
