// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"slices"
	"strings"
)

// What a text may have at most: more is refused, so that memory stays bounded.
const (
	MaxSource = 256 << 20 // bytes
	maxNodes  = 4 << 20   // statements, operands and numbers of initializers
	maxDepth  = 200       // of scopes, initializers and expressions
	maxDims   = 16
)

// Parse reads a module. The error is an *Error. A NUL byte ends the text, as in
// fatbins.
func Parse(src string) (*Module, error) {
	if i := strings.IndexByte(src, 0); i >= 0 {
		src = src[:i]
	}
	if len(src) > MaxSource {
		return nil, &Error{Line: 1, Col: 1, Msg: "the text is longer than 256 MiB"}
	}
	p := &parser{lexer: lexer{src: src, line: 1}}
	p.advance()
	m := p.module()
	if p.err != nil {
		return nil, p.err
	}
	return m, nil
}

// parser is one token ahead of what it has read.
type parser struct {
	lexer
	tok   token
	loc   Pos // of .loc: File and SrcLine
	nodes int
	depth int
}

func (p *parser) advance() { p.tok = p.next() }

func (p *parser) failf(format string, args ...any) {
	p.fail(p.tok.line, p.tok.col, format, args...)
	p.tok = token{kind: tEOF, line: p.tok.line, col: p.tok.col, pos: len(p.src)}
}

func (p *parser) posf(pos Pos, format string, args ...any) {
	p.tok.line, p.tok.col = pos.Line, pos.Col
	p.failf(format, args...)
}

func (p *parser) pos() Pos {
	return Pos{Line: p.tok.line, Col: p.tok.col, File: p.loc.File, SrcLine: p.loc.SrcLine}
}

// spend counts what takes memory.
func (p *parser) spend() {
	if p.nodes++; p.nodes == maxNodes {
		p.failf("the program is too large")
	}
}

// enter counts nesting; leave undoes it.
func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		p.failf("nested deeper than %d", maxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

// accept takes a punctuation mark if it is there.
func (p *parser) accept(punct string) bool {
	if p.tok.is(punct) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(punct string) {
	if !p.accept(punct) {
		p.failf("%q is expected, not %s", punct, p.tok.describe())
	}
}

// acceptDot takes the directive or modifier word if it is there.
func (p *parser) acceptDot(word string) bool {
	if p.tok.kind == tDot && p.tok.text == word {
		p.advance()
		return true
	}
	return false
}

func (p *parser) dot(what string) string {
	if p.tok.kind != tDot {
		p.failf("%s is expected, not %s", what, p.tok.describe())
		return ""
	}
	word := p.tok.text
	p.advance()
	return word
}

func (p *parser) ident(what string) string {
	if p.tok.kind != tIdent {
		p.failf("%s is expected, not %s", what, p.tok.describe())
		return ""
	}
	name := p.tok.text
	p.advance()
	return name
}

// quoted reads a string and returns what is between the quotes.
func (p *parser) quotedString() string {
	if p.tok.kind != tString {
		p.failf("a string is expected, not %s", p.tok.describe())
		return ""
	}
	s := p.tok.text[1 : len(p.tok.text)-1]
	p.advance()
	return s
}

// integer reads a literal from 0 to most.
func (p *parser) integer(what string, most uint64) int64 {
	if p.tok.kind != tNumber || p.tok.num.Kind > UnsignedInt || p.tok.num.Bits > most {
		p.failf("%s is expected, from 0 to %d, not %s", what, most, p.tok.describe())
		return 0
	}
	v := p.tok.num.Bits
	p.advance()
	return int64(v)
}

func (p *parser) module() *Module {
	m := &Module{AddressSize: 32}
	p.header(m)
	for p.tok.kind != tEOF {
		p.decl(m)
	}
	return m
}

// header reads .version, .target and .address_size.
func (p *parser) header(m *Module) {
	if !p.acceptDot("version") {
		p.failf("PTX begins with .version, not with %s", p.tok.describe())
		return
	}
	// The lexer takes "8.3" for a fraction.
	major, minor, ok := strings.Cut(p.tok.text, ".")
	if p.tok.kind != tNumber || !ok || !allDigits(major) || !allDigits(minor) {
		p.failf("a version such as 8.3 is expected, not %s", p.tok.describe())
		return
	}
	m.Version = [2]int{small(major), small(minor)}
	// nvcc 13 says 9.0. What is new there and isn't in 8.8 is an unknown instruction.
	if m.Version[0] < 6 || m.Version[0] > 9 {
		p.failf("PTX ISA %s is not known: 6 to 9 are", clip(p.tok.text))
		return
	}
	p.advance()
	if !p.acceptDot("target") {
		p.failf(".target is expected, not %s", p.tok.describe())
		return
	}
	for {
		m.Targets = append(m.Targets, p.ident("a target"))
		if !p.accept(",") {
			break
		}
	}
	if p.acceptDot("address_size") {
		m.AddressSize = int(p.integer("an address size", 64))
		if m.AddressSize != 32 && m.AddressSize != 64 {
			p.failf("an address has 32 or 64 bits")
		}
	}
}

func allDigits(s string) bool {
	return s != "" && len(s) < 4 && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

func small(digits string) int {
	n := 0
	for _, d := range digits {
		n = n*10 + int(d-'0')
	}
	return n
}

func (p *parser) decl(m *Module) {
	p.spend()
	if p.tok.kind != tDot {
		p.failf("a directive is expected, not %s", p.tok.describe())
		return
	}
	pos := p.pos()
	linkage := p.linkage()
	switch word := p.tok.text; word {
	case "entry", "func":
		p.advance()
		m.Decls = append(m.Decls, p.function(pos, linkage, word == "entry"))
	case "global", "const", "shared", "local", "tex":
		for _, v := range p.vars(pos, linkage) {
			m.Decls = append(m.Decls, v)
		}
	case "file":
		p.file(m)
	case "loc":
		p.locDirective()
	case "section":
		p.section()
	case "alias":
		p.advance()
		a := &Alias{Pos: pos, Name: p.ident("a name")}
		p.expect(",")
		a.Of = p.ident("a function's name")
		p.expect(";")
		m.Decls = append(m.Decls, a)
	case "pragma":
		m.Decls = append(m.Decls, p.pragma())
	default:
		p.failf("the directive %s is not known here", p.tok.describe())
	}
}

func (p *parser) linkage() Linkage {
	var l Linkage
	for p.tok.kind == tDot {
		switch p.tok.text {
		case "visible":
			l |= Visible
		case "extern":
			l |= Extern
		case "weak":
			l |= Weak
		case "common":
			l |= Common
		default:
			return l
		}
		p.advance()
	}
	return l
}

// file reads .file number "name" with, perhaps, its time and size.
func (p *parser) file(m *Module) {
	p.advance()
	f := File{Number: int32(p.integer("a file's number", 1<<31-1))}
	f.Name = p.quotedString()
	for p.accept(",") {
		p.integer("a time or size", 1<<63-1)
	}
	m.Files = append(m.Files, f)
}

// locDirective reads .loc file line column, and what says where it was inlined.
func (p *parser) locDirective() *Loc {
	p.advance()
	l := &Loc{
		File: int32(p.integer("a file's number", 1<<31-1)),
		Line: int32(p.integer("a line", 1<<31-1)),
		Col:  int32(p.integer("a column", 1<<31-1)),
	}
	p.loc.File, p.loc.SrcLine = l.File, l.Line
	for p.accept(",") {
		switch attr := p.ident("function_name or inlined_at"); attr {
		case "function_name":
			p.ident("a label")
			if p.accept("+") {
				p.integer("an offset", 1<<63-1)
			}
		case "inlined_at":
			for range 3 {
				p.integer("a file, line and column", 1<<31-1)
			}
		default:
			p.failf("%q is no attribute of .loc", clip(attr))
		}
	}
	return l
}

// section passes over debug information: without recursion, whatever is in it.
func (p *parser) section() {
	pos := p.pos()
	p.advance()
	p.dot("a section's name")
	p.expect("{")
	for depth := 1; depth > 0; p.advance() {
		switch {
		case p.tok.kind == tEOF:
			p.posf(pos, "the section has no end")
			return
		case p.tok.is("{"):
			depth++
		case p.tok.is("}"):
			depth--
		}
	}
}

func (p *parser) pragma() *Pragma {
	g := &Pragma{Pos: p.pos()}
	p.advance()
	g.Words = p.strings()
	p.expect(";")
	return g
}

func (p *parser) strings() []string {
	words := []string{p.quotedString()}
	for p.accept(",") {
		words = append(words, p.quotedString())
	}
	return words
}

// function reads what follows .entry or .func.
func (p *parser) function(pos Pos, linkage Linkage, kernel bool) *Func {
	f := &Func{Linkage: linkage, Kernel: kernel}
	if !kernel && p.tok.is("(") {
		f.Results = p.params()
	}
	f.Pos = p.pos()
	f.Name = p.ident("a function's name")
	if p.tok.is("(") {
		f.Params = p.params()
	}
	f.Directives = p.directives()
	if p.accept(";") {
		return f
	}
	if !p.tok.is("{") {
		p.failf("the body of %s is expected, not %s", clip(f.Name), p.tok.describe())
		return f
	}
	if linkage&Extern != 0 {
		p.posf(pos, "%s is .extern and has a body", clip(f.Name))
	}
	f.Body = p.scope()
	p.loc = Pos{}
	return f
}

// params reads a list of parameters in parentheses.
func (p *parser) params() []*Var {
	p.expect("(")
	list := []*Var{}
	for !p.tok.is(")") && p.tok.kind != tEOF {
		list = append(list, p.param())
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return list
}

func (p *parser) param() *Var {
	p.spend()
	v := &Var{Pos: p.pos()}
	v.Space = p.dot(".param or .reg")
	if v.Space != "param" && v.Space != "reg" {
		p.posf(v.Pos, ".param or .reg is expected, not %q", "."+clip(v.Space))
	}
	p.typeOf(v)
	if p.acceptDot("ptr") {
		v.Ptr = true
		if p.tok.kind == tDot && p.tok.text != "align" {
			v.PtrSpace = p.dot("a state space")
			if !slices.Contains([]string{"global", "const", "shared", "local", "param", "generic"}, v.PtrSpace) {
				p.failf("%q is no state space", "."+clip(v.PtrSpace))
			}
		}
		if p.acceptDot("align") {
			v.PtrAlign = p.integer("an alignment", 1<<31)
		}
	}
	// A prototype may leave the name out.
	if p.tok.kind == tIdent {
		v.Pos = p.pos()
		v.Name = p.ident("a name")
		v.Dims = p.dims()
	}
	return v
}

// directives reads those between a function's parameters and its body.
func (p *parser) directives() []Directive {
	var list []Directive
	for p.tok.kind == tDot {
		d := Directive{Name: p.tok.text}
		switch d.Name {
		case "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank", "abi_preserve", "abi_preserve_control":
			p.advance()
			d.Values = append(d.Values, p.integer("a number", 1<<32-1))
			for len(d.Values) < 3 && p.accept(",") {
				d.Values = append(d.Values, p.integer("a number", 1<<32-1))
			}
		case "noreturn", "explicitcluster", "blocksareclusters":
			p.advance()
		case "pragma":
			p.advance()
			d.Words = p.strings()
			p.expect(";")
		default:
			p.failf("the directive %s is not known here", p.tok.describe())
			return list
		}
		p.spend()
		list = append(list, d)
	}
	return list
}
