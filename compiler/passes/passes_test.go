// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func TestPassesAreInOrder(t *testing.T) {
	at := func(name string) int {
		return slices.IndexFunc(Passes, func(p Pass) bool { return p.Name == name })
	}
	for _, o := range order {
		first, then := at(o.first), at(o.then)
		if first < 0 || then < 0 || first >= then {
			t.Errorf("%s must come before %s: %s", o.first, o.then, o.reason)
		}
	}
}

// runPass runs one pass, or all of them ("prepare"), with the verifier behind each.
func runPass(t *testing.T, m *ir.Module, name string) string {
	t.Helper()
	found := false
	for _, p := range Passes {
		if name != "prepare" && name != p.Name {
			continue
		}
		found = true
		if err := p.Run(m); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if err := ir.Verify(m); err != nil {
			t.Fatalf("behind %s: %v\n%s", p.Name, err, m)
		}
	}
	if !found {
		t.Fatalf("no pass %q", name)
	}
	return m.String()
}

// TestPrepared: whatever a test has for one pass, all passes together leave
// kernels without calls, and a second run changes nothing.
func TestPrepared(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(string(text), "====\n")
		m := parse(t, before)
		once := runPass(t, m, "prepare")
		for _, f := range m.Funcs {
			if f.Kernel && (hasCalls(f) || usesAlloca(f)) {
				t.Errorf("%s: @%s has calls or Alloca\n%s", file, f.Name, f)
			}
		}
		if err := Prepare(m); err != nil {
			t.Fatal(err)
		}
		if again := m.String(); again != once {
			t.Errorf("%s: a second run changed\n%s\nto\n%s", file, once, again)
		}
	}
}

// TestLongChainOfCalls: neither deep nor doubling chains of calls take more than
// they may.
func TestLongChainOfCalls(t *testing.T) {
	text := "kernel @k {\nentry:\n  call @f0() -> ()\n  exit\n}\n"
	for i := range 200 {
		next := "f" + string(rune('0'+(i+1)/100%10)) + string(rune('0'+(i+1)/10%10)) + string(rune('0'+(i+1)%10))
		name := "f" + string(rune('0'+i/100%10)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))
		if i == 0 {
			name = "f0"
		}
		body := "  call @" + next + "() -> ()\n  call @" + next + "() -> ()\n"
		if i == 199 {
			body = ""
		}
		text += "func @" + name + " {\nentry:\n" + body + "  ret\n}\n"
	}
	m := parse(t, text)
	runPass(t, m, "prepare")
	if n := instrCount(m.Func("k")); n > 10*maxInlined*200 {
		t.Errorf("%d instructions", n)
	}
}
