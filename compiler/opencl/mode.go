// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// modeOf decides how a kernel is written, and says why if it is not natural.
func modeOf(f *ir.Func) (Mode, string) {
	if passes.TooLarge(f) {
		return General, "it is too large"
	}
	c := passes.Undisturbed(f)
	u := c.StrictUniformity() // a work item that has trapped must not be missed at a barrier
	meets := false
	for n, b := range c.Blocks {
		for _, in := range b.Instrs {
			if !together(in) && !waits(in) {
				continue
			}
			meets = true
			if why := apart(u, n, in); why != "" {
				return General, fmt.Sprintf("line %d: %s: %s", in.Pos.Line, in.Op, why)
			}
		}
	}
	c = passes.NewCFG(f)
	if meets && len(c.Loops(c.Dominators()).Irreducible) > 0 {
		return General, "a loop has two beginnings"
	}
	return Natural, ""
}

// waits tells of an operation that a thread repeats until another one has done
// something.
func waits(in *ir.Instr) bool { return in.Op == ir.MbarTest || in.Op == ir.MbarTry }

// apart says why the threads of a block don't do something all together.
func apart(u *passes.Uniformity, block int, in *ir.Instr) string {
	switch {
	case waits(in):
		return "a thread waits there for others"
	case in.Op == ir.Bar && in.Mods.Bar == ir.BarArrive:
		return "a thread does not wait there"
	case in.Op == ir.Bar && partial(in):
		return "it is for a part of the threads"
	case !u.Block(block), in.Guard != ir.NoReg && !u.Reg(in.Guard):
		return "threads decide on their own whether they come there"
	}
	return ""
}

// partial tells of a barrier that says how many threads it is for.
func partial(in *ir.Instr) bool {
	n := len(in.Args)
	if in.Mods.Bar >= ir.BarRedPopc {
		n--
	}
	return n > 1 && (in.Args[1].Kind != ir.ImmOperand || in.Args[1].Imm != 0)
}
