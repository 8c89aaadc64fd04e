// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

// scope reads { statements }.
func (p *parser) scope() *Scope {
	p.enter()
	defer p.leave()
	s := &Scope{Pos: p.pos()}
	p.expect("{")
	for !p.tok.is("}") {
		if p.tok.kind == tEOF {
			p.posf(s.Pos, "the block has no end")
			return s
		}
		p.stmt(s)
	}
	p.advance()
	return s
}

func (p *parser) stmt(s *Scope) {
	p.spend()
	switch {
	case p.tok.is("{"):
		s.Stmts = append(s.Stmts, p.scope())
	case p.tok.is("@"):
		s.Stmts = append(s.Stmts, p.instr())
	case p.tok.is(";"):
		p.advance()
	case p.tok.kind == tDot:
		p.localDirective(s)
	case p.tok.kind == tIdent:
		ahead := p.lexer
		if following := ahead.next(); following.is(":") {
			s.Stmts = append(s.Stmts, p.label())
		} else {
			s.Stmts = append(s.Stmts, p.instr())
		}
	default:
		p.failf("an instruction is expected, not %s", p.tok.describe())
	}
}

func (p *parser) localDirective(s *Scope) {
	pos := p.pos()
	linkage := p.linkage()
	switch p.tok.text {
	case "reg":
		s.Stmts = append(s.Stmts, p.regs())
	case "local", "shared", "global", "const", "param", "tex":
		for _, v := range p.vars(pos, linkage) {
			s.Stmts = append(s.Stmts, v)
		}
	case "loc":
		s.Stmts = append(s.Stmts, p.locDirective())
	case "pragma":
		s.Stmts = append(s.Stmts, p.pragma())
	default:
		p.failf("the directive %s is not known here", p.tok.describe())
	}
}

// regs reads .reg .type %a, %b<10>;
func (p *parser) regs() *Regs {
	r := &Regs{Pos: p.pos()}
	p.advance()
	var v Var
	p.typeOf(&v)
	r.Vec, r.Type = v.Vec, v.Type
	for {
		p.spend()
		name := RegName{Pos: p.pos()}
		name.Name = p.ident("a register's name")
		if p.accept("<") {
			if name.Count = p.integer("a number of registers", 1<<31-1); name.Count == 0 {
				name.Count = -1 // declares nothing
			}
			p.expect(">")
		}
		r.Names = append(r.Names, name)
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
	return r
}

// label reads name: and the directives that need one.
func (p *parser) label() Stmt {
	l := &Label{Pos: p.pos(), Name: p.ident("a label")}
	p.expect(":")
	switch {
	case p.tok.kind != tDot:
		return l
	case p.acceptDot("callprototype"):
		return p.prototype(l)
	case p.tok.text == "branchtargets" || p.tok.text == "calltargets":
		t := &TargetList{Pos: l.Pos, Name: l.Name, Calls: p.tok.text == "calltargets"}
		p.advance()
		for {
			p.spend()
			t.Names = append(t.Names, p.ident("a label or a function"))
			if !p.accept(",") {
				break
			}
		}
		p.expect(";")
		return t
	}
	return l
}

func (p *parser) prototype(l *Label) *Prototype {
	t := &Prototype{Pos: l.Pos, Name: l.Name}
	if p.tok.is("(") {
		t.Results = p.params()
	}
	if p.tok.kind == tIdent {
		p.advance() // "_"
	}
	if p.tok.is("(") {
		t.Params = p.params()
	}
	t.Directives = p.directives()
	p.expect(";")
	return t
}

func (p *parser) instr() *Instr {
	i := &Instr{}
	if p.accept("@") {
		i.GuardNot = p.accept("!")
		i.Guard = p.ident("a predicate")
	}
	i.Pos = p.pos()
	i.Op = p.ident("an instruction")
	for p.tok.kind == tDot {
		p.spend()
		i.Mods = append(i.Mods, p.tok.text)
		p.advance()
	}
	if class, _ := Classify(i.Op, i.Mods); class == Unknown && p.err == nil {
		p.posf(i.Pos, "the instruction %q is not known", clip(i.Opcode()))
	}
	if i.Op == "call" {
		i.Call = p.call()
	} else if !p.tok.is(";") {
		i.Args = p.operands()
	}
	p.expect(";")
	return i
}

// call reads (results), callee, (arguments), prototype. All but the callee can
// be missing.
func (p *parser) call() *Call {
	c := &Call{}
	if p.accept("(") {
		c.Results = p.list(")")
		p.expect(",")
	}
	c.Callee = p.operand()
	if !p.accept(",") {
		return c
	}
	if !p.accept("(") {
		c.Proto = p.ident("a prototype")
		return c
	}
	c.Args = p.list(")")
	if p.accept(",") {
		c.Proto = p.ident("a prototype")
	}
	return c
}

// list reads operands up to a closing mark.
func (p *parser) list(closing string) []Operand {
	var list []Operand
	if !p.tok.is(closing) {
		list = p.operands()
	}
	p.expect(closing)
	return list
}

func (p *parser) operands() []Operand {
	var few [4]Operand
	list := few[:0]
	for {
		list = append(list, p.operand())
		if !p.accept(",") {
			return append([]Operand(nil), list...)
		}
	}
}

func (p *parser) operand() Operand {
	first := p.single()
	if first.Kind == Num || !p.accept("|") {
		return first
	}
	pair := Operand{Kind: Pair, Line: first.Line, Col: first.Col}
	pair.Elems = []Operand{first, p.single()}
	return pair
}

func (p *parser) single() Operand {
	p.spend()
	p.enter()
	defer p.leave()
	o := Operand{Line: p.tok.line, Col: p.tok.col}
	switch {
	case p.accept("{"):
		o.Kind = Vector
		o.Elems = p.list("}")
	case p.accept("["):
		o.Kind = Address
		p.address(&o)
	case (p.tok.is("!") || p.tok.is("-")) && p.nameFollows():
		o.Not, o.Neg = p.tok.is("!"), p.tok.is("-")
		p.advance()
		p.name(&o)
	case p.tok.kind == tIdent && p.tok.text != "WARP_SZ":
		if p.tok.text == "_" {
			o.Kind = Sink
			p.advance()
		} else {
			p.name(&o)
		}
	default:
		o.Kind = Num
		o.Num = p.constant()
	}
	return o
}

func (p *parser) nameFollows() bool {
	ahead := p.lexer
	t := ahead.next()
	return t.kind == tIdent && t.text != "WARP_SZ"
}

// name reads name, name.x and name + 8.
func (p *parser) name(o *Operand) {
	o.Name = p.ident("a name")
	if p.tok.kind == tDot {
		o.Suffix = p.tok.text
		p.advance()
	}
	o.Num.Bits = uint64(p.addend())
}

func (p *parser) address(o *Operand) {
	if p.tok.kind == tIdent && p.tok.text != "WARP_SZ" {
		o.Name = p.ident("an address")
		o.Num.Bits = uint64(p.addend())
	} else if o.Num = p.constant(); o.Num.Float() {
		p.failf("an address has no fraction")
	}
	if p.accept(",") {
		o.Elems = p.list("]")
	} else {
		p.expect("]")
	}
	if p.acceptDot("unified") {
		o.Suffix = "unified"
	}
}
