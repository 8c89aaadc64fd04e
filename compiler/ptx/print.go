// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// String writes the module as PTX. What is parsed from it prints the same.
func (m *Module) String() string {
	var w printer
	w.f(".version %d.%d\n.target %s\n.address_size %d\n", m.Version[0], m.Version[1], strings.Join(m.Targets, ", "), m.AddressSize)
	for _, f := range m.Files {
		w.f(".file %d \"%s\"\n", f.Number, f.Name)
	}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *Var:
			w.variable(d)
		case *Func:
			w.s("\n")
			w.function(d)
		case *Alias:
			w.f(".alias %s, %s;\n", d.Name, d.Of)
		case *Pragma:
			w.pragma(d.Words)
		}
	}
	return w.b.String()
}

// String writes the instruction as PTX, with its guard and without what may
// follow on its line.
func (i *Instr) String() string {
	var w printer
	w.instr(i)
	return w.b.String()
}

type printer struct {
	b     strings.Builder
	depth int
}

func (w *printer) s(s string)           { w.b.WriteString(s) }
func (w *printer) f(f string, a ...any) { fmt.Fprintf(&w.b, f, a...) }
func (w *printer) line(parts ...string) {
	for range w.depth {
		w.s("\t")
	}
	for _, p := range parts {
		w.s(p)
	}
	w.s("\n")
}

// separated calls each for 0 to n-1 with commas between.
func (w *printer) separated(n int, each func(int)) {
	for i := range n {
		if i > 0 {
			w.s(", ")
		}
		each(i)
	}
}

// String returns the directives as they stand before a declaration, each with a
// space behind it.
func (l Linkage) String() string {
	var text strings.Builder
	for i, word := range []string{".visible ", ".extern ", ".weak ", ".common "} {
		if l&(1<<i) != 0 {
			text.WriteString(word)
		}
	}
	return text.String()
}

// variable writes a declaration, without an indent.
func (w *printer) variable(v *Var) {
	w.s(v.Linkage.String())
	w.declarator(v)
	switch {
	case v.Sampler != nil:
		w.s(" = {" + strings.Join(v.Sampler, ", ") + "}")
	case v.Init != nil:
		w.s(" = ")
		w.init(v.Init)
	}
	w.s(";\n")
}

func (w *printer) declarator(v *Var) {
	w.s("." + v.Space)
	if len(v.Attributes) > 0 {
		w.s(" .attribute(." + strings.Join(v.Attributes, ", .") + ")")
	}
	if v.Align != 0 {
		w.f(" .align %d", v.Align)
	}
	if v.Vec != 0 {
		w.f(" .v%d", v.Vec)
	}
	w.s(" ." + v.Type)
	if v.Ptr {
		w.s(" .ptr")
		if v.PtrSpace != "" {
			w.s(" ." + v.PtrSpace)
		}
		if v.PtrAlign != 0 {
			w.f(" .align %d", v.PtrAlign)
		}
	}
	if v.Name == "" {
		return
	}
	w.s(" " + v.Name)
	for _, d := range v.Dims {
		if d < 0 {
			w.s("[]")
		} else {
			w.s("[" + strconv.FormatInt(d, 10) + "]")
		}
	}
}

func (w *printer) init(i *Init) {
	switch {
	case i.List != nil:
		w.s("{")
		w.separated(len(i.List), func(n int) { w.init(&i.List[n]) })
		w.s("}")
	case i.Sym != nil:
		s := i.Sym
		if s.Mask != 0 {
			w.f("0x%x(", s.Mask)
		}
		if s.Generic {
			w.s("generic(" + s.Name + ")")
		} else {
			w.s(s.Name)
		}
		w.addend(s.Addend)
		if s.Mask != 0 {
			w.s(")")
		}
	default:
		w.s(i.Num.String())
	}
}

func (w *printer) addend(n int64) {
	if n != 0 {
		w.s("+" + Number{Bits: uint64(n)}.String())
	}
}

func (w *printer) params(list []*Var) {
	w.s("(")
	w.separated(len(list), func(i int) { w.declarator(list[i]) })
	w.s(")")
}

func (w *printer) function(f *Func) {
	w.s(f.Linkage.String())
	if f.Kernel {
		w.s(".entry ")
	} else {
		w.s(".func ")
	}
	if f.Results != nil {
		w.params(f.Results)
		w.s(" ")
	}
	w.s(f.Name)
	if f.Params != nil {
		w.params(f.Params)
	}
	w.directives(f.Directives)
	if f.Body == nil {
		w.s(";\n")
		return
	}
	w.s("\n")
	w.scope(f.Body)
}

func (w *printer) directives(list []Directive) {
	for _, d := range list {
		w.s(" ." + d.Name)
		w.separated(len(d.Values), func(i int) {
			if i == 0 {
				w.s(" ")
			}
			w.s(strconv.FormatInt(d.Values[i], 10))
		})
		if d.Words != nil {
			w.s(" " + quote(d.Words) + ";")
		}
	}
}

func quote(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }

func (w *printer) pragma(words []string) { w.line(".pragma ", quote(words), ";") }

func (w *printer) scope(s *Scope) {
	w.line("{")
	w.depth++
	for _, st := range s.Stmts {
		w.stmt(st)
	}
	w.depth--
	w.line("}")
}

func (w *printer) indent() {
	for range w.depth {
		w.s("\t")
	}
}

func (w *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Instr:
		w.indent()
		w.instr(s)
		w.s(";\n")
	case *Label:
		w.s(s.Name + ":\n")
	case *Scope:
		w.scope(s)
	case *Regs:
		w.indent()
		w.regs(s)
	case *Var:
		w.indent()
		w.variable(s)
	case *Prototype:
		w.indent()
		w.s(s.Name + ": .callprototype ")
		if s.Results != nil {
			w.params(s.Results)
			w.s(" ")
		}
		w.s("_")
		if s.Params != nil {
			w.s(" ")
			w.params(s.Params)
		}
		w.directives(s.Directives)
		w.s(";\n")
	case *TargetList:
		word := ": .branchtargets "
		if s.Calls {
			word = ": .calltargets "
		}
		w.line(s.Name, word, strings.Join(s.Names, ", "), ";")
	case *Loc:
		w.line(fmt.Sprintf(".loc %d %d %d", s.File, s.Line, s.Col))
	case *Pragma:
		w.pragma(s.Words)
	}
}

func (w *printer) regs(r *Regs) {
	w.s(".reg ")
	if r.Vec != 0 {
		w.f(".v%d ", r.Vec)
	}
	w.s("." + r.Type + " ")
	w.separated(len(r.Names), func(i int) {
		n := r.Names[i]
		w.s(n.Name)
		if n.Count != 0 {
			w.f("<%d>", max(n.Count, 0))
		}
	})
	w.s(";\n")
}

func (w *printer) instr(i *Instr) {
	if i.Guard != "" {
		w.s("@")
		if i.GuardNot {
			w.s("!")
		}
		w.s(i.Guard + " ")
	}
	w.s(i.Op)
	for _, m := range i.Mods {
		w.s("." + m)
	}
	switch {
	case i.Call != nil:
		w.call(i.Call)
	case len(i.Args) > 0:
		w.s(" ")
		w.operands(i.Args)
	}
}

func (w *printer) call(c *Call) {
	w.s(" ")
	if c.Results != nil {
		w.s("(")
		w.operands(c.Results)
		w.s("), ")
	}
	w.operand(&c.Callee)
	if c.Args != nil {
		w.s(", (")
		w.operands(c.Args)
		w.s(")")
	}
	if c.Proto != "" {
		w.s(", " + c.Proto)
	}
}

func (w *printer) operands(list []Operand) {
	w.separated(len(list), func(i int) { w.operand(&list[i]) })
}

func (w *printer) operand(o *Operand) {
	switch o.Kind {
	case Name:
		if o.Not {
			w.s("!")
		}
		if o.Neg {
			w.s("-")
		}
		w.s(o.Name)
		if o.Suffix != "" {
			w.s("." + o.Suffix)
		}
		w.addend(int64(o.Num.Bits))
	case Num:
		w.s(o.Num.String())
	case Vector:
		w.s("{")
		w.operands(o.Elems)
		w.s("}")
	case Address:
		w.s("[")
		if o.Name != "" {
			w.s(o.Name)
			w.addend(int64(o.Num.Bits))
		} else {
			w.s(o.Num.String())
		}
		if o.Elems != nil {
			w.s(", ")
			w.operands(o.Elems)
		}
		w.s("]")
		if o.Suffix != "" {
			w.s("." + o.Suffix)
		}
	case Pair:
		w.operand(&o.Elems[0])
		w.s("|")
		w.operand(&o.Elems[1])
	case Sink:
		w.s("_")
	}
}
