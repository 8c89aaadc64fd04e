// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"fmt"
	"math"
	"strconv"
)

// Float tells whether n was written as a floating point number.
func (n Number) Float() bool { return n.Kind >= Float32 }

// Value returns n as a floating point number.
func (n Number) Value() float64 {
	switch n.Kind {
	case SignedInt:
		return float64(int64(n.Bits))
	case UnsignedInt:
		return float64(n.Bits)
	case Float32:
		return float64(math.Float32frombits(uint32(n.Bits)))
	default:
		return math.Float64frombits(n.Bits)
	}
}

func uint64String(v uint64) string { return strconv.FormatUint(v, 10) }

// String writes n so that it is read as the same.
func (n Number) String() string {
	switch n.Kind {
	case SignedInt:
		// The sign is an operator, and its operand would have no sign's room.
		if n.Bits != 1<<63 {
			return strconv.FormatInt(int64(n.Bits), 10)
		}
		return uint64String(n.Bits) + "U"
	case UnsignedInt:
		return uint64String(n.Bits) + "U"
	case Float32:
		return fmt.Sprintf("0f%08X", n.Bits)
	default:
		return fmt.Sprintf("0d%016X", n.Bits)
	}
}

// precedence of a binary operator, as in C; 0: it is none.
func precedence(op string) int {
	switch op {
	case "||":
		return 1
	case "&&":
		return 2
	case "|":
		return 3
	case "^":
		return 4
	case "&":
		return 5
	case "==", "!=":
		return 6
	case "<", "<=", ">", ">=":
		return 7
	case "<<", ">>":
		return 8
	case "+", "-":
		return 9
	case "*", "/", "%":
		return 10
	}
	return 0
}

// constant reads a constant expression and returns its value.
func (p *parser) constant() Number {
	p.enter()
	defer p.leave()
	n := p.binary(p.unary(), 1)
	if !p.accept("?") {
		return n
	}
	yes := p.constant()
	p.expect(":")
	no := p.constant()
	if n.Value() != 0 {
		return yes
	}
	return no
}

// binary goes on after its left operand, with operators that bind at least as
// strongly as least.
func (p *parser) binary(left Number, least int) Number {
	for {
		// What follows a number is an operator: "10%3" has no register "%3".
		if p.tok.kind == tIdent && p.tok.text[0] == '%' {
			p.lexer.pos = p.tok.pos + 1
			p.tok.kind, p.tok.text = tPunct, "%"
		}
		op, pos := p.tok.text, p.pos()
		prec := precedence(op)
		if p.tok.kind != tPunct || prec == 0 || prec < least {
			return left
		}
		p.advance()
		p.enter()
		right := p.binary(p.unary(), prec+1)
		p.leave()
		result, ok := apply(op, left, right)
		if !ok {
			p.posf(pos, "this can't be computed: %s %s %s", left, op, right)
		}
		left = result
	}
}

func (p *parser) unary() Number {
	p.enter()
	defer p.leave()
	if p.tok.kind == tNumber {
		n := p.tok.num
		p.advance()
		return n
	}
	op := p.tok.text
	switch {
	case p.tok.kind == tIdent && op == "WARP_SZ":
		p.advance()
		return Number{Bits: 32}
	case p.tok.kind != tPunct:
	case op == "(":
		return p.parenthesis()
	case op == "+" || op == "-" || op == "!" || op == "~":
		pos := p.pos()
		p.advance()
		n, ok := applyUnary(op, p.unary())
		if !ok {
			p.posf(pos, "%q needs an integer", op)
		}
		return n
	}
	p.failf("an operand is expected, not %s", p.tok.describe())
	return Number{}
}

// parenthesis reads (expression), (.s64) operand and (.u64) operand.
func (p *parser) parenthesis() Number {
	p.advance()
	if p.tok.kind == tDot {
		pos := p.pos()
		word := p.dot("a type")
		p.expect(")")
		n := p.unary()
		if n.Float() {
			n.Bits = uint64(int64(n.Value()))
		}
		switch word {
		case "s64":
			n.Kind = SignedInt
		case "u64":
			n.Kind = UnsignedInt
		default:
			p.posf(pos, "a constant is cast to .s64 or .u64, not to %q", "."+clip(word))
		}
		return n
	}
	n := p.constant()
	p.expect(")")
	return n
}

func applyUnary(op string, n Number) (Number, bool) {
	switch {
	case op == "+":
	case op == "-" && n.Kind == Float32:
		n.Bits ^= 1 << 31
	case op == "-" && n.Kind == Float64:
		n.Bits ^= 1 << 63
	case op == "-":
		n.Bits = -n.Bits
	case op == "!":
		return truth(n.Value() == 0), true
	case n.Float():
		return n, false
	default:
		n.Bits = ^n.Bits
	}
	return n, true
}

func truth(b bool) Number {
	if b {
		return Number{Bits: 1}
	}
	return Number{}
}

// apply computes as PTX does: in 64 bits, unsigned if one of the two is.
func apply(op string, a, b Number) (Number, bool) {
	if a.Float() || b.Float() {
		return applyFloat(op, a.Value(), b.Value())
	}
	kind := max(a.Kind, b.Kind)
	signed := kind == SignedInt
	x, y := a.Bits, b.Bits
	number := func(v uint64) (Number, bool) { return Number{Bits: v, Kind: kind}, true }
	less := x < y
	if signed {
		less = int64(x) < int64(y)
	}
	switch op {
	case "||":
		return truth(x != 0 || y != 0), true
	case "&&":
		return truth(x != 0 && y != 0), true
	case "==":
		return truth(x == y), true
	case "!=":
		return truth(x != y), true
	case "<":
		return truth(less), true
	case "<=":
		return truth(less || x == y), true
	case ">":
		return truth(!less && x != y), true
	case ">=":
		return truth(!less), true
	case "|":
		return number(x | y)
	case "^":
		return number(x ^ y)
	case "&":
		return number(x & y)
	case "+":
		return number(x + y)
	case "-":
		return number(x - y)
	case "*":
		return number(x * y)
	case "<<":
		return Number{Bits: x << min(y, 64), Kind: a.Kind}, true
	case ">>":
		if a.Kind == SignedInt {
			return Number{Bits: uint64(int64(x) >> min(y, 63))}, true
		}
		return Number{Bits: x >> min(y, 64), Kind: a.Kind}, true
	}
	if y == 0 {
		return Number{}, false
	}
	switch {
	case op == "/" && signed:
		return number(uint64(int64(x) / int64(y)))
	case op == "/":
		return number(x / y)
	case signed:
		return number(uint64(int64(x) % int64(y)))
	}
	return number(x % y)
}

func applyFloat(op string, x, y float64) (Number, bool) {
	number := func(v float64) (Number, bool) {
		return Number{Bits: math.Float64bits(v), Kind: Float64}, true
	}
	switch op {
	case "+":
		return number(x + y)
	case "-":
		return number(x - y)
	case "*":
		return number(x * y)
	case "/":
		return number(x / y)
	case "==":
		return truth(x == y), true
	case "!=":
		return truth(x != y), true
	case "<":
		return truth(x < y), true
	case "<=":
		return truth(x <= y), true
	case ">":
		return truth(x > y), true
	case ">=":
		return truth(x >= y), true
	}
	return Number{}, false
}
