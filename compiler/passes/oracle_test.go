// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// randomProgram puts instructions into a random control flow: constants, what is the
// same for all threads (a parameter) and what isn't (the thread's index), moved,
// added, compared, under guards; some of its ends are traps.
func randomProgram(r *rand.Rand) *ir.Func {
	f := randomFunc(r)
	f.Kernel = true
	f.Params = []*ir.Parameter{{Var: ir.Var{Name: "n", Space: ir.Param, Size: 4, Align: 4}}}
	f.Regs = nil
	const words, preds = 5, 4
	for i := range words {
		f.Regs = append(f.Regs, ir.RegInfo{Name: fmt.Sprintf("r%d", i), Type: ir.B32})
	}
	for i := range preds {
		f.Regs = append(f.Regs, ir.RegInfo{Name: fmt.Sprintf("p%d", i), Type: ir.Pred})
	}
	word := func() ir.Reg { return ir.Reg(r.IntN(words)) }
	pred := func() ir.Reg { return ir.Reg(words + r.IntN(preds)) }
	for b, block := range f.Blocks {
		var list []*ir.Instr
		add := func(in ir.Instr) {
			if r.IntN(6) == 0 && b > 0 {
				in.Guard, in.GuardNot = pred(), r.IntN(2) == 0
			} else {
				in.Guard = ir.NoReg
			}
			list = append(list, &in)
		}
		if b == 0 { // nothing is read before it is written
			for i := range words {
				add(ir.Instr{Op: ir.Mov, Type: ir.U32, Dst: []ir.Reg{ir.Reg(i)}, Args: []ir.Operand{ir.Imm(uint64(i))}})
			}
			for i := range preds {
				add(ir.Instr{Op: ir.Mov, Type: ir.Pred, Dst: []ir.Reg{ir.Reg(words + i)}, Args: []ir.Operand{ir.Imm(uint64(i & 1))}})
			}
		}
		for range r.IntN(5) {
			switch r.IntN(6) {
			case 0:
				add(ir.Instr{Op: ir.Mov, Type: ir.U32, Dst: []ir.Reg{word()}, Args: []ir.Operand{{Kind: ir.SregOperand, Sreg: ir.TidX, Reg: ir.NoReg}}})
			case 1:
				add(ir.Instr{
					Op: ir.Ld, Type: ir.U32, Mods: ir.Mods{Space: ir.Param}, Dst: []ir.Reg{word()},
					Args: []ir.Operand{{Kind: ir.VarOperand, Var: &f.Params[0].Var, Reg: ir.NoReg}},
				})
			case 2:
				add(ir.Instr{Op: ir.Mov, Type: ir.U32, Dst: []ir.Reg{word()}, Args: []ir.Operand{ir.Imm(uint64(r.IntN(3)))}})
			case 3:
				add(ir.Instr{Op: ir.Add, Type: ir.U32, Dst: []ir.Reg{word()}, Args: []ir.Operand{ir.R(word()), ir.R(word())}})
			default:
				add(ir.Instr{Op: ir.Setp, Type: ir.U32, Mods: ir.Mods{Cmp: ir.LT}, Dst: []ir.Reg{pred()}, Args: []ir.Operand{ir.R(word()), ir.R(word())}})
			}
		}
		end := block.Instrs[0]
		switch {
		case end.Op == ir.Ret && r.IntN(2) == 0:
			end.Op = ir.Trap
		case end.Guard != ir.NoReg:
			end.Guard = pred()
		}
		block.Instrs = append(list, end)
	}
	return f
}

// visit is one execution of a block by a thread, with what its registers were at
// the beginning.
type visit struct {
	block int
	regs  []uint64
}

// trace runs a thread for some blocks, and tells how it ended: ir.Ret, ir.Trap, or
// ir.Br where it was left running.
func trace(c *CFG, tid, n uint64) ([]visit, ir.Op) {
	regs := make([]uint64, len(c.Func.Regs))
	value := func(a *ir.Operand) uint64 {
		switch a.Kind {
		case ir.RegOperand:
			return regs[a.Reg]
		case ir.SregOperand:
			return tid
		case ir.VarOperand:
			return n
		}
		return a.Imm
	}
	var visits []visit
	at := c.Blocks[0]
	for range 60 {
		visits = append(visits, visit{c.Number[at], slices.Clone(regs)})
		for _, in := range at.Instrs[:len(at.Instrs)-1] {
			if in.Guard != ir.NoReg && (regs[in.Guard] != 0) == in.GuardNot {
				continue
			}
			switch x := value(&in.Args[0]); in.Op {
			case ir.Add:
				regs[in.Dst[0]] = uint64(uint32(x + value(&in.Args[1])))
			case ir.Setp:
				regs[in.Dst[0]] = 0
				if x < value(&in.Args[1]) {
					regs[in.Dst[0]] = 1
				}
			default:
				regs[in.Dst[0]] = x
			}
		}
		end := at.Term()
		switch {
		case end.Op != ir.Br:
			return visits, end.Op
		case end.Guard == ir.NoReg || regs[end.Guard] != 0:
			at = end.Targets[0]
		default:
			at = end.Targets[1]
		}
	}
	return visits, ir.Br
}

// TestUniformByExecution runs random programs with threads that have different
// indices. All must come to the blocks that are called uniform one after the other
// in the same order, with the same values in the uniform registers that are read
// later, until one of them traps; strictly, also if one does.
func TestUniformByExecution(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	together, trapped, gained := 0, 0, 0
	for range 4000 {
		c := NewCFG(randomProgram(r))
		u, strict, live := c.Uniformity(), c.StrictUniformity(), c.Liveness()
		for b := range c.Blocks {
			if u.Block(b) && !strict.Block(b) {
				gained++
			}
		}
		for n := range uint64(4) {
			first, end := trace(c, 0, n)
			for tid := uint64(1); tid < 5; tid++ {
				other, otherEnd := trace(c, tid, n)
				ended := end != ir.Br && otherEnd != ir.Br
				if end == ir.Trap != (otherEnd == ir.Trap) {
					trapped++
				}
				together += compare(t, c, strict, live, first, other, ended)
				compare(t, c, u, live, first, other, ended && end != ir.Trap && otherEnd != ir.Trap)
			}
		}
	}
	if together < 10000 || trapped < 80 || gained < 100 {
		t.Errorf("only %d times together, %d traps of one of two threads, %d blocks more than strictly", together, trapped, gained)
	}
}

// compare compares two threads' visits of uniform blocks, as far as both went or, if
// they ended, to the end, and returns how many there were.
func compare(t *testing.T, c *CFG, u *Uniformity, live *Liveness, a, b []visit, ended bool) int {
	t.Helper()
	uniform := func(v visit) bool { return !u.Block(v.block) }
	a, b = slices.DeleteFunc(slices.Clone(a), uniform), slices.DeleteFunc(slices.Clone(b), uniform)
	if ended && len(a) != len(b) {
		t.Fatalf("%s\none thread comes to %d uniform blocks, another one to %d", c.Func, len(a), len(b))
	}
	for i := range min(len(a), len(b)) {
		if a[i].block != b[i].block {
			t.Fatalf("%s\nat step %d of what is uniform threads come to %s and %s", c.Func, i, c.Blocks[a[i].block].Name, c.Blocks[b[i].block].Name)
		}
		for _, reg := range live.In[a[i].block].Regs() {
			if u.Reg(reg) && a[i].regs[reg] != b[i].regs[reg] {
				t.Fatalf("%s\nat the beginning of %s %%%s is %d and %d", c.Func, c.Blocks[a[i].block].Name, c.Func.Regs[reg].Name, a[i].regs[reg], b[i].regs[reg])
			}
		}
	}
	return min(len(a), len(b))
}

// TestLivenessByDefinition: a register lives where a way leads to a read of it
// without a write that always happens.
func TestLivenessByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	lives := 0
	for range 1500 {
		c := NewCFG(randomProgram(r))
		live := c.Liveness()
		for b, block := range c.Blocks {
			for i := range block.Instrs {
				after := live.After(b, i)
				for reg := range c.Func.Regs {
					want := isRead(c, b, i+1, ir.Reg(reg))
					if after.Has(ir.Reg(reg)) != want {
						t.Fatalf("%s\nbehind instruction %d of %s %%%s lives: %v", c.Func, i, block.Name, c.Func.Regs[reg].Name, !want)
					}
					if want {
						lives++
					}
				}
			}
		}
	}
	if lives < 10000 {
		t.Errorf("only %d lives", lives)
	}
}

// isRead looks for a read of a register from instruction i of a block on.
func isRead(c *CFG, b, i int, reg ir.Reg) bool {
	seen := make([]bool, len(c.Blocks))
	todo := [][2]int{{b, i}}
next:
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, in := range c.Blocks[at[0]].Instrs[at[1]:] {
			read := false
			EachUse(in, func(r ir.Reg) { read = read || r == reg })
			if read {
				return true
			}
			if in.Guard == ir.NoReg && slices.Contains(in.Dst, reg) {
				continue next
			}
		}
		for _, s := range c.Succs[at[0]] {
			if !seen[s] {
				seen[s] = true
				todo = append(todo, [2]int{s, 0})
			}
		}
	}
	return false
}
