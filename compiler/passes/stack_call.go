// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// enter goes to what is called: a function, or the one whose address a register
// has. Addresses are compared, as no back end has to make them the numbers that
// they are in this form.
func (s *stacker) enter(b *stackedBody, at *ir.Block, in *ir.Instr) {
	if in.Callee != nil {
		branch(at, s.entry(in.Callee), in.Pos)
		return
	}
	address := in.Args[0]
	if address.Kind == ir.RegOperand && !b.root {
		address.Reg = b.c.reg(address.Reg)
	}
	targets := []*ir.Block{s.overflow} // it is none of them
	emit(at, ir.Instr{Op: ir.Mov, Type: ir.U32, Dst: []ir.Reg{s.target}, Args: []ir.Operand{ir.Imm(0)}, Pos: in.Pos})
	for _, f := range s.callees(in) {
		candidate, same := s.reg("hg_function", ir.B64), s.reg("hg_same", ir.Pred)
		emit(at, ir.Instr{Op: ir.Mov, Type: ir.U64, Dst: []ir.Reg{candidate}, Args: []ir.Operand{{Kind: ir.FuncOperand, Reg: ir.NoReg, Func: f}}, Pos: in.Pos})
		emit(at, ir.Instr{Op: ir.Setp, Type: ir.U64, Mods: ir.Mods{Cmp: ir.EQ}, Dst: []ir.Reg{same}, Args: []ir.Operand{address, ir.R(candidate)}, Pos: in.Pos})
		emit(at, ir.Instr{
			Op: ir.Selp, Type: ir.U32, Dst: []ir.Reg{s.target},
			Args: []ir.Operand{ir.Imm(uint64(len(targets))), ir.R(s.target), ir.R(same)}, Pos: in.Pos,
		})
		targets = append(targets, s.entry(f))
	}
	emit(at, ir.Instr{Op: ir.Brx, Args: []ir.Operand{ir.R(s.target)}, Targets: targets, Pos: in.Pos})
}

func (s *stacker) entry(f *ir.Func) *ir.Block { return s.body(f).c.blocks[f.Blocks[0]] }

// callees returns what a call can go to.
func (s *stacker) callees(in *ir.Instr) []*ir.Func {
	if in.Callee != nil {
		if len(in.Callee.Blocks) == 0 {
			return nil
		}
		return []*ir.Func{in.Callee}
	}
	candidates := in.Callees
	if len(candidates) == 0 {
		candidates = addressed(s.module)
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(f *ir.Func) bool {
		return f.Kernel || len(f.Blocks) == 0 || !fitsCall(in.CallArgs, f.Params) || !fitsCall(in.CallResults, f.Results)
	})
}

func fitsCall(vars []*ir.Var, params []*ir.Parameter) bool {
	return slices.EqualFunc(vars, params, func(v *ir.Var, p *ir.Parameter) bool { return v.Size == p.Size })
}

// addressed returns the functions whose address is taken, in the module's order.
func addressed(m *ir.Module) []*ir.Func {
	taken := map[*ir.Func]bool{}
	for _, v := range m.Vars {
		for _, a := range v.Addresses {
			taken[a.Func] = true
		}
	}
	for _, f := range m.Funcs {
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				for i := range in.Args {
					taken[in.Args[i].Func] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(m.Funcs), func(f *ir.Func) bool { return !taken[f] })
}

func local(t ir.Type, dst []ir.Reg, offset int64, at ir.Pos, args ...ir.Operand) ir.Instr {
	op := ir.St
	if dst != nil {
		op = ir.Ld
	}
	return ir.Instr{Op: op, Type: t, Mods: ir.Mods{Space: ir.Local}, Dst: dst, Args: args, Offset: offset, Pos: at}
}

// spill stores a register in the frame.
func (s *stacker) spill(b *stackedBody, to *ir.Block, r ir.Reg, at ir.Pos) {
	own, t := b.c.reg(r), b.f.Regs[r].Type
	value := ir.R(own)
	if t == ir.Pred {
		flag := s.reg("hg_flag", ir.B16)
		emit(to, ir.Instr{Op: ir.Selp, Type: ir.B16, Dst: []ir.Reg{flag}, Args: []ir.Operand{ir.Imm(1), ir.Imm(0), ir.R(own)}, Pos: at})
		value, t = ir.R(flag), ir.B16
	}
	emit(to, local(t, nil, b.spills[r], at, ir.R(s.fp), value))
}

// reload undoes it.
func (s *stacker) reload(b *stackedBody, to *ir.Block, r ir.Reg, at ir.Pos) {
	own, t := b.c.reg(r), b.f.Regs[r].Type
	if t != ir.Pred {
		emit(to, local(t, []ir.Reg{own}, b.spills[r], at, ir.R(s.fp)))
		return
	}
	flag := s.reg("hg_flag", ir.B16)
	emit(to, local(ir.B16, []ir.Reg{flag}, b.spills[r], at, ir.R(s.fp)))
	emit(to, ir.Instr{Op: ir.Setp, Type: ir.B16, Mods: ir.Mods{Cmp: ir.NE}, Dst: []ir.Reg{own}, Args: []ir.Operand{ir.R(flag), ir.Imm(0)}, Pos: at})
}

// saveTop keeps where what Alloca takes ends, so that what the call takes is
// given back behind it.
func (s *stacker) saveTop(b *stackedBody, to *ir.Block, at ir.Pos) ir.Reg {
	if !s.grows {
		return ir.NoReg
	}
	top := s.reg("hg_top", ir.B64)
	emit(to, ir.Instr{Op: ir.StackSave, Dst: []ir.Reg{top}, Pos: at})
	if !b.root {
		emit(to, local(ir.B64, nil, b.top, at, ir.R(s.fp), ir.R(top)))
	}
	return top
}

func (s *stacker) restoreTop(b *stackedBody, to *ir.Block, top ir.Reg, at ir.Pos) {
	if top == ir.NoReg {
		return
	}
	if !b.root {
		emit(to, local(ir.B64, []ir.Reg{top}, b.top, at, ir.R(s.fp)))
	}
	emit(to, ir.Instr{Op: ir.StackRestore, Args: []ir.Operand{ir.R(top)}, Pos: at})
}
