// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"strconv"
	"strings"
)

// SyntaxError is what is wrong with a text, and where.
type SyntaxError struct {
	Line, Col int // from 1
	Msg       string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Col, e.Msg) }

type tokenKind uint8

const (
	endToken    tokenKind = iota
	nameToken             // a word, a number, or a name with its sigil
	stringToken           // text without its quotes
	punctToken
)

type token struct {
	kind tokenKind
	text string
	col  int
}

// line is one line's tokens, and how many of them are read.
type line struct {
	number int
	tokens []token
	next   int
	width  int
}

// scan splits a text into lines of tokens; empty ones are left out.
func scan(text string) ([]*line, error) {
	var lines []*line
	number := 0
	for s := range strings.Lines(text) {
		number++
		l := &line{number: number}
		if err := l.scan(strings.TrimRight(s, "\r\n")); err != nil {
			return nil, err
		}
		if len(l.tokens) > 0 {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '%' || c == '.'
}

// validName tells of what the text form can have as a name.
func validName(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func (l *line) scan(s string) error {
	l.width = len(s)
	for i := 0; i < len(s); {
		start := i
		switch c := s[i]; {
		case c == ' ' || c == '\t':
			i++
			continue
		case strings.HasPrefix(s[i:], "//"):
			return nil
		case nameByte(c) || c == '@' && i+1 < len(s) && nameByte(s[i+1]):
			for i++; i < len(s) && nameByte(s[i]); i++ {
			}
			l.tokens = append(l.tokens, token{nameToken, s[start:i], start + 1})
		case c == '"':
			quoted, err := strconv.QuotedPrefix(s[i:])
			if err != nil {
				return &SyntaxError{l.number, start + 1, "a string without its end"}
			}
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return &SyntaxError{l.number, start + 1, "a string that can't be read"}
			}
			i += len(quoted)
			l.tokens = append(l.tokens, token{stringToken, value, start + 1})
		case strings.HasPrefix(s[i:], "->"):
			i += 2
			l.tokens = append(l.tokens, token{punctToken, "->", start + 1})
		case strings.IndexByte("[](){},:!=+-/@", c) >= 0:
			i++
			l.tokens = append(l.tokens, token{punctToken, s[start:i], start + 1})
		default:
			return &SyntaxError{l.number, start + 1, fmt.Sprintf("unexpected character %q", c)}
		}
	}
	return nil
}

// errorf reports an error at the token that was read last.
func (l *line) errorf(format string, args ...any) error {
	at := &SyntaxError{Line: l.number, Col: 1, Msg: fmt.Sprintf(format, args...)}
	if l.next > 0 && l.next <= len(l.tokens) {
		at.Col = l.tokens[l.next-1].col
	}
	return at
}

func (l *line) peek() token {
	if l.next < len(l.tokens) {
		return l.tokens[l.next]
	}
	return token{kind: endToken, col: l.width + 1}
}

func (l *line) take() token {
	t := l.peek()
	if t.kind != endToken {
		l.next++
	}
	return t
}

// accept takes the next token if it is that word or mark.
func (l *line) accept(text string) bool {
	if t := l.peek(); t.kind != stringToken && t.kind != endToken && t.text == text {
		l.next++
		return true
	}
	return false
}

func (l *line) expect(text string) error {
	if !l.accept(text) {
		l.take()
		return l.errorf("%q is missing here", text)
	}
	return nil
}

func (l *line) end() error {
	if t := l.peek(); t.kind != endToken {
		l.take()
		return l.errorf("%q is too much", t.text)
	}
	return nil
}

// sigil takes a name with a certain character before it.
func (l *line) sigil(c byte) (string, error) {
	t := l.take()
	if t.kind != nameToken || len(t.text) < 2 || t.text[0] != c {
		return "", l.errorf("a name that begins with %q is missing here", c)
	}
	return t.text[1:], nil
}

func (l *line) str() (string, error) {
	t := l.take()
	if t.kind != stringToken {
		return "", l.errorf("a string is missing here")
	}
	return t.text, nil
}

// number takes a number without a sign, of so many bits.
func (l *line) number64(bits int) (uint64, error) {
	t := l.take()
	if t.kind != nameToken {
		return 0, l.errorf("a number is missing here")
	}
	n, err := strconv.ParseUint(t.text, 0, bits)
	if err != nil {
		return 0, l.errorf("%q is not a number of %d bits", t.text, bits)
	}
	return n, nil
}

// size takes a number that fits in an int64.
func (l *line) size() (int64, error) {
	n, err := l.number64(63)
	return int64(n), err
}

// addend takes "+4", "-4" or nothing.
func (l *line) addend() (int64, error) {
	minus := l.accept("-")
	if !minus && !l.accept("+") {
		return 0, nil
	}
	n, err := l.number64(64)
	if err != nil {
		return 0, err
	}
	if minus {
		n = -n
	}
	return int64(n), nil
}

func (l *line) int32() (int32, error) {
	n, err := l.number64(31)
	return int32(n), err
}
