// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions when they are first used. A
// package's variables are made whenever the shim's program starts, twice for
// each container, and most containers need none of ours.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns what compiles the expression on its first call. It panics there
// if the expression is wrong.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
