// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// address is where an instruction accesses memory, as a 64-bit expression.
func (e *emitter) address(in *ir.Instr) string {
	o := in.Args[0]
	if o.Kind == ir.VarOperand {
		o.Imm += uint64(in.Offset)
		return e.bits(o, ir.B64)
	}
	x := e.bits(o, ir.B64)
	if in.Offset != 0 {
		x = fmt.Sprintf("(%s + %s)", x, literal(ir.B64, uint64(in.Offset)))
	}
	return x
}

// space is where an instruction's memory is. A variable's name says it, or the
// analysis of pointers: shared and local addresses then lose their tags, which are
// above the bits that place takes.
func (e *emitter) space(in *ir.Instr) ir.Space {
	if o := in.Args[0]; o.Kind == ir.VarOperand {
		if _, ok := e.slots[o.Var]; ok {
			return ir.Local
		}
		if in.Mods.Space == ir.Generic {
			return o.Var.Space
		}
	}
	if in.Mods.Space != ir.Generic {
		return in.Mods.Space
	}
	switch set := e.pointers.Accesses(in); {
	case set.Within(passes.Spaces(ir.Global, ir.Const)):
		return ir.Global
	case set.Within(passes.Spaces(ir.Shared)):
		return ir.Shared
	case set.Within(passes.Spaces(ir.Local)):
		return ir.Local
	}
	return ir.Generic
}

// place is memory of type t at an address in a space that is not generic. The
// types of the pointers may alias all others, as PTX's memory is bytes.
func (e *emitter) place(s ir.Space, t ir.Type, a string, volatile bool) string {
	q := ""
	if volatile {
		q = "volatile "
	}
	c := fmt.Sprintf("hg_b%d", 8*t.Size())
	switch s {
	case ir.Shared:
		return fmt.Sprintf("*(%s__local %s *)(hg_shared + (uint)(%s))", q, c, a)
	case ir.Local:
		return fmt.Sprintf("*(%s__private %s *)(hg_local + (uint)(%s))", q, c, a)
	case ir.Param:
		return fmt.Sprintf("*(%s__global %s *)(hg_params + %s)", q, c, a)
	}
	return fmt.Sprintf("*(%s__global %s *)(%s)", q, c, a)
}

// strong tells of accesses that other threads are to see in their order.
func strong(m *ir.Mods) bool { return m.Volatile || m.Order != ir.Weak }

// load reads one value of t, offset bytes behind the address in variable a.
func (e *emitter) load(s ir.Space, t ir.Type, offset int, volatile bool) string {
	a := "a"
	if offset != 0 {
		a = fmt.Sprintf("a + %d", offset)
	}
	if t.Size() == 16 {
		return fmt.Sprintf("(ulong2)(%s, %s)", e.load(s, ir.B64, offset, volatile), e.load(s, ir.B64, offset+8, volatile))
	}
	if s != ir.Generic {
		return e.place(s, t, a, volatile)
	}
	return fmt.Sprintf("hg_ld_b%d(%s, hg_shared, %s, hg_params)", 8*t.Size(), a, e.localPointer())
}

// store writes one value, as load reads it.
func (e *emitter) store(s ir.Space, t ir.Type, offset int, volatile bool, x string) {
	a := "a"
	if offset != 0 {
		a = fmt.Sprintf("a + %d", offset)
	}
	switch {
	case t.Size() == 16:
		e.store(s, ir.B64, offset, volatile, x+".x")
		e.store(s, ir.B64, offset+8, volatile, x+".y")
	case s != ir.Generic:
		e.line("%s = %s;", e.place(s, t, a, volatile), x)
	default:
		e.line("hg_st_b%d(%s, hg_shared, %s, %s);", 8*t.Size(), a, e.localPointer(), x)
	}
}

// localPointer is the thread's local memory for helpers that take a generic address.
func (e *emitter) localPointer() string {
	e.usesLocal = true
	return "hg_local"
}

// ld loads all values before it writes the first register, which may be that of
// the address.
func (e *emitter) ld(in *ir.Instr) {
	s, volatile := e.space(in), strong(&in.Mods)
	e.line("ulong a = %s;", e.address(in))
	if len(in.Dst) == 1 {
		e.set(in.Dst[0], in.Type, e.load(s, in.Type, 0, volatile))
	} else {
		for i := range in.Dst {
			e.line("%s v%d = %s;", ctype(in.Type), i, e.load(s, in.Type, i*in.Type.Size(), volatile))
		}
		for i, d := range in.Dst {
			e.set(d, in.Type, fmt.Sprintf("v%d", i))
		}
	}
	if in.Mods.Order >= ir.Acquire {
		e.line("%s;", fence)
	}
}

// fence orders the accesses of a thread.
const fence = "mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"

func (e *emitter) st(in *ir.Instr) {
	if in.Mods.Order >= ir.Acquire {
		e.line("%s;", fence)
	}
	e.line("ulong a = %s;", e.address(in))
	for i, o := range in.Args[1:] {
		e.store(e.space(in), in.Type, i*in.Type.Size(), strong(&in.Mods), e.bits(o, in.Type))
	}
}

// windows are the spaces' tags in generic addresses.
var windows = map[ir.Space]uint64{ir.Shared: ir.SharedWindow, ir.Local: ir.LocalWindow, ir.Param: ir.ParamWindow}

// generic is the value of cvta, cvta_to or isspacep.
func (e *emitter) generic(in *ir.Instr) string {
	s, a := in.Mods.Space, e.bits(in.Args[0], ir.B64)
	if o := in.Args[0]; s == ir.Generic && o.Kind == ir.VarOperand {
		s = o.Var.Space
	}
	w := windows[s]
	switch in.Op {
	case ir.Cvta:
		if w == 0 {
			return a
		}
		return fmt.Sprintf("%s | %s", a, literal(ir.B64, w))
	case ir.CvtaTo:
		if w == 0 {
			return a
		}
		return fmt.Sprintf("%s & %s", a, literal(ir.B64, ^ir.WindowMask))
	}
	return fmt.Sprintf("(%s & %s) == %s", a, literal(ir.B64, ir.WindowMask), literal(ir.B64, w))
}

// cpAsync copies from global to shared memory at once, and fills up with zeroes.
func (e *emitter) cpAsync(in *ir.Instr) {
	n := int(in.Mods.Bytes)
	e.line("ulong a = %s, g = %s;", e.address(in), e.bits(in.Args[1], ir.B64))
	have := fmt.Sprintf("%du", n)
	if len(in.Args) > 2 {
		have = e.bits(in.Args[2], ir.B32)
	}
	e.line("for (uint i = 0, n = %s; i < %d; i++)", have, n)
	e.line("\t%s = i < n ? %s : 0;", e.place(ir.Shared, ir.B8, "a + i", false), e.place(ir.Global, ir.B8, "g + i", false))
}
