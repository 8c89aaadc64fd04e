// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import "fmt"

// checkOperands checks the number of operands and what each is.
func (c *checker) checkOperands(in *Instr, info *opInfo) error {
	if !count(len(in.Dst), info.dst, info.minDst, info.many && len(info.dst) > 0) {
		return fmt.Errorf("%d results", len(in.Dst))
	}
	if !count(len(in.Args), info.args, info.minArgs, info.many) {
		return fmt.Errorf("%d arguments", len(in.Args))
	}
	for i, r := range in.Dst {
		if r == NoReg {
			continue
		}
		k := info.dst[min(i, len(info.dst)-1)]
		if !fits(c.regType(r), k, in, len(in.Dst)) {
			return fmt.Errorf("result %d has the type %s", i, typeWord(c.regType(r)))
		}
	}
	for i := range in.Args {
		k := info.args[min(i, len(info.args)-1)]
		if err := c.checkArg(in, &in.Args[i], k); err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return nil
}

// count tells whether n operands are as many as the kinds say.
func count(n int, kinds []kind, least int, many bool) bool {
	switch least {
	case 0:
		least = len(kinds)
	case none:
		least = 0
	}
	return n >= least && (n <= len(kinds) || many)
}

// fits tells whether a register of type t is of kind k. parts is how many
// registers share a whole.
func fits(t Type, k kind, in *Instr, parts int) bool {
	if t == NoType {
		return false
	}
	switch k {
	case kT:
		return t == in.Type.Bits()
	case kT2:
		return t == in.Type2.Bits()
	case kHalf:
		if in.Mods.Half == Wide {
			return t != Pred && t.Size() == 2*in.Type.Size()
		}
		return t == in.Type.Bits()
	case kPart:
		return t != Pred && parts > 1 && t.Size()*parts == in.Type.Size()
	case kMin:
		return t != Pred && t.Size() >= in.Type.Size()
	case kMin2:
		return t != Pred && t.Size() >= in.Type2.Size()
	case kPred:
		return t == Pred
	case k32:
		return t == B32
	case k64, kAddr, kMem:
		return t == B64
	case kAny:
		return t != Pred
	case kReg:
		return true
	}
	return false
}

func (c *checker) checkArg(in *Instr, a *Operand, k kind) error {
	if a.Kind != RegOperand && (a.Not || a.Reg != NoReg) {
		return fmt.Errorf("a register with what is none")
	}
	switch a.Kind {
	case RegOperand:
		t := c.regType(a.Reg)
		if a.Not && t != Pred {
			return fmt.Errorf("only predicates can be inverted")
		}
		if !fits(t, k, in, len(in.Args)) {
			return fmt.Errorf("a register of type %s", typeWord(t))
		}
	case ImmOperand:
		if bits := 8 * immSize(in, k); bits < 64 && a.Imm>>bits != 0 || k == kPred && a.Imm > 1 || k == kT && in.Type == Pred && a.Imm > 1 {
			return fmt.Errorf("%#x is out of range", a.Imm)
		}
	case VarOperand:
		return c.checkVarArg(in, a, k)
	case FuncOperand:
		if a.Func == nil || !c.funcs[a.Func] {
			return fmt.Errorf("a function of another module")
		}
		if in.Op != Mov || in.Type.Size() != 8 {
			return fmt.Errorf("a function's address; only a mov of 64 bits takes it")
		}
	case SregOperand:
		if a.Sreg >= numSregs {
			return fmt.Errorf("no special register")
		}
		if in.Op != Mov || in.Type.Size() != a.Sreg.Type().Size() {
			return fmt.Errorf("a special register; only a mov of its size reads it")
		}
	default:
		return fmt.Errorf("no operand")
	}
	return nil
}

// immSize returns how many bytes an immediate of kind k has.
func immSize(in *Instr, k kind) int {
	switch k {
	case kT, kHalf:
		if k == kHalf && in.Mods.Half == Wide {
			return 2 * in.Type.Size()
		}
		return in.Type.Size()
	case kMin:
		return in.Type.Size()
	case kT2, kMin2:
		return in.Type2.Size()
	case kPart:
		return in.Type.Size() / max(len(in.Args), 1)
	case kPred:
		return 1
	case k32:
		return 4
	}
	return 8
}

func (c *checker) checkVarArg(in *Instr, a *Operand, k kind) error {
	if a.Var == nil || !c.vars[a.Var] && !c.own[a.Var] {
		return fmt.Errorf("a variable of another function or module")
	}
	own := a.Var.Space
	switch {
	case in.Op == Mov:
		if size := in.Type.Size(); size != 8 && (size != 4 || own != Shared && own != Local) {
			return fmt.Errorf("an address of %d bytes", size)
		}
	case k == kMem && a != &in.Args[0]: // the source of CpAsync
		if own != Global {
			return fmt.Errorf("a variable in %s", own)
		}
	case k == kMem:
		if in.Mods.Space != own && (in.Mods.Space != Generic || own != Global && own != Const) {
			return fmt.Errorf("a variable in %s, an access to %s", own, in.Mods.Space)
		}
	case k == kAddr:
		if in.Op == Cvta && in.Mods.Space == own || own == Global || own == Const {
			return nil
		}
		return fmt.Errorf("a variable in %s where a generic address is read", own)
	default:
		return fmt.Errorf("a variable's address; mov takes it")
	}
	return nil
}
