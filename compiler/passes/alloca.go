// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// AllocaBytes is what a thread of a kernel can take with Alloca. One that needs
// more traps.
const AllocaBytes = 16 << 10

// allocaArea gives Alloca its memory: a local variable of a fixed size, so that
// what a thread has to save is known before it runs.
func allocaArea(m *ir.Module) error {
	for _, f := range m.Funcs {
		if !f.Kernel || !usesAlloca(f) && !usesStack(f) {
			continue
		}
		e := edit(f)
		area := e.local("hg_area", AllocaBytes, 16)
		top := e.reg("hg_area_top", ir.B64)
		f.Stacks = append(f.Stacks, ir.Stack{Var: area, Top: top})
		full := e.block("hg_area_full")
		emit(full, ir.Instr{Op: ir.Trap})
		var blocks []*ir.Block
		for _, b := range f.Blocks {
			blocks = append(blocks, e.takeFrom(b, area, top, full)...)
		}
		f.Blocks = append(blocks, full)
		start := &ir.Instr{Op: ir.Mov, Type: ir.U64, Guard: ir.NoReg, Dst: []ir.Reg{top}, Args: []ir.Operand{addressOf(area)}}
		f.Blocks[0].Instrs = append([]*ir.Instr{start}, f.Blocks[0].Instrs...)
	}
	return nil
}

func usesStack(f *ir.Func) bool {
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			if in.Op == ir.StackSave || in.Op == ir.StackRestore {
				return true
			}
		}
	}
	return false
}

// takeFrom rewrites a block, which every Alloca splits.
func (e *editor) takeFrom(b *ir.Block, area *ir.Var, top ir.Reg, full *ir.Block) []*ir.Block {
	blocks := []*ir.Block{b}
	instrs := b.Instrs
	b.Instrs = nil
	for _, in := range instrs {
		n := *in
		switch in.Op {
		case ir.StackSave:
			n.Op, n.Type, n.Args = ir.Mov, ir.U64, []ir.Operand{ir.R(top)}
		case ir.StackRestore:
			n.Op, n.Type, n.Dst = ir.Mov, ir.U64, []ir.Reg{top}
		case ir.Alloca:
			b = e.take(b, in, area, top, full)
			blocks = append(blocks, b)
			continue
		}
		b.Instrs = append(b.Instrs, &n)
	}
	return blocks
}

// take makes an Alloca's instructions, and returns the block that goes on. A
// guard stays on what changes something; the rest does no harm.
func (e *editor) take(b *ir.Block, in *ir.Instr, area *ir.Var, top ir.Reg, full *ir.Block) *ir.Block {
	size, end, limit := in.Args[0], e.reg("hg_area_end", ir.B64), e.reg("hg_area_limit", ir.B64)
	wrong := e.reg("hg_area_wrong", ir.Pred)
	if size.Kind == ir.RegOperand && e.f.Regs[size.Reg].Type == ir.B32 {
		emit(b, ir.Instr{Op: ir.Cvt, Type: ir.U64, Type2: ir.U32, Dst: []ir.Reg{end}, Args: []ir.Operand{size}, Pos: in.Pos})
		size = ir.R(end)
	}
	binary := func(op ir.Op, t ir.Type, dst ir.Reg, x, y ir.Operand) {
		emit(b, ir.Instr{Op: op, Type: t, Dst: []ir.Reg{dst}, Args: []ir.Operand{x, y}, Pos: in.Pos})
	}
	guarded := func(i ir.Instr) {
		i.Guard, i.GuardNot, i.Pos = in.Guard, in.GuardNot, in.Pos
		b.Instrs = append(b.Instrs, &i)
	}
	// An absurd size must not wrap round: at most AllocaBytes and 1 count.
	emit(b, ir.Instr{Op: ir.Min, Type: ir.U64, Dst: []ir.Reg{end}, Args: []ir.Operand{size, ir.Imm(AllocaBytes + 1)}, Pos: in.Pos})
	binary(ir.Add, ir.U64, end, ir.R(end), ir.Imm(15))
	binary(ir.And, ir.B64, end, ir.R(end), ir.Imm(^uint64(15)))
	binary(ir.Add, ir.U64, end, ir.R(end), ir.R(top))
	emit(b, ir.Instr{Op: ir.Mov, Type: ir.U64, Dst: []ir.Reg{limit}, Args: []ir.Operand{addressOf(area)}, Pos: in.Pos})
	binary(ir.Add, ir.U64, limit, ir.R(limit), ir.Imm(AllocaBytes))
	emit(b, ir.Instr{Op: ir.Mov, Type: ir.Pred, Dst: []ir.Reg{wrong}, Args: []ir.Operand{ir.Imm(0)}, Pos: in.Pos})
	guarded(ir.Instr{Op: ir.Setp, Type: ir.U64, Mods: ir.Mods{Cmp: ir.GT}, Dst: []ir.Reg{wrong}, Args: []ir.Operand{ir.R(end), ir.R(limit)}})
	rest := e.block(b.Name + ".taken")
	b.Instrs = append(b.Instrs, &ir.Instr{Op: ir.Br, Guard: wrong, Targets: []*ir.Block{full, rest}, Pos: in.Pos})
	b = rest
	guarded(ir.Instr{Op: ir.Mov, Type: ir.U64, Dst: in.Dst, Args: []ir.Operand{ir.R(top)}})
	guarded(ir.Instr{Op: ir.Mov, Type: ir.U64, Dst: []ir.Reg{top}, Args: []ir.Operand{ir.R(end)}})
	return rest
}
