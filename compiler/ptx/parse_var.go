// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"slices"
	"strings"
)

// types are the words that declare a register or a variable.
var types = []string{
	"b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64",
	"f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f32x2", "f64", "pred",
	"e4m3", "e5m2", "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "u16x2", "s16x2",
	"texref", "samplerref", "surfref",
}

// typeOf reads what stands before a name: alignment, vector and type, and
// attributes, in any order, the type last.
func (p *parser) typeOf(v *Var) {
	for p.tok.kind == tDot {
		switch word := p.tok.text; word {
		case "align":
			p.advance()
			v.Align = p.integer("an alignment", 1<<31)
			if v.Align == 0 || v.Align&(v.Align-1) != 0 {
				p.failf("an alignment is a power of two")
			}
		case "v2", "v4", "v8":
			p.advance()
			v.Vec = int(word[1] - '0')
		case "attribute":
			p.advance()
			v.Attributes = append(v.Attributes, p.attributes()...)
		default:
			if !slices.Contains(types, word) {
				p.failf("%s is no type", p.tok.describe())
			}
			v.Type = word
			p.advance()
			return
		}
	}
	p.failf("a type is expected, not %s", p.tok.describe())
}

func (p *parser) attributes() []string {
	var list []string
	p.expect("(")
	for {
		word := p.dot("an attribute")
		if p.accept("(") {
			numbers := []string{p.number()}
			for p.accept(",") {
				numbers = append(numbers, p.number())
				p.spend()
			}
			p.expect(")")
			word += "(" + strings.Join(numbers, ", ") + ")"
		}
		p.spend()
		list = append(list, word)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return list
}

func (p *parser) number() string { return uint64String(uint64(p.integer("a number", 1<<63-1))) }

// dims reads an array's dimensions.
func (p *parser) dims() []int64 {
	var list []int64
	for p.accept("[") {
		d := int64(-1)
		if !p.tok.is("]") {
			pos := p.pos()
			n := p.constant()
			if n.Kind > UnsignedInt || n.Bits > 1<<62 {
				p.posf(pos, "this is no size of an array")
			}
			d = int64(n.Bits)
		}
		p.expect("]")
		if list = append(list, d); len(list) > maxDims {
			p.failf("an array has %d dimensions at most", maxDims)
		}
	}
	return list
}

// vars reads a declaration of variables in memory, from its state space on.
func (p *parser) vars(pos Pos, linkage Linkage) []*Var {
	shared := Var{Linkage: linkage, Space: p.dot("a state space")}
	p.typeOf(&shared)
	var list []*Var
	for {
		p.spend()
		v := shared
		v.Pos = p.pos()
		v.Pos.File, v.Pos.SrcLine = pos.File, pos.SrcLine
		v.Name = p.ident("a variable's name")
		v.Dims = p.dims()
		if p.accept("=") {
			switch v.Type {
			case "samplerref", "texref", "surfref":
				v.Sampler = p.sampler()
			default:
				v.Init = new(p.init())
			}
		}
		list = append(list, &v)
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
	return list
}

// sampler reads { name = value, ... }.
func (p *parser) sampler() []string {
	list := []string{}
	p.expect("{")
	for !p.tok.is("}") && p.tok.kind != tEOF {
		p.spend()
		word := p.ident("a property")
		p.expect("=")
		if p.tok.kind == tIdent {
			word += " = " + p.ident("a value")
		} else {
			word += " = " + p.constant().String()
		}
		list = append(list, word)
		if !p.accept(",") {
			break
		}
	}
	p.expect("}")
	return list
}

// init reads an initializer.
func (p *parser) init() Init {
	p.spend()
	if p.accept("{") {
		p.enter()
		defer p.leave()
		list := []Init{}
		for !p.tok.is("}") && p.tok.kind != tEOF {
			list = append(list, p.init())
			if !p.accept(",") {
				break
			}
		}
		p.expect("}")
		return Init{List: list}
	}
	pos := p.pos()
	if p.tok.kind == tIdent && p.tok.text != "WARP_SZ" {
		return Init{Sym: p.initSym(pos)}
	}
	n := p.constant()
	// A mask before an address: 0xff00(name).
	if p.accept("(") {
		s := p.initSym(pos)
		s.Mask = n.Bits
		p.checkMask(pos, n)
		p.expect(")")
		return Init{Sym: s}
	}
	return Init{Num: n}
}

func (p *parser) checkMask(pos Pos, n Number) {
	for shift := 0; shift < 64; shift += 8 {
		if n.Kind <= UnsignedInt && n.Bits == 0xff<<shift {
			return
		}
	}
	p.posf(pos, "a mask has one byte of ones")
}

// initSym reads name, name + number, and generic(name) + number.
func (p *parser) initSym(pos Pos) *InitSym {
	s := &InitSym{Pos: pos}
	s.Name = p.ident("a variable's or function's name")
	if s.Name == "generic" && p.accept("(") {
		s.Generic = true
		s.Name = p.ident("a variable's name")
		s.Addend = p.addend()
		p.expect(")")
	}
	s.Addend += p.addend()
	return s
}

// addend reads + number or - number, if there is one.
func (p *parser) addend() int64 {
	if !p.tok.is("+") && !p.tok.is("-") {
		return 0
	}
	pos := p.pos()
	// The sign is that of the first term: a + 4 - 2, and a - 4.
	n := p.binary(Number{}, precedence("+"))
	if n.Kind > UnsignedInt {
		p.posf(pos, "an address has no fraction")
	}
	return int64(n.Bits)
}
