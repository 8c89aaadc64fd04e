// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
)

// checkOp checks what the table of operations can't say.
func (c *checker) checkOp(in *Instr) error {
	switch in.Op {
	case Add, Sub, Mad:
		if err := checkCarry(in); err != nil {
			return err
		}
		if in.Op == Mad {
			return checkHalf(in)
		}
	case Mul, Mul24, Mad24, Dp2a:
		return checkHalf(in)
	case Pack:
		return parts(len(in.Args), len(in.Dst))
	case Unpack:
		return parts(len(in.Dst), len(in.Args))
	case Lop3:
		return optional(in.Mods.Bool != NoBool, len(in.Args) == 4)
	case Set:
		return checkCompare(in, in.Type2)
	case Setp:
		return checkCompare(in, in.Type)
	case Cvt:
		return checkCvt(in)
	case Testp:
		if in.Mods.Test == NoTest {
			return fmt.Errorf("it tests nothing")
		}
	case Ld, St, Ldmatrix, Stmatrix:
		return checkVector(in)
	case Atom, Red:
		return checkAtom(in)
	case Redux:
		if !slices.Contains([]AtomOp{AtomAdd, AtomAnd, AtomOr, AtomXor, AtomMin, AtomMax}, in.Mods.Atom) {
			return fmt.Errorf("not a reduction")
		}
	case Cvta, CvtaTo, Isspacep:
		if in.Mods.Space == Generic {
			return fmt.Errorf("no state space")
		}
	case MbarInit, MbarInval, MbarArrive, MbarArriveDrop, MbarTest, MbarTry, MbarExpect:
		return c.checkMbarrier(in)
	case CpAsync:
		if b := in.Mods.Bytes; b != 4 && b != 8 && b != 16 {
			return fmt.Errorf("%d bytes", b)
		}
	case Bar:
		return c.checkBar(in)
	case Vote:
		return c.want(in.Dst[0], map[bool]Type{true: B32, false: Pred}[in.Mods.Vote == VoteBallot])
	case Match:
		return optional(in.Mods.MatchAll, len(in.Dst) == 2)
	case Alloca:
		if a := &in.Args[0]; a.Kind == RegOperand && c.regType(a.Reg).Size() < 4 {
			return fmt.Errorf("a size of fewer than 32 bits")
		}
	case Mma, WmmaMma, WmmaLoad, WmmaStore:
		return c.checkMatrix(in)
	case Call:
		return c.checkCall(in)
	}
	return nil
}

func parts(n, wholes int) error {
	if n != 2 && n != 4 && n != 8 || wholes != 1 {
		return fmt.Errorf("%d parts", n)
	}
	return nil
}

func optional(want, there bool) error {
	if want != there {
		return fmt.Errorf("an operand that its modifiers don't ask for, or that they ask for")
	}
	return nil
}

// want checks the type of a result that may be dropped.
func (c *checker) want(r Reg, t Type) error {
	if r != NoReg && c.regType(r) != t {
		return fmt.Errorf("a result of type %s", typeWord(c.regType(r)))
	}
	return nil
}

func integer(t Type) bool { return slices.Contains(tInt, t) }

func checkCarry(in *Instr) error {
	args := 2
	if in.Op == Mad {
		args = 3
	}
	if (in.Mods.CarryIn || in.Mods.CarryOut) && (!integer(in.Type) || in.Type.Size() < 4 || in.Mods.Half == Wide) {
		return fmt.Errorf("no carry with this type")
	}
	if err := optional(in.Mods.CarryOut, len(in.Dst) == 2); err != nil {
		return err
	}
	return optional(in.Mods.CarryIn, len(in.Args) == args+1)
}

func checkHalf(in *Instr) error {
	half := in.Mods.Half
	switch {
	case !integer(in.Type) && in.Type != B32:
		if half != NoHalf {
			return fmt.Errorf("no part of a product of floating point numbers")
		}
	case half == NoHalf:
		return fmt.Errorf("which part of the product")
	case half == Wide && (in.Type.Size() > 4 || in.Op != Mul && in.Op != Mad):
		return fmt.Errorf("a product of that width")
	}
	return nil
}

func checkCompare(in *Instr, t Type) error {
	cmp := in.Mods.Cmp
	switch {
	case cmp == NoCmp:
		return fmt.Errorf("no comparison")
	case t.Float():
	case cmp > GE:
		return fmt.Errorf("a comparison for floating point numbers")
	case cmp > NE && !integer(t):
		return fmt.Errorf("bits have no order")
	}
	return optional(in.Mods.Bool != NoBool, len(in.Args) == 3)
}

func checkCvt(in *Instr) error {
	if len(in.Args) == 2 && (in.Type2 != F32 || !slices.Contains([]Type{F16x2, BF16x2, E4M3x2, E5M2x2}, in.Type)) {
		return fmt.Errorf("two numbers only from f32 to a pair")
	}
	return nil
}

// vector returns how many elements a vector has, 0 where it can't have so many.
func (m *Mods) vector() int {
	switch m.Vec {
	case 0, 1:
		return 1
	case 2, 4, 8:
		return int(m.Vec)
	}
	return 0
}

func checkVector(in *Instr) error {
	n := in.Mods.vector()
	load := in.Op == Ld || in.Op == Ldmatrix
	switch {
	case n == 0 || in.Op != Ldmatrix && in.Op != Stmatrix && n*in.Type.Size() > 32:
		return fmt.Errorf("a vector of %d", in.Mods.Vec)
	case load && (len(in.Dst) != n || len(in.Args) != 1):
		return fmt.Errorf("%d results for a vector of %d", len(in.Dst), n)
	case !load && len(in.Args) != 1+n:
		return fmt.Errorf("%d values for a vector of %d", len(in.Args)-1, n)
	case !load && in.Mods.Space == Const:
		return fmt.Errorf("constants can't be stored to")
	}
	return nil
}

func checkAtom(in *Instr) error {
	n := in.Mods.vector()
	args := 1 + n
	if in.Mods.Atom == AtomCas {
		args = 3
	}
	bits := slices.Contains([]AtomOp{AtomAnd, AtomOr, AtomXor, AtomInc, AtomDec}, in.Mods.Atom)
	switch {
	case in.Mods.Atom == NoAtom:
		return fmt.Errorf("no operation")
	case n == 0 || n > 1 && in.Mods.Atom == AtomCas:
		return fmt.Errorf("a vector of %d", in.Mods.Vec)
	case len(in.Args) != args || in.Op == Atom && len(in.Dst) != n:
		return fmt.Errorf("%d results, %d arguments", len(in.Dst), len(in.Args))
	case bits && in.Type.Float():
		return fmt.Errorf("not on floating point numbers")
	case in.Mods.Space != Generic && in.Mods.Space != Global && in.Mods.Space != Shared:
		return fmt.Errorf("not in %s", in.Mods.Space)
	}
	return nil
}

func (c *checker) checkMbarrier(in *Instr) error {
	if in.Mods.Space != Generic && in.Mods.Space != Shared {
		return fmt.Errorf("not in %s", in.Mods.Space)
	}
	if in.Op != MbarTest && in.Op != MbarTry {
		return nil
	}
	want := B64
	if in.Mods.Parity {
		want = B32
	}
	if a := &in.Args[1]; a.Kind == RegOperand && c.regType(a.Reg) != want {
		return fmt.Errorf("a phase of type %s", typeWord(c.regType(a.Reg)))
	}
	return nil
}

func (c *checker) checkBar(in *Instr) error {
	switch in.Mods.Bar {
	case BarSync:
		if len(in.Dst) != 0 || len(in.Args) > 2 {
			return fmt.Errorf("operands of a reduction")
		}
	case BarArrive:
		if len(in.Dst) != 0 || len(in.Args) != 2 {
			return fmt.Errorf("it needs a barrier and a number of threads")
		}
	default:
		if len(in.Dst) != 1 || len(in.Args) != 3 {
			return fmt.Errorf("it needs a barrier, a number of threads (0: the block's) and a predicate")
		}
		return c.want(in.Dst[0], map[bool]Type{true: B32, false: Pred}[in.Mods.Bar == BarRedPopc])
	}
	return nil
}

func (c *checker) checkCall(in *Instr) error {
	if (in.Callee != nil) == (len(in.Args) == 1) {
		return fmt.Errorf("a function, or an address in a register")
	}
	for _, f := range slices.Concat([]*Func{in.Callee}, in.Callees) {
		if f == nil && in.Callee == nil && len(in.Args) == 1 {
			continue // the first of the list, where the call is indirect
		}
		if f == nil || !c.funcs[f] || f.Kernel {
			return fmt.Errorf("it can't be called")
		}
		if !sameSizes(in.CallArgs, f.Params) || !sameSizes(in.CallResults, f.Results) {
			return fmt.Errorf("not what @%s takes and returns", f.Name)
		}
	}
	for _, v := range slices.Concat(in.CallArgs, in.CallResults) {
		if v == nil || !c.own[v] || v.Space != Param {
			return fmt.Errorf("what a call passes is a variable of the caller in param")
		}
	}
	return nil
}

func sameSizes(vars []*Var, params []*Parameter) bool {
	return slices.EqualFunc(vars, params, func(v *Var, p *Parameter) bool {
		return v != nil && p != nil && v.Size == p.Size
	})
}
