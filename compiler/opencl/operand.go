// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// ctype is the C type of t's bits: unsigned, of its size.
func ctype(t ir.Type) string {
	switch t.Size() {
	case 1:
		if t == ir.Pred {
			return "bool"
		}
		return "uchar"
	case 2:
		return "ushort"
	case 4:
		return "uint"
	case 8:
		return "ulong"
	}
	return "ulong2"
}

// stype is the signed C type of t's size.
func stype(t ir.Type) string {
	return map[int]string{1: "char", 2: "short", 4: "int", 8: "long"}[t.Size()]
}

// literal is a number of t's size.
func literal(t ir.Type, bits uint64) string {
	switch t.Size() {
	case 1:
		if t == ir.Pred {
			return fmt.Sprint(bits & 1)
		}
		return fmt.Sprintf("(uchar)%d", uint8(bits))
	case 2:
		return fmt.Sprintf("(ushort)%d", uint16(bits))
	case 4:
		if uint32(bits) < 4096 {
			return fmt.Sprintf("%du", uint32(bits))
		}
		return fmt.Sprintf("0x%xu", uint32(bits))
	case 8:
		if bits < 4096 {
			return fmt.Sprintf("%dUL", bits)
		}
		return fmt.Sprintf("0x%xUL", bits)
	}
	return fmt.Sprintf("(ulong2)(0x%xUL, 0UL)", bits)
}

func reg(r ir.Reg) string { return fmt.Sprintf("r%d", r) }

// bits is an operand's value as an unsigned number of t's size: of a larger
// register its lower part.
func (e *emitter) bits(o ir.Operand, t ir.Type) string {
	switch o.Kind {
	case ir.RegOperand:
		have := e.f.Regs[o.Reg].Type
		if have == ir.Pred {
			if o.Not {
				return "!" + reg(o.Reg)
			}
			return reg(o.Reg)
		}
		switch {
		case have.Size() == t.Size():
			return reg(o.Reg)
		case have == ir.B128:
			return fmt.Sprintf("(%s)%s.x", ctype(t), reg(o.Reg))
		case t.Size() == 16:
			return fmt.Sprintf("(ulong2)((ulong)%s, 0UL)", reg(o.Reg))
		}
		return fmt.Sprintf("(%s)%s", ctype(t), reg(o.Reg))
	case ir.ImmOperand:
		if o.Not {
			return literal(t, ^o.Imm)
		}
		return literal(t, o.Imm)
	case ir.VarOperand:
		return e.resize(e.varAddress(o.Var, o.Imm), t)
	case ir.FuncOperand:
		for i, f := range e.m.Funcs {
			if f == o.Func {
				return literal(t, uint64(i)+1)
			}
		}
		panic("BUG: opencl: a function that is not the module's")
	case ir.SregOperand:
		return fmt.Sprintf("(%s)%s", ctype(t), e.sreg(o.Sreg))
	}
	panic("BUG: opencl: an operand of no kind")
}

// resize casts a 64-bit expression.
func (e *emitter) resize(x string, t ir.Type) string {
	if t.Size() == 8 {
		return x
	}
	return fmt.Sprintf("(%s)(%s)", ctype(t), x)
}

// signed is an operand's value as a signed number of t's size.
func (e *emitter) signed(o ir.Operand, t ir.Type) string {
	return fmt.Sprintf("as_%s(%s)", stype(t), e.bits(o, t))
}

// arg is an operand's value as t says, signed or not.
func (e *emitter) arg(o ir.Operand, t ir.Type) string {
	if t.Signed() {
		return e.signed(o, t)
	}
	return e.bits(o, t)
}

// varAddress is the address of v, plus n, in its own space.
func (e *emitter) varAddress(v *ir.Var, n uint64) string {
	switch v.Space {
	case ir.Global, ir.Const:
		i, ok := e.vars[v]
		if !ok {
			panic("BUG: opencl: variable " + v.Name + " is not the module's")
		}
		if n == 0 {
			return fmt.Sprintf("hg_vars[%d]", i)
		}
		return fmt.Sprintf("(hg_vars[%d] + %s)", i, literal(ir.B64, n))
	case ir.Shared:
		return literal(ir.B64, uint64(e.shared.Offsets[v])+n)
	case ir.Local:
		return literal(ir.B64, uint64(e.local.Offsets[v])+n)
	}
	for _, p := range e.f.Params {
		if &p.Var == v {
			return literal(ir.B64, uint64(p.Offset)+n)
		}
	}
	if at, ok := e.slots[v]; ok {
		e.usesLocal = true
		return literal(ir.B64, uint64(at)+n)
	}
	e.fail("the call's parameter %s is not a register: the function has not been prepared", v.Name)
	return "0UL"
}

// set writes an expression of type t to register r. A larger register is filled
// with the sign or with zeroes, as t says.
func (e *emitter) set(r ir.Reg, t ir.Type, x string) {
	if r == ir.NoReg {
		return
	}
	have := e.f.Regs[r].Type
	switch {
	case have.Size() == t.Size():
	case have == ir.B128:
		x = fmt.Sprintf("(ulong2)((ulong)%s, 0UL)", paren(x))
	case have.Size() < t.Size():
		x = fmt.Sprintf("(%s)%s", ctype(have), paren(x))
	case t.Signed():
		x = fmt.Sprintf("(%s)(%s)(%s)%s", ctype(have), stype(have), stype(t), paren(x))
	default:
		x = fmt.Sprintf("(%s)(%s)%s", ctype(have), ctype(t), paren(x))
	}
	e.line("%s = %s;", reg(r), x)
}

func paren(x string) string {
	return "(" + x + ")"
}

// sreg is a special register's value.
func (e *emitter) sreg(s ir.Sreg) string {
	switch s {
	case ir.TidX, ir.TidY, ir.TidZ:
		return fmt.Sprintf("get_local_id(%d)", s-ir.TidX)
	case ir.NtidX, ir.NtidY, ir.NtidZ:
		return fmt.Sprintf("hg->block[%d]", s-ir.NtidX)
	case ir.CtaidX:
		return "(hg_b % hg->grid[0])"
	case ir.CtaidY:
		return "(hg_b / hg->grid[0] % hg->grid[1])"
	case ir.CtaidZ:
		return "(hg_b / hg->grid[0] / hg->grid[1])"
	case ir.NctaidX, ir.NctaidY, ir.NctaidZ:
		return fmt.Sprintf("hg->grid[%d]", s-ir.NctaidX)
	case ir.LaneID:
		return "(hg_t & 31)"
	case ir.WarpID:
		return "(hg_t >> 5)"
	case ir.NWarpID:
		return "((hg_n + 31) >> 5)"
	case ir.SMID, ir.GridID:
		return "0"
	case ir.NSMID:
		return "1"
	case ir.LanemaskEQ:
		return "(1u << (hg_t & 31))"
	case ir.LanemaskLE:
		return "(~0u >> (31 - (hg_t & 31)))"
	case ir.LanemaskLT:
		return "((1u << (hg_t & 31)) - 1)"
	case ir.LanemaskGE:
		return "(~0u << (hg_t & 31))"
	case ir.LanemaskGT:
		return "(~1u << (hg_t & 31))"
	case ir.Clock, ir.Clock64, ir.GlobalTimer, ir.GlobalTimerLo:
		return "(hg_clock += 64)"
	case ir.ClockHi, ir.GlobalTimerHi:
		return "(hg_clock >> 32)"
	case ir.TotalSmemSize:
		return fmt.Sprintf("(%d + hg->shared)", e.shared.Size)
	case ir.DynamicSmemSize:
		return "hg->shared"
	case ir.WarpSz:
		return "32"
	}
	panic("BUG: opencl: special register " + s.String())
}
