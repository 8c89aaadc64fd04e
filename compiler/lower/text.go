// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// text returns the instruction as PTX has it, with a mark in the place of each
// register, variable and special register (ir.Instr.Text): the last one that was
// made of it has them in the same order, results first. Those before it may have
// made operands of it: addresses of 64 bits. "" where it isn't so.
func (f *function) text(in *ptx.Instr, all []*ir.Instr) string {
	made := all[len(all)-1]
	w := marker{f: f, made: made, ok: true, from: map[ir.Reg]ir.Reg{}}
	for _, before := range all[:len(all)-1] {
		address := before.Op == ir.Cvt && before.Type == ir.U64 && before.Type2 == ir.U32 || before.Op == ir.Add && !before.Type.Float()
		if !address || before.Args[0].Kind != ir.RegOperand || before.Guard != ir.NoReg {
			return ""
		}
		w.from[before.Dst[0]] = w.root(before.Args[0].Reg)
	}
	w.out.WriteString(in.Opcode())
	for i := range in.Args {
		w.out.WriteString([]string{" ", ", "}[min(i, 1)])
		w.operand(&in.Args[i])
	}
	if !w.ok || w.dst < len(made.Dst) && !made.Mods.CarryOut {
		return ""
	}
	return w.out.String()
}

// marker writes operands with marks.
type marker struct {
	f    *function
	made *ir.Instr
	// from are registers that hold what another one does, as an address.
	from      map[ir.Reg]ir.Reg
	dst, arg  int // the next ones
	addresses int
	ok        bool
	out       strings.Builder
}

func (w *marker) root(r ir.Reg) ir.Reg {
	if root, ok := w.from[r]; ok {
		return root
	}
	return r
}

func (w *marker) list(elems []ptx.Operand) {
	for i := range elems {
		if i > 0 {
			w.out.WriteString(", ")
		}
		w.operand(&elems[i])
	}
}

func (w *marker) operand(o *ptx.Operand) {
	switch o.Kind {
	case ptx.Sink:
		if w.dst < len(w.made.Dst) && w.made.Dst[w.dst] == ir.NoReg {
			w.mark('d', &w.dst)
			return
		}
		w.out.WriteByte('_')
	case ptx.Vector:
		w.out.WriteByte('{')
		w.list(o.Elems)
		w.out.WriteByte('}')
	case ptx.Pair:
		w.operand(&o.Elems[0])
		w.out.WriteByte('|')
		w.operand(&o.Elems[1])
	case ptx.Address:
		if o.Elems != nil || o.Suffix != "" {
			w.ok = false
			return
		}
		w.out.WriteByte('[')
		if o.Name == "" {
			w.out.WriteString(o.Num.String())
		} else {
			w.name(o)
			w.out.WriteString("+" + strconv.FormatInt(w.offset(o), 10))
		}
		w.out.WriteByte(']')
	case ptx.Num:
		w.out.WriteString(o.Num.String())
		// Its place among the arguments, where it has one.
		if w.arg < len(w.made.Args) && w.made.Args[w.arg].Kind == ir.ImmOperand {
			w.arg++
		}
	case ptx.Name:
		w.ok = w.ok && !o.Neg
		w.name(o)
	}
}

// offset is what is added to the address that has just been written: what the
// instruction adds to its own, what PTX says for another one, nothing where that
// is in the register already.
func (w *marker) offset(o *ptx.Operand) int64 {
	w.addresses++
	if w.addresses == 1 {
		return w.made.Offset
	}
	if a := w.made.Args[w.arg-1]; a.Kind == ir.RegOperand && w.root(a.Reg) != a.Reg {
		return 0
	}
	return int64(o.Num.Bits)
}

// name writes the mark of the operand that o has become.
func (w *marker) name(o *ptx.Operand) {
	reg := ir.NoReg
	sym := w.f.lookup(o.Name)
	switch {
	case sym != nil && sym.reg != nil && (o.Suffix != "" || len(sym.reg.regs) == 1):
		reg, _ = w.f.register(&ptx.Operand{Kind: ptx.Name, Name: o.Name, Suffix: o.Suffix})
	case sym != nil && sym.reg != nil: // a vector by its name
		w.out.WriteByte('{')
		for i := range sym.reg.regs {
			if i > 0 {
				w.out.WriteString(", ")
			}
			w.register(sym.reg.regs[i])
		}
		w.out.WriteByte('}')
		return
	}
	if reg != ir.NoReg {
		w.register(reg)
		return
	}
	// A variable, a function or a special register: an argument.
	if w.arg < len(w.made.Args) && w.made.Args[w.arg].Kind > ir.ImmOperand {
		w.mark('a', &w.arg)
		return
	}
	w.ok = false
}

// register writes the mark of a register: the next result, or the next argument.
func (w *marker) register(r ir.Reg) {
	if w.dst < len(w.made.Dst) && w.made.Dst[w.dst] == r {
		w.mark('d', &w.dst)
		return
	}
	// Numbers that the text leaves out, the count of a barrier's threads.
	for w.arg < len(w.made.Args) && w.made.Args[w.arg].Kind == ir.ImmOperand {
		w.arg++
	}
	if w.arg < len(w.made.Args) && w.made.Args[w.arg].Kind == ir.RegOperand && w.root(w.made.Args[w.arg].Reg) == r {
		w.mark('a', &w.arg)
		return
	}
	w.ok = false
}

func (w *marker) mark(which byte, n *int) {
	w.out.WriteByte('$')
	w.out.WriteByte(which)
	w.out.WriteString(strconv.Itoa(*n))
	*n++
}
