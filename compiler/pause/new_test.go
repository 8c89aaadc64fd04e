// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

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

func plans(m *ir.Module) []*Plan {
	var all []*Plan
	for _, f := range m.Funcs {
		if f.Kernel {
			all = append(all, New(m, f))
		}
	}
	return all
}

// TestGolden: a file has a module, and behind "====" what Explain and Layout say.
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
			before, after, _ := strings.Cut(string(text), "====\n")
			m := parse(t, before)
			all := plans(m)
			got := Explain(m, all)
			if strings.HasPrefix(before, "// layout\n") {
				layout, err := Layout(all)
				if err != nil {
					t.Fatal(err)
				}
				got += string(layout)
			}
			if *update {
				if err := os.WriteFile(file, []byte(before+"====\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != after {
				t.Errorf("got\n%s\nwant\n%s", got, after)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	p := &Plan{SharedBytes: 48, LocalBytes: 32, ThreadBytes: 64}
	// 5 words of status are 20 bytes, 32 with what fills them up. An area has
	// 48+100 bytes of shared memory, 160 with that, and 96 for each thread.
	if got := p.StatusBytes(5); got != 32 {
		t.Errorf("status %d", got)
	}
	if got := p.ValuesOffset(100); got != 160 {
		t.Errorf("values at %d", got)
	}
	if got := p.LocalOffset(3, 100); got != 160+3*64 {
		t.Errorf("local at %d", got)
	}
	if got := p.AreaBytes(3, 100); got != 160+3*96 {
		t.Errorf("area %d", got)
	}
	if got := p.StateBytes(5, 3, 100); got != 32+5*(160+3*96) {
		t.Errorf("state %d", got)
	}
}

// TestColumnsAreAligned: whatever the number of threads, each value lies at a
// multiple of its size, and no two overlap.
func TestColumnsAreAligned(t *testing.T) {
	text, err := os.ReadFile("testdata/barriers.txt")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "====\n")
	for _, p := range plans(parse(t, before)) {
		for _, threads := range []int64{1, 3, 33, 1024} {
			for i := range p.Points {
				end := int64(0)
				for _, v := range p.Points[i].Values {
					size := int64(v.Type.Size())
					if at := v.Offset * threads; at%size != 0 || at < end {
						t.Errorf("%s, point %d, %d threads: %+v at %d", p.Func.Name, i+1, threads, v, at)
					}
					end = v.Offset*threads + size*threads
				}
				if end > p.ThreadBytes*threads {
					t.Errorf("%s: %d bytes of values, %d for them", p.Func.Name, end, p.ThreadBytes*threads)
				}
			}
		}
	}
}
