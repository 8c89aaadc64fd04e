// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions when they are first used. A
// package's variables are made whenever the shim's program starts, three times for
// each container, and most containers need none of ours. A [Regexp] in one costs
// nothing there: the compiler writes it into the program's data.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is an expression. Its methods are those of [regexp.Regexp]; they panic if
// the expression is wrong.
type Regexp struct {
	expression string
	once       sync.Once
	compiled   *regexp.Regexp
}

// New returns the expression. It has to be inlined, or a variable would be made by
// code: so it does nothing else.
func New(expression string) *Regexp { return &Regexp{expression: expression} }

func (r *Regexp) get() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.expression) })
	return r.compiled
}

// MatchString tells whether s has a match.
func (r *Regexp) MatchString(s string) bool { return r.get().MatchString(s) }

// FindStringSubmatch returns the first match in s and those of its groups; nil for
// none.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.get().FindStringSubmatch(s) }
