// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"slices"
	"strings"
)

// instr reads an instruction.
func (p *parser) instr(l *line) (*Instr, error) {
	in := &Instr{Guard: NoReg}
	if err := p.guard(l, in); err != nil {
		return nil, err
	}
	if err := p.results(l, in); err != nil {
		return nil, err
	}
	if err := mnemonic(l, in); err != nil {
		return nil, err
	}
	operands := p.operands
	if in.Op == Br || in.Op == Brx {
		operands = p.targets
	}
	if err := operands(l, in); err != nil {
		return nil, err
	}
	if in.Op == Call {
		if err := p.call(l, in); err != nil {
			return nil, err
		}
	}
	var err error
	if in.Pos, err = position(l); err != nil {
		return nil, err
	}
	if l.peek().kind == stringToken {
		in.Text = l.take().text
	}
	return in, l.end()
}

// guard reads "@%p" or "@!%p", or nothing.
func (p *parser) guard(l *line, in *Instr) error {
	t := l.peek()
	switch {
	case t.kind == nameToken && strings.HasPrefix(t.text, "@%"):
		l.take()
		r, there := p.regs[t.text[2:]]
		if !there {
			return l.errorf("%s is not there", t.text[1:])
		}
		in.Guard = r
	case l.accept("@"):
		if err := l.expect("!"); err != nil {
			return err
		}
		in.GuardNot = true
		var err error
		in.Guard, err = p.reg(l)
		return err
	}
	return nil
}

// results reads "%a, _ =", or nothing.
func (p *parser) results(l *line, in *Instr) error {
	t := l.peek()
	if t.kind != nameToken || t.text != "_" && t.text[0] != '%' {
		return nil
	}
	for {
		r := NoReg
		if !l.accept("_") {
			var err error
			if r, err = p.reg(l); err != nil {
				return err
			}
		}
		in.Dst = append(in.Dst, r)
		if !l.accept(",") {
			return l.expect("=")
		}
	}
}

func (p *parser) reg(l *line) (Reg, error) {
	name, err := l.sigil('%')
	if err != nil {
		return NoReg, err
	}
	r, there := p.regs[name]
	if !there {
		return NoReg, l.errorf("%%%s is not there", name)
	}
	return r, nil
}

// more tells whether another operand comes: where the line neither ends nor goes
// on with something else.
func more(l *line) bool {
	t := l.peek()
	if t.kind == endToken || t.kind == stringToken {
		return false
	}
	if t.kind == punctToken && t.text == "!" {
		return l.next+1 < len(l.tokens) && strings.HasPrefix(l.tokens[l.next+1].text, "%")
	}
	return t.kind == nameToken || t.text == "[" || t.text == "("
}

func (p *parser) operands(l *line, in *Instr) error {
	if in.Op == Call {
		return p.called(l, in)
	}
	for more(l) {
		if err := p.argument(l, in); err != nil {
			return err
		}
		if !l.accept(",") {
			return nil
		}
	}
	return nil
}

func (p *parser) argument(l *line, in *Instr) error {
	inside := len(in.Args) == 0 && opTable[in.Op].address
	if inside {
		if err := l.expect("["); err != nil {
			return err
		}
	}
	a, err := p.operand(l)
	if err != nil {
		return err
	}
	in.Args = append(in.Args, a)
	if !inside {
		return nil
	}
	if in.Offset, err = l.addend(); err != nil {
		return err
	}
	return l.expect("]")
}

func (p *parser) operand(l *line) (Operand, error) {
	none := Operand{Reg: NoReg}
	if l.accept("(") {
		if c := l.peek().text; c == "" || c[0] != '@' && c[0] != '$' {
			l.take()
			return none, l.errorf("a variable is missing here")
		}
		a, err := p.named(l)
		if err != nil {
			return none, err
		}
		if a.Kind != VarOperand {
			return none, l.errorf("nothing can be added to a function's address")
		}
		n, err := l.addend()
		if err != nil {
			return none, err
		}
		a.Imm += uint64(n)
		return a, l.expect(")")
	}
	if l.accept("!") {
		r, err := p.reg(l)
		return Operand{Kind: RegOperand, Reg: r, Not: true}, err
	}
	t := l.peek()
	if t.kind != nameToken {
		l.take()
		return none, l.errorf("an operand is missing here")
	}
	switch c := t.text[0]; {
	case c == '%':
		r, err := p.reg(l)
		return R(r), err
	case c == '@' || c == '$':
		return p.named(l)
	case c >= '0' && c <= '9':
		n, err := l.number64(64)
		return Imm(n), err
	}
	l.take()
	s := slices.Index(sregNames[:], t.text)
	if s < 0 {
		return none, l.errorf("%q is no operand", t.text)
	}
	return Operand{Kind: SregOperand, Sreg: Sreg(s), Reg: NoReg}, nil
}

// named reads the address of a variable or of a function.
func (p *parser) named(l *line) (Operand, error) {
	a := Operand{Kind: VarOperand, Reg: NoReg}
	t := l.take()
	name := t.text[1:]
	if t.text[0] == '$' {
		a.Var = p.locals[name]
	} else {
		a.Var = p.vars[name]
		if f := p.funcs[name]; f != nil {
			a.Kind, a.Func = FuncOperand, f
			return a, nil
		}
	}
	if a.Var == nil {
		return a, l.errorf("%s is not there", t.text)
	}
	return a, nil
}

// targets reads what Br and Brx have.
func (p *parser) targets(l *line, in *Instr) error {
	if in.Op == Brx {
		a, err := p.operand(l)
		if err != nil {
			return err
		}
		in.Args = append(in.Args, a)
		if !l.accept(",") {
			return nil
		}
	}
	for {
		t := l.take()
		b := p.blocks[t.text]
		if t.kind != nameToken || b == nil {
			return l.errorf("block %q is not there", t.text)
		}
		in.Targets = append(in.Targets, b)
		if !l.accept(",") {
			return nil
		}
	}
}

// called reads which function is called: its name, or an operand.
func (p *parser) called(l *line, in *Instr) error {
	if t := l.peek(); t.kind == nameToken && t.text[0] == '@' {
		f, err := p.callee(l)
		in.Callee = f
		return err
	}
	a, err := p.operand(l)
	in.Args = append(in.Args, a)
	return err
}

func (p *parser) callee(l *line) (*Func, error) {
	name, err := l.sigil('@')
	if err != nil {
		return nil, err
	}
	f := p.funcs[name]
	if f == nil {
		return nil, l.errorf("@%s is not a function that is there", name)
	}
	return f, nil
}

// call reads "($a, $b) -> ($c) of @f, @g".
func (p *parser) call(l *line, in *Instr) error {
	var err error
	if in.CallArgs, err = p.varList(l); err != nil {
		return err
	}
	if err = l.expect("->"); err != nil {
		return err
	}
	if in.CallResults, err = p.varList(l); err != nil {
		return err
	}
	if !l.accept("of") {
		return nil
	}
	for {
		f, err := p.callee(l)
		if err != nil {
			return err
		}
		in.Callees = append(in.Callees, f)
		if !l.accept(",") {
			return nil
		}
	}
}

func (p *parser) varList(l *line) ([]*Var, error) {
	if err := l.expect("("); err != nil {
		return nil, err
	}
	var vars []*Var
	for !l.accept(")") {
		if len(vars) > 0 {
			if err := l.expect(","); err != nil {
				return nil, err
			}
		}
		name, err := l.sigil('$')
		if err != nil {
			return nil, err
		}
		v := p.locals[name]
		if v == nil {
			return nil, l.errorf("$%s is not there", name)
		}
		vars = append(vars, v)
	}
	return vars, nil
}
