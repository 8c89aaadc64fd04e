// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// analyses print what they find out about a module's first function.
var analyses = map[string]func(m *ir.Module, f *ir.Func) string{
	"uniformity": dumpUniformity,
	"liveness":   dumpLiveness,
	"loops":      dumpLoops,
	"pointers":   dumpPointers,
	"peel":       dumpPeeled,
}

// TestGolden: a file has the name of a pass or an analysis, a module, and what
// becomes of it or is found out about it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut(string(text), "\n")
			before, after, _ := strings.Cut(rest, "====\n")
			name := strings.TrimPrefix(head, "// ")
			m := parse(t, before)
			got := ""
			if analysis := analyses[name]; analysis != nil {
				got = analysis(m, m.Funcs[0])
			} else {
				got = runPass(t, m, name)
			}
			if *update {
				if err := os.WriteFile(file, []byte(head+"\n"+before+"====\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != after {
				t.Errorf("got\n%s\nwant\n%s", got, after)
			}
		})
	}
}

func parse(tb testing.TB, text string) *ir.Module {
	tb.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	if err := ir.Verify(m); err != nil {
		tb.Fatal(err)
	}
	return m
}

func names(f *ir.Func, set RegSet) string {
	var s []string
	for _, r := range set.Regs() {
		s = append(s, "%"+f.Regs[r].Name)
	}
	return strings.Join(s, " ")
}

func dumpUniformity(_ *ir.Module, f *ir.Func) string {
	var s strings.Builder
	c := NewCFG(f)
	u := c.Uniformity()
	var uniform, divergent []string
	for r := range f.Regs {
		if name := "%" + f.Regs[r].Name; u.Reg(ir.Reg(r)) {
			uniform = append(uniform, name)
		} else {
			divergent = append(divergent, name)
		}
	}
	fmt.Fprintf(&s, "uniform: %s\ndivergent: %s\n", strings.Join(uniform, " "), strings.Join(divergent, " "))
	for n, b := range c.Blocks {
		fmt.Fprintf(&s, "%s: together %v", b.Name, u.Block(n))
		if len(c.Succs[n]) > 1 {
			fmt.Fprintf(&s, ", leaves together %v", u.Branch(n))
		}
		s.WriteString("\n")
	}
	return s.String()
}

func dumpLiveness(_ *ir.Module, f *ir.Func) string {
	var s strings.Builder
	c := NewCFG(f)
	l := c.Liveness()
	for n, b := range c.Blocks {
		fmt.Fprintf(&s, "%s: %s\n", b.Name, names(f, l.In[n]))
		for i, in := range b.Instrs {
			fmt.Fprintf(&s, "  %s // %s\n", f.Text(in), names(f, l.After(n, i)))
		}
	}
	return s.String()
}

func dumpLoops(_ *ir.Module, f *ir.Func) string {
	var s strings.Builder
	c := NewCFG(f)
	dom, post := c.Dominators(), c.PostDominators()
	name := func(b int) string {
		if b < 0 {
			return "-"
		}
		return c.Blocks[b].Name
	}
	for n := range c.Blocks {
		fmt.Fprintf(&s, "%s: dominated by %s, post-dominated by %s\n", name(n), name(dom.Parent[n]), name(post.Parent[n]))
	}
	loops := c.Loops(dom)
	for _, l := range loops.All {
		fmt.Fprintf(&s, "loop %s:", name(l.Header))
		for _, b := range l.Blocks() {
			s.WriteString(" " + name(b))
		}
		if l.Parent != nil {
			fmt.Fprintf(&s, " in %s", name(l.Parent.Header))
		}
		s.WriteString("\n")
	}
	for _, e := range loops.Irreducible {
		fmt.Fprintf(&s, "irreducible: %s -> %s\n", name(e.From), name(e.To))
	}
	for n, again := range c.Cycles() {
		if again != (loops.Innermost[n] != nil) {
			fmt.Fprintf(&s, "%s: goes round without a loop\n", name(n))
		}
	}
	return s.String()
}

func dumpPointers(m *ir.Module, f *ir.Func) string {
	var s strings.Builder
	p := FindPointers(m, f)
	set := func(set SpaceSet) string {
		if set == AnySpace {
			return "any"
		}
		var list []string
		for space := ir.Global; space <= ir.Param; space++ {
			if set.Has(Spaces(space)) {
				list = append(list, space.String())
			}
		}
		return strings.Join(list, " ")
	}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			if len(in.Args) > 0 && (in.Op == ir.Ld || in.Op == ir.St || in.Op == ir.Atom) {
				fmt.Fprintf(&s, "%s // %s\n", f.Text(in), set(p.Accesses(in)))
			}
		}
	}
	for _, in := range p.Stores {
		fmt.Fprintf(&s, "keeps an address: %s\n", f.Text(in))
	}
	return s.String()
}

// dumpPeeled peels the function behind its first barrier.
func dumpPeeled(_ *ir.Module, f *ir.Func) string {
	for _, b := range f.Blocks {
		for i, in := range b.Instrs {
			if in.Op != ir.Bar {
				continue
			}
			p, err := Peel(f, b, i, f.Name+"__r1")
			if err != nil {
				return err.Error() + "\n"
			}
			return p.Func.String()
		}
	}
	return "no barrier\n"
}
