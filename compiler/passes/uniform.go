// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Uniformity tells what is the same for all threads of a block.
//
// A register is uniform if each of its writes has uniform operands and is
// executed by all threads or by none. That is one answer for a register, not for
// each of its values: safe, and exact enough for what compilers make.
//
// A trap ends the launch, and so a branch to what can only end in one keeps no
// thread from what the others do (an assertion before a barrier). Where threads
// that have trapped may not be missed all the same, StrictUniformity tells.
type Uniformity struct {
	cfg *CFG
	// divergent registers and blocks. A block is divergent if threads decide on
	// their own whether, or how often, they execute it.
	regs   []bool
	blocks []bool
	// deciders has for each block the blocks whose branches decide over it.
	deciders [][]int
	doomed   []bool
	phases   *phases
	live     *Liveness
}

// Reg tells whether a register has the same value in all threads.
func (u *Uniformity) Reg(r ir.Reg) bool { return !u.regs[r] }

// Block tells whether all threads execute a block together, as often.
func (u *Uniformity) Block(b int) bool { return !u.blocks[b] }

// Branch tells whether all threads leave a block the same way.
func (u *Uniformity) Branch(b int) bool { return !u.divergentBranch(b) }

// Deciders returns the blocks whose branches decide whether, or how often, a block
// is executed.
func (u *Uniformity) Deciders(b int) []int { return u.deciders[b] }

// Uniformity finds what is uniform in a launch without a trap.
// Blocks that can only end in a trap are not: nobody has to come there with others.
func (c *CFG) Uniformity() *Uniformity {
	doomed := c.doomed()
	if !slices.Contains(doomed, true) || doomed[0] {
		return c.StrictUniformity()
	}
	return c.uniformity(c.deciders(doomed), doomed)
}

// StrictUniformity counts threads that trap as threads that went another way.
func (c *CFG) StrictUniformity() *Uniformity {
	return c.uniformity(c.controlDependence(c.PostDominators()), make([]bool, len(c.Blocks)))
}

// uniformity begins with everything uniform, and takes back what isn't until
// nothing changes. What the doomed blocks write, others never read.
func (c *CFG) uniformity(deciders [][]int, doomed []bool) *Uniformity {
	u := &Uniformity{
		cfg: c, regs: make([]bool, len(c.Func.Regs)), blocks: slices.Clone(doomed), deciders: deciders, doomed: doomed,
	}
	u.phases, u.live = newPhases(u), c.Liveness()
	for changed := true; changed; {
		u.phases.forget()
		changed = u.flow()
		for u.spread() {
			changed = true
		}
	}
	return u
}

// spread marks the blocks over which threads decide on their own.
func (u *Uniformity) spread() bool {
	changed := false
	for b := range u.blocks {
		if !u.blocks[b] && u.decidedApart(b) {
			u.blocks[b], changed = true, true
		}
	}
	return changed
}

// flow marks the registers that divergent instructions write.
func (u *Uniformity) flow() bool {
	changed := false
	for b, block := range u.cfg.Blocks {
		if u.doomed[b] {
			continue
		}
		for i, in := range block.Instrs {
			if u.blocks[b] && u.everywhere(b, i) || !u.blocks[b] && !u.divergentResult(b, i) {
				continue
			}
			for _, r := range in.Dst {
				if r != ir.NoReg && !u.regs[r] {
					u.regs[r], changed = true, true
				}
			}
		}
	}
	return changed
}

func (u *Uniformity) decidedApart(b int) bool {
	for _, d := range u.deciders[b] {
		if u.blocks[d] || u.divergentBranch(d) {
			return true
		}
	}
	return false
}

func (u *Uniformity) divergentBranch(b int) bool {
	in := u.cfg.Blocks[b].Term()
	return len(in.Targets) > 1 && u.divergentOperands(in)
}

func (u *Uniformity) divergentOperands(in *ir.Instr) bool {
	divergent := false
	EachUse(in, func(r ir.Reg) { divergent = divergent || u.regs[r] })
	return divergent
}

// divergentResult tells whether what an instruction writes can differ between
// threads that execute it together.
func (u *Uniformity) divergentResult(b, i int) bool {
	in := u.cfg.Blocks[b].Instrs[i]
	if in.Guard != ir.NoReg && u.regs[in.Guard] {
		return true
	}
	switch in.Op {
	case ir.Bar:
		// Its reduction is over the block, whatever its operand.
		return !WholeBlock(in)
	case ir.Ld:
		// Other memory can be written between two threads' reads.
		return u.divergentOperands(in) || !u.readOnly(in) && !u.phases.same(b, i)
	case ir.Atom, ir.Shfl, ir.Vote, ir.Match, ir.Redux, ir.Activemask, ir.Elect, ir.Alloca, ir.StackSave,
		ir.MbarArrive, ir.MbarArriveDrop, ir.MbarTest, ir.MbarTry, ir.Mma, ir.WmmaLoad, ir.WmmaMma, ir.Ldmatrix, ir.Movmatrix,
		ir.Printf, ir.Malloc, ir.Call:
		return true
	}
	for i := range in.Args {
		if in.Args[i].Kind == ir.SregOperand && !uniformSreg(in.Args[i].Sreg) {
			return true
		}
	}
	return u.divergentOperands(in)
}

// readOnly tells of loads from constants and from a kernel's parameters.
func (u *Uniformity) readOnly(in *ir.Instr) bool {
	if in.Mods.Volatile || in.Mods.Order > ir.Weak {
		return false
	}
	a := &in.Args[0]
	switch in.Mods.Space {
	case ir.Const:
		return true
	case ir.Generic:
		return a.Kind == ir.VarOperand && a.Var.Space == ir.Const
	case ir.Param:
		return u.cfg.Func.Kernel && (a.Kind != ir.VarOperand || isParam(u.cfg.Func, a.Var))
	}
	return false
}

func isParam(f *ir.Func, v *ir.Var) bool {
	for _, p := range f.Params {
		if &p.Var == v {
			return true
		}
	}
	return false
}

func uniformSreg(s ir.Sreg) bool {
	switch s {
	case ir.TidX, ir.TidY, ir.TidZ, ir.LaneID, ir.WarpID, ir.LanemaskEQ, ir.LanemaskLE, ir.LanemaskLT, ir.LanemaskGE, ir.LanemaskGT,
		ir.Clock, ir.ClockHi, ir.Clock64, ir.GlobalTimer, ir.GlobalTimerLo, ir.GlobalTimerHi:
		return false
	}
	return true
}

// WholeBlock tells of a barrier at which all threads of the block wait: barrier
// 0, with no number of threads.
func WholeBlock(in *ir.Instr) bool {
	if in.Op != ir.Bar || in.Mods.Bar == ir.BarArrive || in.Guard != ir.NoReg {
		return false
	}
	if id := in.Args[0]; id.Kind != ir.ImmOperand || id.Imm != 0 {
		return false
	}
	return len(in.Args) == 1 || in.Args[1].Kind == ir.ImmOperand && in.Args[1].Imm == 0
}

// WarpSynchronous tells of operations for which the threads of a warp wait for
// one another, or that ask which of them are there.
func WarpSynchronous(op ir.Op) bool {
	switch op {
	case ir.WarpSync, ir.Shfl, ir.Vote, ir.Match, ir.Redux, ir.Activemask, ir.Elect,
		ir.Mma, ir.WmmaLoad, ir.WmmaStore, ir.WmmaMma, ir.Ldmatrix, ir.Stmatrix, ir.Movmatrix:
		return true
	}
	return false
}
