// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import "fmt"

// Fragment returns how many registers of each thread hold a matrix of an Mma or
// WmmaMma, of elements of type t, and the registers' type; 0: there is no such
// matrix. PTX ISA 8.8, "Matrix Fragments" of each instruction, has how the
// elements lie.
func Fragment(op Op, s Shape, part Frag, t Type) (int, Type) {
	rows, cols := int(s.M), int(s.N)
	switch part {
	case FragA:
		cols = int(s.K)
	case FragB:
		rows = int(s.K)
	}
	reg, bits := B32, 8*t.Size()
	switch t {
	case F64:
		reg = B64
	case E4M3x2, E5M2x2:
		bits = 8
	case S4, U4:
		bits = 4
	case B1:
		bits = 1
	case NoType, Pred:
		return 0, NoType
	}
	elements := rows * cols / WarpSize
	factors := part == FragA || part == FragB
	switch {
	case op == Mma && s == (Shape{8, 8, 4}) && t != F64:
		// Four products at once, each of eight threads.
		elements *= 4
	case op != Mma && t == F16 && factors:
		// Each element is in two threads, whatever the shape.
		elements = 16
	}
	n := elements * bits / (8 * reg.Size())
	if t == S32 || t == F32 || t == TF32 || t == F64 {
		n = elements
	}
	return n, reg
}

func (c *checker) checkMatrix(in *Instr) error {
	s := in.Mods.Shape
	if s.M == 0 || s.N == 0 || s.K == 0 {
		return fmt.Errorf("no shape")
	}
	switch in.Op {
	case WmmaLoad:
		if len(in.Args) != 2 {
			return fmt.Errorf("%d arguments", len(in.Args))
		}
		return c.checkFragment(in, in.Mods.Frag, in.Type, regOperands(in.Dst))
	case WmmaStore:
		return c.checkFragment(in, in.Mods.Frag, in.Type, in.Args[2:])
	}
	if err := c.checkFragment(in, FragD, in.Mods.Elems[0], regOperands(in.Dst)); err != nil {
		return err
	}
	args := in.Args
	for i, part := range []Frag{FragA, FragB, FragC} {
		n, _ := Fragment(in.Op, s, part, in.Mods.Elems[i+1])
		if n > len(args) {
			return fmt.Errorf("%d arguments", len(in.Args))
		}
		if err := c.checkFragment(in, part, in.Mods.Elems[i+1], args[:n]); err != nil {
			return err
		}
		args = args[n:]
	}
	if len(args) > 0 {
		return fmt.Errorf("%d arguments", len(in.Args))
	}
	return nil
}

func regOperands(regs []Reg) []Operand {
	operands := make([]Operand, len(regs))
	for i, r := range regs {
		operands[i] = R(r)
	}
	return operands
}

func (c *checker) checkFragment(in *Instr, part Frag, t Type, regs []Operand) error {
	if t >= numTypes || part < FragA || part > FragD {
		return fmt.Errorf("no matrix")
	}
	op := in.Op
	n, reg := Fragment(op, in.Mods.Shape, part, t)
	if n == 0 || n != len(regs) {
		return fmt.Errorf("%d registers for a matrix of %d", len(regs), n)
	}
	for _, r := range regs {
		if r.Kind == RegOperand && r.Reg != NoReg && c.regType(r.Reg) != reg {
			return fmt.Errorf("a register of type %s in a matrix", typeWord(c.regType(r.Reg)))
		}
	}
	return nil
}
