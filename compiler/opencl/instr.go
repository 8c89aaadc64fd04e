// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// instr writes an instruction that each thread executes for itself. What threads
// do together is in threads.go, what ends a block in flow.go.
func (e *emitter) instr(in *ir.Instr) {
	before := e.err == nil
	e.depth++
	text := e.capture(func() { e.effect(in) })
	e.depth--
	if before && e.err != nil {
		e.err.Pos = in.Pos
	}
	if text == "" {
		return
	}
	guard := ""
	if in.Guard != ir.NoReg {
		guard = fmt.Sprintf("if (%s)", e.guard(in))
	}
	if strings.Count(text, "\n") == 1 && !strings.Contains(text, " a = ") {
		if guard != "" {
			guard += " "
		}
		e.line("%s%s", guard, strings.TrimSpace(text))
		return
	}
	e.open("%s", guard)
	e.out.WriteString(text)
	e.close()
}

// guard is the truth of an instruction's guard.
func (e *emitter) guard(in *ir.Instr) string {
	if in.GuardNot {
		return "!" + reg(in.Guard)
	}
	return reg(in.Guard)
}

// effect writes an instruction without its guard. It may declare variables.
func (e *emitter) effect(in *ir.Instr) {
	switch in.Op {
	case ir.NoOp, ir.Prefetch, ir.CpAsyncCommit, ir.CpAsyncWait, ir.Nanosleep, ir.MbarExpect, ir.Gather:
	case ir.Poll:
		e.set(in.Dst[0], ir.Pred, e.poll())
	case ir.Mov:
		e.set(in.Dst[0], in.Type, e.bits(in.Args[0], in.Type))
	case ir.Pack:
		e.pack(in)
	case ir.Unpack:
		e.unpack(in)
	case ir.Set:
		e.set(in.Dst[0], in.Type, e.setValue(in))
	case ir.Setp:
		e.setp(in)
	case ir.Selp, ir.Slct:
		e.set(in.Dst[0], in.Type, e.choice(in))
	case ir.Testp:
		e.set(in.Dst[0], ir.Pred, e.choice(in))
	case ir.Cvt:
		e.set(in.Dst[0], in.Type, e.convert(in))
	case ir.Ld:
		e.ld(in)
	case ir.St:
		e.st(in)
	case ir.Cvta, ir.CvtaTo:
		e.set(in.Dst[0], ir.B64, e.generic(in))
	case ir.Isspacep:
		e.set(in.Dst[0], ir.Pred, e.generic(in))
	case ir.Atom, ir.Red:
		e.atomic(in)
	case ir.Fence:
		e.line("%s;", fence)
	case ir.CpAsync:
		e.cpAsync(in)
	case ir.MbarInit, ir.MbarInval, ir.MbarArrive, ir.MbarArriveDrop, ir.MbarTest, ir.MbarTry, ir.MbarPending:
		e.mbarrier(in)
	case ir.WmmaLoad, ir.WmmaStore:
		e.wmmaMemory(in)
	case ir.Printf:
		e.line("int v = hg_printf(%s, %s, hg_shared, %s, hg_params);", e.bits(in.Args[0], ir.B64), e.bits(in.Args[1], ir.B64), e.localPointer())
		if len(in.Dst) > 0 {
			e.set(in.Dst[0], ir.B32, "as_uint(v)")
		}
	case ir.Assertfail:
		e.trap(trapAssert)
	case ir.Lop3:
		e.lop3(in)
	default:
		e.arithmetic(in)
	}
}

// arithmetic writes an operation that has one result of its own type.
func (e *emitter) arithmetic(in *ir.Instr) {
	if in.Mods.CarryIn || in.Mods.CarryOut {
		e.carried(in)
		return
	}
	var x string
	var ok bool
	if in.Type.Float() {
		x, ok = e.floating(in)
	} else {
		x, ok = e.integer(in)
	}
	if !ok {
		e.fail("%s.%s has no form in OpenCL C", in.Op, in.Type)
		return
	}
	e.set(in.Dst[0], e.resultType(in), x)
}

// resultType is the type of an operation's result where it is not the operation's.
func (e *emitter) resultType(in *ir.Instr) ir.Type {
	switch in.Op {
	case ir.Popc, ir.Clz, ir.Bfind, ir.Prmt, ir.Dp4a, ir.Dp2a, ir.CvtPack, ir.Fns:
		return ir.B32
	}
	if in.Mods.Half == ir.Wide {
		return map[ir.Type]ir.Type{ir.U16: ir.U32, ir.S16: ir.S32, ir.U32: ir.U64, ir.S32: ir.S64}[in.Type]
	}
	return in.Type
}

// lop3 has a predicate as its second result: whether the first is not zero,
// combined with the fourth operand.
func (e *emitter) lop3(in *ir.Instr) {
	x, _ := e.integer(in)
	if len(in.Dst) < 2 {
		e.set(in.Dst[0], in.Type, x)
		return
	}
	e.line("uint v = %s;", x)
	p := "v != 0"
	if len(in.Args) > 3 {
		p = fmt.Sprintf("(v != 0) %s %s", map[ir.BoolOp]string{ir.BoolAnd: "&&", ir.BoolOr: "||", ir.BoolXor: "^"}[in.Mods.Bool], paren(e.bits(in.Args[3], ir.Pred)))
	}
	e.line("bool p = %s;", p)
	e.set(in.Dst[0], in.Type, "v")
	e.set(in.Dst[1], ir.Pred, "p")
}

// pack puts parts together, the first in the lowest bits.
func (e *emitter) pack(in *ir.Instr) {
	n := len(in.Args)
	part := partType(in.Type, n)
	if in.Type == ir.B128 {
		if n == 2 {
			e.set(in.Dst[0], in.Type, fmt.Sprintf("(ulong2)(%s, %s)", e.bits(in.Args[0], part), e.bits(in.Args[1], part)))
			return
		}
		a := make([]string, n)
		for i, o := range in.Args {
			a[i] = "(ulong)" + e.bits(o, part)
		}
		e.set(in.Dst[0], in.Type, fmt.Sprintf("(ulong2)(%s | %s << 32, %s | %s << 32)", a[0], a[1], a[2], a[3]))
		return
	}
	var terms []string
	for i, o := range in.Args {
		x := fmt.Sprintf("(%s)%s", ctype(in.Type), paren(e.bits(o, part)))
		if i > 0 {
			x += fmt.Sprintf(" << %d", i*8*part.Size())
		}
		terms = append(terms, x)
	}
	e.set(in.Dst[0], in.Type, e.narrow(in.Type, strings.Join(terms, " | ")))
}

// unpack takes a value apart; its register may be one of the results.
func (e *emitter) unpack(in *ir.Instr) {
	part := partType(in.Type, len(in.Dst))
	e.line("%s v = %s;", ctype(in.Type), e.bits(in.Args[0], in.Type))
	for i, d := range in.Dst {
		bit := i * 8 * part.Size()
		x := "v"
		if in.Type == ir.B128 {
			x = []string{"v.x", "v.y"}[bit/64]
			bit %= 64
		}
		if bit > 0 {
			x = fmt.Sprintf("(%s >> %d)", x, bit)
		}
		e.set(d, part, fmt.Sprintf("(%s)%s", ctype(part), x))
	}
}

func partType(whole ir.Type, n int) ir.Type {
	return map[int]ir.Type{1: ir.B8, 2: ir.B16, 4: ir.B32, 8: ir.B64}[whole.Size()/n]
}
