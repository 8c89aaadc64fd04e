// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package compiler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

func corpus(tb testing.TB) map[string]string {
	tb.Helper()
	names, err := filepath.Glob("corpus/kernels/*.ptx")
	if err != nil || len(names) == 0 {
		tb.Fatal("there is no corpus", err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		texts[filepath.Base(name)] = string(text)
	}
	return texts
}

// TestSameBytes compiles the corpus twice for each target.
func TestSameBytes(t *testing.T) {
	for name, text := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			var first []string
			for round := range 2 {
				p, err := Load(text)
				if err != nil {
					t.Fatal(err)
				}
				layout, err := p.Layout()
				if err != nil {
					t.Fatal(err)
				}
				out := []string{p.Explain(), string(layout)}
				for _, target := range Targets() {
					s, err := p.Emit(target)
					if err != nil {
						t.Fatal(target, err)
					}
					if _, err := ptx.Parse(s); target == "ptx" && err != nil {
						t.Errorf("what was made is not read: %v", err)
					}
					out = append(out, s)
				}
				if round == 0 {
					first = out
					continue
				}
				for i := range out {
					if out[i] != first[i] {
						t.Errorf("output %d is not the same the second time", i)
					}
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	const head = ".version 8.3\n.target sm_90\n.address_size 64\n"
	for text, want := range map[string]string{
		"":                                     "1:1: PTX begins with .version",
		head + ".entry k() { frob; }":          `4:14: the instruction "frob" is not known`,
		head + ".entry k() { mov.b32 %r, 1; }": "4:22: %r is not declared",
	} {
		_, err := Load(text)
		if e := (*ptx.Error)(nil); err == nil || !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, not %q", err, want)
		}
	}
	p, err := Load(head)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Emit("fortran"); err == nil || !strings.Contains(err.Error(), `there is no target "fortran"`) {
		t.Error(err)
	}
}

// TestNVIDIAOnly wants the other kernels of the module unharmed.
func TestNVIDIAOnly(t *testing.T) {
	p, err := Load(`.version 8.3
.target sm_90a
.address_size 64
.entry fence() { wgmma.fence.sync.aligned; ret; }
.entry plain() { bar.sync 0; ret; }
`)
	if err != nil {
		t.Fatal(err)
	}
	explained := p.Explain()
	for _, want := range []string{
		"fence: nvidia-only: wgmma.fence.sync.aligned: it works with four warps' asynchronous matrix unit (PTX line 4)",
		"plain: barrier-pausable",
	} {
		if !strings.Contains(explained, want) {
			t.Errorf("%q is not in\n%s", want, explained)
		}
	}
	for _, target := range Targets() {
		if _, err := p.Emit(target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestExplainNVIDIA wants it said that a kernel is left as it is there.
func TestExplainNVIDIA(t *testing.T) {
	p, err := Load(corpus(t)["generic_pointers.ptx"])
	if err != nil {
		t.Fatal(err)
	}
	const want = "generic_pointers: not paused on NVIDIA's devices: rd29 holds an address whose base can't be told at the point in line 76\n"
	if explained := p.Explain(); !strings.Contains(explained, want) {
		t.Errorf("%q is not in\n%s", want, explained)
	}
}

// TestExplainPlaces: addresses that lie in memory are told of, and where they are stored.
func TestExplainPlaces(t *testing.T) {
	const head = ".version 8.3\n.target sm_90\n.address_size 64\n.global .u32 a; .global .u32 b;\n.global .u64 table[3] = {generic(b), generic(a), generic(b)}; .global .u64 number = 5;\n"
	const places = "table: has the addresses of b, a, which must lie at the same places where a kernel is resumed\n"
	for body, want := range map[string][]string{
		"bar.sync 0; ret;": {places},
		"ret;":             {}, // nothing is resumed
		".reg .b64 %d; mov.u64 %d, a;\nst.global.u64 [table], %d; bar.sync 0; ret;": {
			places, "k: not paused on NVIDIA's devices: addresses of shared or local memory, of variables or functions lie in memory (stored in line 7)\n",
		},
	} {
		p, err := Load(head + ".entry k() { " + body + " }\n")
		if err != nil {
			t.Fatal(err)
		}
		text := p.Explain()
		for _, line := range want {
			if !strings.Contains(text, line) {
				t.Errorf("%q is not in\n%s", line, text)
			}
		}
		if n := strings.Count(text, "must lie") + strings.Count(text, "not paused"); n != len(want) {
			t.Errorf("%s\nwant %q", text, want)
		}
	}
}

// lines makes a module of at least so many lines: the corpus' kernels, again and
// again under other names.
func lines(tb testing.TB, n int) string {
	tb.Helper()
	text := corpus(tb)["sha256.ptx"]
	start := strings.Index(text, ".visible .entry")
	if start < 0 {
		tb.Fatal("sha256.ptx has no kernel")
	}
	name := regexp.MustCompile(`\bsha256(_param_\d+)?\b`)
	var s strings.Builder
	s.WriteString(text[:start])
	for i := 0; strings.Count(s.String(), "\n") < n; i++ {
		s.WriteString(name.ReplaceAllString(text[start:], fmt.Sprintf("sha256_%d$1", i)))
	}
	return s.String()
}

// TestManyLoops compiles 10,000 loops one after the other, each with its points: time
// that grows with their square would be minutes here.
func TestManyLoops(t *testing.T) {
	const n = 10000
	var s strings.Builder
	s.WriteString(".version 8.3\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {\n.reg .b32 %r<3>; .reg .pred %p<2>;\nmov.u32 %r2, 0;\n")
	for i := range n {
		fmt.Fprintf(&s, "L%d: add.u32 %%r2, %%r2, 1;\nsetp.lt.u32 %%p1, %%r2, %d;\n@%%p1 bra L%d;\n", i, 10*i, i)
	}
	s.WriteString("ret;\n}\n")
	p, err := Load(s.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(p.Plans[0].Points); got != n {
		t.Errorf("%d points, not %d", got, n)
	}
	text, err := p.Emit("ptx")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(text, "\n$hg_check"); got != 2*n { // in the kernel, and in the one that resumes it
		t.Errorf("%d checks are printed, not %d", got, 2*n)
	}
}

// mostMemory is in MiB.
var mostMemory uint64 = 200

// TestMemory compiles 10,000 lines within 200 MiB, all that is ever allocated
// counted.
func TestMemory(t *testing.T) {
	text := lines(t, 10000)
	for _, target := range Targets() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		p, err := Load(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Emit(target); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > mostMemory {
			t.Errorf("%s: %d MiB were allocated", target, mib)
		}
	}
}

// BenchmarkCompile compiles 10,000 lines, on one core with -cpu 1.
func BenchmarkCompile(b *testing.B) {
	text := lines(b, 10000)
	for _, target := range Targets() {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p, err := Load(text)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Emit(target); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(strings.Count(text, "\n")), "lines")
		})
	}
}

// FuzzLoad takes anything to every target: what is parsed and lowered is
// compiled, or refused with an error.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"lower/testdata/*.ptx", "ptx/testdata/*.ptx", "corpus/kernels/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(text) < 8<<10 {
				f.Add(string(text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Load(text)
		if err != nil {
			return
		}
		if _, err := p.Layout(); err != nil {
			t.Error(err)
		}
		for _, target := range Targets() {
			s, err := p.Emit(target)
			if err != nil {
				continue
			}
			if target != "ptx" {
				continue
			}
			src, err := ptx.Parse(s)
			if err == nil {
				_, err = lower.Lower(src)
			}
			if err != nil {
				t.Errorf("what was made is not read: %v\n%s", err, s)
			}
		}
	})
}
