// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var compareOps = map[ir.Cmp]string{
	ir.EQ: "==", ir.NE: "!=", ir.LT: "<", ir.LE: "<=", ir.GT: ">", ir.GE: ">=",
	ir.EQU: "==", ir.NEU: "!=", ir.LTU: "<", ir.LEU: "<=", ir.GTU: ">", ir.GEU: ">=",
}

// compare is the truth of a comparison of operands' bits as type t.
func (e *emitter) compare(in *ir.Instr, t ir.Type, a, b string) string {
	c := in.Mods.Cmp
	if !t.Float() {
		if t.Signed() {
			a, b = fmt.Sprintf("as_%s(%s)", stype(t), a), fmt.Sprintf("as_%s(%s)", stype(t), b)
		}
		return fmt.Sprintf("%s %s %s", a, compareOps[c], b)
	}
	a, b = e.number(in, t, a), e.number(in, t, b)
	switch {
	case c == ir.NUM:
		return fmt.Sprintf("!isunordered(%s, %s)", a, b)
	case c == ir.NAN:
		return fmt.Sprintf("isunordered(%s, %s)", a, b)
	case c == ir.NE:
		return fmt.Sprintf("!isunordered(%s, %s) && %s != %s", a, b, a, b)
	case c == ir.NEU || c < ir.EQU:
		return fmt.Sprintf("%s %s %s", a, compareOps[c], b)
	}
	return fmt.Sprintf("isunordered(%s, %s) || %s %s %s", a, b, a, compareOps[c], b)
}

// combine is a comparison and the instruction's third operand.
func (e *emitter) combine(in *ir.Instr, x string) string {
	if in.Mods.Bool == ir.NoBool {
		return x
	}
	c := e.bits(in.Args[2], ir.Pred)
	return fmt.Sprintf("(%s) %s %s", x, map[ir.BoolOp]string{ir.BoolAnd: "&&", ir.BoolOr: "||", ir.BoolXor: "^"}[in.Mods.Bool], paren(c))
}

// setp writes one or two predicates: the comparison and its inverse, or those of
// both halves.
func (e *emitter) setp(in *ir.Instr) {
	t := in.Type
	if half, two := halves[t]; two {
		for i, d := range in.Dst {
			l := e.lane(in, 16*i)
			e.line("bool c%d = %s;", i, e.combine(in, e.compare(in, half, l[0], l[1])))
			defer e.set(d, ir.Pred, fmt.Sprintf("c%d", i))
		}
		return
	}
	x := e.compare(in, t, e.bits(in.Args[0], t), e.bits(in.Args[1], t))
	if len(in.Dst) == 1 {
		e.set(in.Dst[0], ir.Pred, e.combine(in, x))
		return
	}
	e.line("bool c = %s;", x)
	e.line("bool p = %s, q = %s;", e.combine(in, "c"), e.combine(in, "!c"))
	e.set(in.Dst[0], ir.Pred, "p")
	e.set(in.Dst[1], ir.Pred, "q")
}

// setValue is set's value: all ones or 1.0 where the comparison holds.
func (e *emitter) setValue(in *ir.Instr) string {
	if half, two := halves[in.Type2]; two {
		one := map[ir.Type]string{ir.F16x2: "0x3c00u", ir.BF16x2: "0x3f80u"}[in.Type]
		if one == "" {
			one = "0xffffu"
		}
		lo, hi := e.lane(in, 0), e.lane(in, 16)
		return fmt.Sprintf("((%s) ? %s : 0u) | ((%s) ? %s : 0u) << 16",
			e.combine(in, e.compare(in, half, lo[0], lo[1])), one, e.combine(in, e.compare(in, half, hi[0], hi[1])), one)
	}
	t := in.Type2
	yes := literal(in.Type, ^uint64(0))
	if in.Type.Float() {
		f := formats[in.Type]
		yes = literal(in.Type, (uint64(1)<<(f.eb-1)-1)<<(f.p-1))
	}
	return e.narrow(in.Type, fmt.Sprintf("(%s) ? %s : %s",
		e.combine(in, e.compare(in, t, e.bits(in.Args[0], t), e.bits(in.Args[1], t))), yes, literal(in.Type, 0)))
}

// choice is selp, slct or testp.
func (e *emitter) choice(in *ir.Instr) string {
	t := in.Type
	switch in.Op {
	case ir.Selp:
		return fmt.Sprintf("(%s) ? %s : %s", e.bits(in.Args[2], ir.Pred), e.bits(in.Args[0], t), e.bits(in.Args[1], t))
	case ir.Slct:
		c := e.bits(in.Args[2], in.Type2)
		if in.Type2 == ir.F32 {
			c = e.number(in, ir.F32, c)
		} else {
			c = fmt.Sprintf("as_int(%s)", c)
		}
		return fmt.Sprintf("%s >= 0 ? %s : %s", c, e.bits(in.Args[0], t), e.bits(in.Args[1], t))
	}
	return fmt.Sprintf("hg_testp((ulong)%s, %s, %d)", e.bits(in.Args[0], t), formats[t], in.Mods.Test-ir.Finite)
}
