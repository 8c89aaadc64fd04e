// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"encoding/hex"
	"slices"
	"strings"
)

// Parse reads the text form (docs/ir.md has its grammar). An error is a
// *SyntaxError. What it returns is well formed, but not verified.
func Parse(text string) (*Module, error) {
	lines, err := scan(text)
	if err != nil {
		return nil, err
	}
	p := &parser{lines: lines, module: &Module{}, vars: map[string]*Var{}, funcs: map[string]*Func{}}
	if err := p.declare(); err != nil {
		return nil, err
	}
	for p.at < len(p.lines) {
		if err := p.top(); err != nil {
			return nil, err
		}
	}
	return p.module, nil
}

type parser struct {
	lines  []*line
	at     int
	module *Module
	vars   map[string]*Var
	funcs  map[string]*Func
	last   *Var // that addresses belong to

	f      *Func
	locals map[string]*Var
	regs   map[string]Reg
	blocks map[string]*Block
}

// declare makes the module's variables and functions, so that they can be named
// before they come.
func (p *parser) declare() error {
	depth := 0
	for _, l := range p.lines {
		switch word := l.tokens[0].text; {
		case depth == 0 && (word == "kernel" || word == "func"):
			l.take()
			name, err := l.sigil('@')
			if err != nil {
				return err
			}
			if err := p.fresh(l, name); err != nil {
				return err
			}
			p.funcs[name] = &Func{Name: name, Kernel: word == "kernel"}
			depth = 1
		case depth == 0 && word == "var" && len(l.tokens) > 2:
			l.next = 2
			name, err := l.sigil('@')
			if err != nil {
				return err
			}
			if err := p.fresh(l, name); err != nil {
				return err
			}
			p.vars[name] = &Var{Name: name}
		case word == "}":
			depth = 0
		}
		l.next = 0
	}
	return nil
}

func (p *parser) fresh(l *line, name string) error {
	if p.vars[name] != nil || p.funcs[name] != nil {
		return l.errorf("@%s is there twice", name)
	}
	return nil
}

func (p *parser) top() error {
	l := p.lines[p.at]
	p.at++
	switch t := l.take(); t.text {
	case "target":
		s, err := l.str()
		if err != nil {
			return err
		}
		p.module.Target = s
		return l.end()
	case "file":
		s, err := l.str()
		if err != nil {
			return err
		}
		p.module.Files = append(p.module.Files, s)
		return l.end()
	case "var":
		space, err := p.space(l)
		if err != nil {
			return err
		}
		name, err := l.sigil('@')
		if err != nil {
			return err
		}
		v := p.vars[name]
		v.Space = space
		p.module.Vars = append(p.module.Vars, v)
		p.last = v
		return p.variable(l, v)
	case "address":
		return p.address(l, p.last)
	case "kernel", "func":
		name, err := l.sigil('@')
		if err != nil {
			return err
		}
		f := p.funcs[name]
		p.module.Funcs = append(p.module.Funcs, f)
		return p.function(l, f)
	default:
		return l.errorf("%q begins nothing that is known", t.text)
	}
}

func (p *parser) space(l *line) (Space, error) {
	t := l.take()
	i := slices.Index(spaceNames[:], t.text)
	if i < 0 || t.kind != nameToken {
		return 0, l.errorf("%q is no state space", t.text)
	}
	return Space(i), nil
}

// variable reads what comes after a variable's name.
func (p *parser) variable(l *line, v *Var) error {
	if err := p.sizes(l, v); err != nil {
		return err
	}
	v.Extern = l.accept("extern")
	if l.accept("=") {
		s, err := l.str()
		if err != nil {
			return err
		}
		v.Init, err = hex.DecodeString(s)
		if err != nil {
			return l.errorf("an initial value: %v", err)
		}
	}
	return l.end()
}

func (p *parser) sizes(l *line, v *Var) error {
	var err error
	if v.Size, err = l.size(); err != nil {
		return err
	}
	if err = l.expect("align"); err != nil {
		return err
	}
	v.Align, err = l.size()
	return err
}

func (p *parser) address(l *line, v *Var) error {
	if v == nil {
		return l.errorf("an address without a variable before it")
	}
	var a Address
	var err error
	if a.Offset, err = l.size(); err != nil {
		return err
	}
	a.Generic = l.accept("generic")
	name, err := l.sigil('@')
	if err != nil {
		return err
	}
	a.Var, a.Func = p.vars[name], p.funcs[name]
	if a.Var == nil && a.Func == nil {
		return l.errorf("@%s is not there", name)
	}
	if a.Addend, err = l.addend(); err != nil {
		return err
	}
	v.Addresses = append(v.Addresses, a)
	return l.end()
}

func (p *parser) function(l *line, f *Func) error {
	p.f, p.last = f, nil
	p.locals, p.regs, p.blocks = map[string]*Var{}, map[string]Reg{}, map[string]*Block{}
	var err error
	if f.Pos, err = position(l); err != nil {
		return err
	}
	if err := l.expect("{"); err != nil {
		return err
	}
	if err := l.end(); err != nil {
		return err
	}
	if err := p.labels(); err != nil {
		return err
	}
	var block *Block
	for ; p.at < len(p.lines); p.at++ {
		l := p.lines[p.at]
		if l.accept("}") {
			p.at++
			p.last = nil
			return l.end()
		}
		if isLabel(l) {
			block = p.blocks[l.tokens[0].text]
			f.Blocks = append(f.Blocks, block)
			continue
		}
		if block == nil {
			if err := p.header(l); err != nil {
				return err
			}
			continue
		}
		in, err := p.instr(l)
		if err != nil {
			return err
		}
		block.Instrs = append(block.Instrs, in)
	}
	return l.errorf("@%s has no end", f.Name)
}

func isLabel(l *line) bool {
	return len(l.tokens) == 2 && l.tokens[0].kind == nameToken && l.tokens[1].kind == punctToken && l.tokens[1].text == ":"
}

// labels makes the function's blocks.
func (p *parser) labels() error {
	for _, l := range p.lines[p.at:] {
		if l.tokens[0].text == "}" {
			return nil
		}
		if !isLabel(l) {
			continue
		}
		name := l.tokens[0].text
		if p.blocks[name] != nil {
			return l.errorf("block %s is there twice", name)
		}
		p.blocks[name] = &Block{Name: name}
	}
	return nil
}

// header reads a line of a function before its first block.
func (p *parser) header(l *line) error {
	switch t := l.take(); t.text {
	case "param":
		return p.parameter(l, &p.f.Params)
	case "result":
		return p.parameter(l, &p.f.Results)
	case "reg":
		return p.registers(l)
	case "var":
		space, err := p.space(l)
		if err != nil {
			return err
		}
		v := &Var{Space: space}
		if v.Name, err = p.local(l, v); err != nil {
			return err
		}
		p.f.Vars = append(p.f.Vars, v)
		p.last = v
		return p.variable(l, v)
	case "stack":
		return p.stack(l)
	case "address":
		return p.address(l, p.last)
	case "max_threads":
		return dimensions(l, &p.f.Attrs.MaxThreads)
	case "req_threads":
		return dimensions(l, &p.f.Attrs.ReqThreads)
	case "cluster":
		return dimensions(l, &p.f.Attrs.Cluster)
	case "min_blocks":
		return number32(l, &p.f.Attrs.MinBlocks)
	case "max_regs":
		return number32(l, &p.f.Attrs.MaxRegs)
	case "nvidia_only":
		return p.reason(l)
	default:
		return l.errorf("%q is not known before a function's first block", t.text)
	}
}

func (p *parser) reason(l *line) error {
	var r Reason
	var err error
	if r.Text, err = l.str(); err != nil {
		return err
	}
	if r.Pos, err = position(l); err != nil {
		return err
	}
	p.f.NVIDIAOnly = append(p.f.NVIDIAOnly, r)
	return l.end()
}

// local takes the name of one of the function's variables.
func (p *parser) local(l *line, v *Var) (string, error) {
	name, err := l.sigil('$')
	if err != nil {
		return "", err
	}
	if p.locals[name] != nil {
		return "", l.errorf("$%s is there twice", name)
	}
	p.locals[name] = v
	return name, nil
}

func (p *parser) parameter(l *line, list *[]*Parameter) error {
	v := &Parameter{Var: Var{Space: Param}}
	var err error
	if v.Name, err = p.local(l, &v.Var); err != nil {
		return err
	}
	if err = p.sizes(l, &v.Var); err != nil {
		return err
	}
	if l.accept("at") {
		if v.Offset, err = l.size(); err != nil {
			return err
		}
	}
	*list = append(*list, v)
	return l.end()
}

func (p *parser) stack(l *line) error {
	name, err := l.sigil('$')
	if err != nil {
		return err
	}
	i := slices.IndexFunc(p.f.Vars, func(v *Var) bool { return v.Name == name })
	if i < 0 {
		return l.errorf("$%s is not there", name)
	}
	s := Stack{Var: p.f.Vars[i]}
	if s.Top, err = p.reg(l); err != nil {
		return err
	}
	if s.Above, err = l.size(); err != nil {
		return err
	}
	p.f.Stacks = append(p.f.Stacks, s)
	return l.end()
}

func (p *parser) registers(l *line) error {
	t := l.take()
	typ := slices.Index(typeNames[:], t.text)
	if typ < 0 {
		return l.errorf("%q is no type", t.text)
	}
	for l.peek().kind != endToken {
		name, err := l.sigil('%')
		if err != nil {
			return err
		}
		if _, there := p.regs[name]; there {
			return l.errorf("%%%s is there twice", name)
		}
		p.regs[name] = Reg(len(p.f.Regs))
		p.f.Regs = append(p.f.Regs, RegInfo{Name: name, Type: Type(typ)})
	}
	return nil
}

func dimensions(l *line, to *[3]uint32) error {
	for i := range to {
		n, err := l.number64(32)
		if err != nil {
			return err
		}
		to[i] = uint32(n)
	}
	return l.end()
}

func number32(l *line, to *uint32) error {
	n, err := l.number64(32)
	if err != nil {
		return err
	}
	*to = uint32(n)
	return l.end()
}

// position reads " !12:3" or " !12:3/1:45", or nothing.
func position(l *line) (Pos, error) {
	var at Pos
	if !l.accept("!") {
		return at, nil
	}
	var err error
	if at.Line, at.Col, err = pair(l); err != nil {
		return at, err
	}
	if l.accept("/") {
		at.File, at.SrcLine, err = pair(l)
	}
	return at, err
}

func pair(l *line) (a, b int32, err error) {
	if a, err = l.int32(); err != nil {
		return a, b, err
	}
	if err = l.expect(":"); err != nil {
		return a, b, err
	}
	b, err = l.int32()
	return a, b, err
}

// mnemonic reads an operation with its modifiers and types.
func mnemonic(l *line, in *Instr) error {
	t := l.take()
	words := strings.Split(t.text, ".")
	op := slices.Index(opNames[:], words[0])
	if op < 0 || t.kind != nameToken {
		return l.errorf("%q is no operation", t.text)
	}
	in.Op = Op(op)
	types := 0
	for _, w := range words[1:] {
		if typ := slices.Index(typeNames[:], w); typ >= 0 && types < 2 {
			*[]*Type{&in.Type, &in.Type2}[types] = Type(typ)
			types++
			continue
		}
		if !in.Mods.setWord(in.Op, w) {
			return l.errorf("%q is no modifier of %s, nor a type", w, words[0])
		}
	}
	return nil
}
