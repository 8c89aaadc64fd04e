// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

type tokenKind uint8

const (
	tEOF    tokenKind = iota
	tIdent            // name, %name, $name, _name
	tDot              // .word, with everything up to the next dot: ".shared::cta"
	tNumber           // num has it
	tString           // with its quotes
	tPunct            // one or two characters
)

type token struct {
	kind      tokenKind
	pos       int // in the source, bytes
	line, col int32
	text      string // of the source; a tDot's without the dot
	num       Number
}

func (t *token) is(punct string) bool { return t.kind == tPunct && t.text == punct }

func (t *token) describe() string {
	switch t.kind {
	case tEOF:
		return "the end of the text"
	case tDot:
		return strconv.Quote("." + clip(t.text))
	default:
		return strconv.Quote(clip(t.text))
	}
}

// clip keeps what a program says out of our errors where it is too long.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// lexer turns text into tokens. At the first error it says the end of the text
// for ever after, so nobody has to ask for errors on the way.
type lexer struct {
	src       string
	pos       int
	line      int32
	lineStart int
	err       *Error
}

func (l *lexer) fail(line, col int32, format string, args ...any) {
	if l.err == nil {
		l.err = &Error{Line: int(line), Col: int(col), Msg: fmt.Sprintf(format, args...)}
	}
	l.pos = len(l.src)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isWord(c byte) bool   { return isLetter(c) || isDigit(c) || c == '_' || c == '$' }

func (l *lexer) at(i int) byte {
	if l.pos+i < len(l.src) {
		return l.src[l.pos+i]
	}
	return 0
}

// skip passes space and comments.
func (l *lexer) skip() {
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == '\n':
			l.pos++
			l.line++
			l.lineStart = l.pos
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			l.pos++
		case c == '/' && l.at(1) == '/', c == '@' && strings.HasPrefix(l.src[l.pos:], "@@DWARF"):
			if end := strings.IndexByte(l.src[l.pos:], '\n'); end >= 0 {
				l.pos += end
			} else {
				l.pos = len(l.src)
			}
		case c == '/' && l.at(1) == '*':
			l.comment()
		default:
			return
		}
	}
}

func (l *lexer) comment() {
	end := strings.Index(l.src[l.pos+2:], "*/")
	if end < 0 {
		l.fail(l.line, l.col(), "the comment has no end")
		return
	}
	text := l.src[l.pos : l.pos+2+end]
	if n := strings.Count(text, "\n"); n > 0 {
		l.line += int32(n)
		l.lineStart = l.pos + strings.LastIndexByte(text, '\n') + 1
	}
	l.pos += len(text) + 2
}

func (l *lexer) col() int32 { return int32(l.pos - l.lineStart + 1) }

func (l *lexer) next() token {
	l.skip()
	t := token{pos: l.pos, line: l.line, col: l.col()}
	if l.pos >= len(l.src) {
		return t
	}
	c := l.src[l.pos]
	switch {
	case isLetter(c) || c == '_' || c == '$' || c == '%' && isWord(l.at(1)):
		t.kind = tIdent
		t.text = l.word(1)
	case isDigit(c):
		l.number(&t)
	case c == '.' && isWord(l.at(1)):
		l.pos++
		t.kind = tDot
		t.text = l.dotWord()
	case c == '"':
		l.quoted(&t)
	default:
		t.kind = tPunct
		t.text = l.punct()
		if t.text == "" {
			l.fail(t.line, t.col, "%q has no meaning here", c)
			t.kind = tEOF
		}
	}
	return t
}

func (l *lexer) word(from int) string {
	start := l.pos
	for l.pos += from; l.pos < len(l.src) && isWord(l.src[l.pos]); l.pos++ {
	}
	return l.src[start:l.pos]
}

// dotWord reads a modifier: words with "::" between them.
func (l *lexer) dotWord() string {
	start := l.pos
	l.word(0)
	for l.at(0) == ':' && l.at(1) == ':' && isWord(l.at(2)) {
		l.word(2)
	}
	return l.src[start:l.pos]
}

func (l *lexer) quoted(t *token) {
	for i := l.pos + 1; i < len(l.src) && l.src[i] != '\n'; i++ {
		switch l.src[i] {
		case '\\':
			i++
		case '"':
			t.kind, t.text = tString, l.src[l.pos:i+1]
			l.pos = i + 1
			return
		}
	}
	l.fail(t.line, t.col, "the string has no end")
}

const (
	pairs   = "<< >> <= >= == != && ||"
	singles = "(){}[]<>,;:+-*/%&|^~!?=@"
)

func (l *lexer) punct() string {
	if l.pos+2 <= len(l.src) {
		two := l.src[l.pos : l.pos+2]
		if two[1] > ' ' && strings.Contains(pairs, two) {
			l.pos += 2
			return two
		}
	}
	if strings.IndexByte(singles, l.src[l.pos]) < 0 {
		return ""
	}
	l.pos++
	return l.src[l.pos-1 : l.pos]
}

// number reads a literal: decimal, 0x, 0b and octal integers with or without a
// U, 0f with 8 and 0d with 16 hexadecimal digits, and decimal fractions.
func (l *lexer) number(t *token) {
	t.kind = tNumber
	start := l.pos
	if l.src[l.pos] == '0' {
		switch l.at(1) | 0x20 {
		case 'f':
			l.bits(t, 8, Float32)
			return
		case 'd':
			l.bits(t, 16, Float64)
			return
		}
	}
	for l.pos < len(l.src) && isWord(l.src[l.pos]) {
		l.pos++
	}
	text := l.src[start:l.pos]
	if !strings.HasPrefix(text, "0x") && !strings.HasPrefix(text, "0X") && (l.at(0) == '.' || strings.ContainsAny(text, "eE")) {
		l.decimal(t, start)
		return
	}
	t.text = text
	digits, base := text, 10
	switch {
	case len(text) > 2 && text[0] == '0' && text[1]|0x20 == 'x':
		digits, base = text[2:], 16
	case len(text) > 2 && text[0] == '0' && text[1]|0x20 == 'b':
		digits, base = text[2:], 2
	case len(text) > 1 && text[0] == '0' && isDigit(text[1]):
		digits, base = text[1:], 8
	}
	unsigned := strings.HasSuffix(digits, "U") || strings.HasSuffix(digits, "u")
	if unsigned {
		digits = digits[:len(digits)-1]
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		l.fail(t.line, t.col, "%q is no number of 64 bits", clip(text))
		return
	}
	t.num = Number{Bits: v}
	if unsigned || v > math.MaxInt64 {
		t.num.Kind = UnsignedInt
	}
}

func (l *lexer) bits(t *token, digits int, kind NumberKind) {
	t.text = l.word(2)
	v, err := strconv.ParseUint(t.text[2:], 16, 64)
	if err != nil || len(t.text) != digits+2 {
		l.fail(t.line, t.col, "%q is no floating point number: %d hexadecimal digits are needed", clip(t.text), digits)
	}
	t.num = Number{Bits: v, Kind: kind}
}

func (l *lexer) decimal(t *token, start int) {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		sign := (c == '-' || c == '+') && l.src[l.pos-1]|0x20 == 'e'
		if !isWord(c) && c != '.' && !sign {
			break
		}
		l.pos++
	}
	t.text = l.src[start:l.pos]
	v, err := strconv.ParseFloat(t.text, 64)
	if err != nil && !math.IsInf(v, 0) || strings.Contains(t.text, "_") {
		l.fail(t.line, t.col, "%q is no number", clip(t.text))
		return
	}
	t.num = Number{Bits: math.Float64bits(v), Kind: Float64}
}
