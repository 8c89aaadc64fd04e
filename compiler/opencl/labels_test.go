// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/random"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var (
	gotos  = regexp.MustCompile(`\bgoto (\w+);`)
	labels = regexp.MustCompile(`(?m)^\s*(\w+):`)
)

// TestLabels: in every function, those that resume too, what is gone to is there, once:
// also where only some of a program's blocks are written, and there is a switch.
func TestLabels(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	switched := 0
	for range 50 {
		decisions := make([]byte, 100+r.IntN(2000))
		for i := range decisions {
			decisions[i] = byte(r.Uint32())
		}
		_, text := random.Program(decisions)
		src, err := ptx.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := lower.Lower(src)
		if err == nil {
			err = passes.Prepare(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		plans := map[*ir.Func]*pause.Plan{}
		for _, f := range m.Funcs {
			if f.Kernel {
				plans[f] = pause.New(m, f)
			}
		}
		p, err := opencl.Module(m, plans)
		if err != nil {
			t.Fatal(err)
		}
		for function := range strings.SplitSeq(p.Text, "\n}\n") {
			there := map[string]int{}
			for _, label := range labels.FindAllStringSubmatch(function, -1) {
				there[label[1]]++
			}
			delete(there, "default")
			for label, n := range there {
				if n > 1 {
					t.Fatalf("%s is there %d times in %s\n%s", label, n, function, text)
				}
			}
			for _, jump := range gotos.FindAllStringSubmatch(function, -1) {
				if there[jump[1]] == 0 {
					t.Fatalf("%s is not there in %s\n%s", jump[1], function, text)
				}
			}
			if there["hg_dispatch"] > 0 && strings.Contains(function, "__r") {
				switched++
			}
		}
	}
	if switched < 8 {
		t.Errorf("%d functions that resume have a switch", switched)
	}
}
