// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"embed"
	"regexp"
	"sort"
	"strings"
)

//go:embed lib/*.cl
var libraryFiles embed.FS

// libraryOrder is the order of the files: what is used comes before its users.
var libraryOrder = []string{"integer.cl", "softfloat.cl", "float.cl", "approx.cl", "minifloat.cl", "memory.cl", "warp.cl", "matrix.cl", "save.cl", "print.cl"}

var helperName = regexp.MustCompile(`\bhg_[A-Za-z0-9_]+`)

var functionName = regexp.MustCompile(`(?m)^static .*?\b(hg_[A-Za-z0-9_]+)\(`)

// helper is a piece of the library: one function, or structure, with its comment.
type helper struct {
	name, text string
	uses       []string
}

// library has all helpers in their order.
type library struct {
	helpers []helper
	index   map[string]int
}

var theLibrary = loadLibrary()

func loadLibrary() *library {
	l := &library{index: map[string]int{}}
	for _, file := range libraryOrder {
		text, err := libraryFiles.ReadFile("lib/" + file)
		if err != nil {
			panic("BUG: opencl: " + err.Error())
		}
		for _, h := range splitHelpers(string(text)) {
			l.index[h.name] = len(l.helpers)
			l.helpers = append(l.helpers, h)
		}
	}
	return l
}

// splitHelpers takes a file apart. A helper ends with a line that is empty, after
// its outermost brace is closed; its name is that of the function, or the first
// hg_ word of what is none.
func splitHelpers(text string) []helper {
	var all []helper
	var piece []string
	depth := 0
	flush := func() {
		code := strings.Join(piece, "\n")
		piece = nil
		bare := stripComments(code)
		names := helperName.FindAllString(bare, -1)
		if len(names) == 0 {
			return
		}
		name := names[0]
		if f := functionName.FindStringSubmatch(bare); f != nil {
			name = f[1]
		}
		all = append(all, helper{name: name, text: code + "\n", uses: names})
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" && depth == 0 {
			flush()
			continue
		}
		depth += strings.Count(line, "{") - strings.Count(line, "}")
		piece = append(piece, line)
	}
	flush()
	return all
}

func stripComments(code string) string {
	var out []string
	for line := range strings.SplitSeq(code, "\n") {
		if i := strings.Index(line, "//"); i >= 0 {
			line = line[:i]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// closure returns the text of the helpers that code uses, and of those that they
// use, in the library's order.
func (l *library) closure(code string) string {
	need := map[int]bool{}
	work := helperName.FindAllString(code, -1)
	for len(work) > 0 {
		name := work[len(work)-1]
		work = work[:len(work)-1]
		i, ok := l.index[name]
		if !ok || need[i] {
			continue
		}
		need[i] = true
		work = append(work, l.helpers[i].uses...)
	}
	order := make([]int, 0, len(need))
	for i := range need {
		order = append(order, i)
	}
	sort.Ints(order)
	var out strings.Builder
	for _, i := range order {
		out.WriteString(l.helpers[i].text + "\n")
	}
	return out.String()
}
