// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// made are functions that are made for a module because there would be too many
// to write: one for each operation, type and space that is used.
type made struct {
	names []string
	text  map[string]string
}

func (m *made) add(name string, text func() string) string {
	if _, ok := m.text[name]; !ok {
		m.text[name] = "" // a function may need others: they come before it
		t := text()
		m.text[name] = t
		m.names = append(m.names, name)
	}
	return name
}

func (m *made) String() string {
	var out strings.Builder
	for _, n := range m.names {
		out.WriteString(m.text[n] + "\n")
	}
	return out.String()
}

// atomic writes atom or red, one after the other for the elements of a vector.
func (e *emitter) atomic(in *ir.Instr) {
	t := in.Type
	if t == ir.B128 {
		e.fail("atomics of 128 bits")
		return
	}
	each := max(1, int(in.Mods.Vec))
	operands := (len(in.Args) - 1) / each
	e.line("ulong a = %s;", e.address(in))
	call := func(i int) string {
		args := []string{"a"}
		if i > 0 {
			args[0] = fmt.Sprintf("a + %d", i*t.Size())
		}
		s := e.space(in)
		switch s {
		case ir.Shared:
			args = append(args, "hg_shared")
		case ir.Local:
			args = append(args, e.localPointer())
		case ir.Generic:
			args = append(args, "hg_shared", e.localPointer())
		}
		for _, o := range in.Args[1+i*operands : 1+(i+1)*operands] {
			args = append(args, e.bits(o, t))
		}
		return fmt.Sprintf("%s(%s)", e.atomicFunc(in, s, operands), strings.Join(args, ", "))
	}
	if in.Mods.Order >= ir.Acquire {
		e.line("%s;", fence)
	}
	for i := range each {
		if in.Op == ir.Red || in.Dst[i] == ir.NoReg {
			e.line("%s;", call(i))
		} else {
			e.line("%s v%d = %s;", ctype(t), i, call(i))
		}
	}
	if in.Mods.Order >= ir.Acquire {
		e.line("%s;", fence)
	}
	if in.Op == ir.Atom {
		for i, d := range in.Dst {
			e.set(d, t, fmt.Sprintf("v%d", i))
		}
	}
}

// spaceSuffix are the spaces' letters in names of functions.
var spaceSuffix = map[ir.Space]string{ir.Global: "global", ir.Const: "global", ir.Param: "global", ir.Shared: "shared", ir.Local: "local", ir.Generic: "generic"}

// atomicFunc makes the function of an atomic operation and returns its name.
func (e *emitter) atomicFunc(in *ir.Instr, s ir.Space, operands int) string {
	t := in.Type
	ftz := ""
	if in.Mods.FTZ {
		ftz = "_ftz"
	}
	name := fmt.Sprintf("hg_atom_%s_%s%s_%s", atomNames[in.Mods.Atom], t, ftz, spaceSuffix[s])
	return e.made.add(name, func() string {
		params, values := "", ""
		for i := range operands {
			params += fmt.Sprintf(", %s %c", ctype(t), 'v'+i)
			values += fmt.Sprintf(", %c", 'v'+i)
		}
		head := fmt.Sprintf("static %s %s(ulong a", ctype(t), name)
		switch s {
		case ir.Generic:
			global, shared, local := e.atomicFunc(in, ir.Global, operands), e.atomicFunc(in, ir.Shared, operands), e.atomicFunc(in, ir.Local, operands)
			return fmt.Sprintf("%s, __local uchar *s, __private uchar *l%s)\n{\n\tuint w = (uint)(a >> 60);\n\n"+
				"\tif (w == 1)\n\t\treturn %s(a, s%s);\n\tif (w == 2)\n\t\treturn %s(a, l%s);\n\treturn %s(a%s);\n}\n",
				head, params, shared, values, local, values, global, values)
		case ir.Local:
			return fmt.Sprintf("%s, __private uchar *l%s)\n{\n\t__private hg_b%d *p = (__private hg_b%d *)(l + (uint)a);\n\t%s old = *p;\n\n\t*p = %s;\n\treturn old;\n}\n",
				head, params, 8*t.Size(), 8*t.Size(), ctype(t), e.modify(in, t))
		case ir.Shared:
			return fmt.Sprintf("%s, __local uchar *s%s)\n{\n%s}\n", head, params, e.atomicBody(in, "__local", "(s + (uint)a)"))
		}
		return fmt.Sprintf("%s%s)\n{\n%s}\n", head, params, e.atomicBody(in, "__global", "a"))
	})
}

// atomNames are PTX's words.
var atomNames = map[ir.AtomOp]string{
	ir.AtomAdd: "add", ir.AtomAnd: "and", ir.AtomOr: "or", ir.AtomXor: "xor", ir.AtomExch: "exch",
	ir.AtomCas: "cas", ir.AtomMin: "min", ir.AtomMax: "max", ir.AtomInc: "inc", ir.AtomDec: "dec",
}

// native are the operations that OpenCL has on integers of 32 and 64 bits.
var native = map[ir.AtomOp]string{
	ir.AtomAdd: "add", ir.AtomAnd: "and", ir.AtomOr: "or", ir.AtomXor: "xor", ir.AtomExch: "xchg", ir.AtomCas: "cmpxchg", ir.AtomMin: "min", ir.AtomMax: "max",
}

// atomicBody is what a function does on shared or global memory: OpenCL's own
// operation, or a loop around compare and exchange.
func (e *emitter) atomicBody(in *ir.Instr, space, a string) string {
	t := in.Type
	prefix := map[int]string{4: "atomic_", 8: "atom_"}[t.Size()]
	name, ok := native[in.Mods.Atom]
	c := ctype(t)
	if ok && prefix != "" && (!t.Float() || in.Mods.Atom == ir.AtomExch || in.Mods.Atom == ir.AtomCas) {
		if in.Mods.Atom == ir.AtomCas {
			return fmt.Sprintf("\treturn %s%s((volatile %s %s *)%s, v, w);\n", prefix, name, space, c, a)
		}
		if t.Signed() && (in.Mods.Atom == ir.AtomMin || in.Mods.Atom == ir.AtomMax) {
			return fmt.Sprintf("\treturn as_%s(%s%s((volatile %s %s *)%s, as_%s(v)));\n", c, prefix, name, space, stype(t), a, stype(t))
		}
		return fmt.Sprintf("\treturn %s%s((volatile %s %s *)%s, v);\n", prefix, name, space, c, a)
	}
	if t.Size() == 2 {
		return fmt.Sprintf("\tvolatile %s uint *p = (volatile %s uint *)%s;\n", space, space, strings.Replace(a, "a", "(a & ~3UL)", 1)) +
			fmt.Sprintf("\tuint n = (uint)(a & 2) * 8, had = *p, seen;\n\n\tfor (;;) {\n\t\tushort old = (ushort)(had >> n);\n"+
				"\t\tseen = atomic_cmpxchg(p, had, (had & ~(0xffffu << n)) | (uint)(ushort)(%s) << n);\n"+
				"\t\tif (seen == had)\n\t\t\treturn old;\n\t\thad = seen;\n\t}\n", e.modify(in, t))
	}
	return fmt.Sprintf("\tvolatile %s %s *p = (volatile %s %s *)%s;\n\t%s old = *p, seen;\n\n\tfor (;;) {\n"+
		"\t\tseen = %scmpxchg(p, old, %s);\n\t\tif (seen == old)\n\t\t\treturn old;\n\t\told = seen;\n\t}\n",
		space, c, space, c, a, c, prefix, e.modify(in, t))
}

// modify is the new value where old was and v, w are the operands.
func (e *emitter) modify(in *ir.Instr, t ir.Type) string {
	s := func(x string) string {
		if t.Signed() {
			return fmt.Sprintf("as_%s(%s)", stype(t), x)
		}
		return x
	}
	switch op := in.Mods.Atom; op {
	case ir.AtomAnd:
		return "old & v"
	case ir.AtomOr:
		return "old | v"
	case ir.AtomXor:
		return "old ^ v"
	case ir.AtomExch:
		return "v"
	case ir.AtomCas:
		return "old == v ? w : old"
	case ir.AtomInc:
		return "old >= v ? 0 : old + 1"
	case ir.AtomDec:
		return "old == 0 || old > v ? v : old - 1"
	case ir.AtomAdd, ir.AtomMin, ir.AtomMax:
		if !t.Float() && op == ir.AtomAdd {
			return "old + v"
		}
		if !t.Float() {
			return fmt.Sprintf("(%s)%s(%s, %s)", ctype(t), atomNames[op], s("old"), s("v"))
		}
		sum := ir.Instr{Op: map[ir.AtomOp]ir.Op{ir.AtomAdd: ir.Add, ir.AtomMin: ir.Min, ir.AtomMax: ir.Max}[op], Type: t, Mods: ir.Mods{FTZ: in.Mods.FTZ}}
		if half, two := halves[t]; two {
			lo, _ := e.scalarFloat(&sum, half, []string{"(ushort)old", "(ushort)v"})
			hi, _ := e.scalarFloat(&sum, half, []string{"(ushort)(old >> 16)", "(ushort)(v >> 16)"})
			return fmt.Sprintf("(uint)%s | (uint)%s << 16", paren(lo), paren(hi))
		}
		x, _ := e.scalarFloat(&sum, t, []string{"old", "v"})
		return x
	}
	e.fail("no atomic operation")
	return "old"
}
