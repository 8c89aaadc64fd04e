// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"errors"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// TestCorpus: behind each pass the verifier accepts what became of real
// programs, their text makes them again, and each pause point can be resumed by a
// reducible kernel.
func TestCorpus(t *testing.T) {
	points := 0
	for _, file := range corpus.Files() {
		t.Run(file, func(t *testing.T) {
			m := lowered(t, file)
			verify(t, m, "lower")
			for _, p := range passes.Passes {
				if err := p.Run(m); err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
				verify(t, m, p.Name)
			}
			for _, f := range m.Funcs {
				if f.Kernel {
					points += peelAll(t, m, f)
				}
			}
		})
	}
	if points < 50 {
		t.Errorf("only %d pause points", points)
	}
}

func verify(t *testing.T, m *ir.Module, behind string) {
	t.Helper()
	if err := ir.Verify(m); err != nil {
		t.Fatalf("behind %s: %v", behind, err)
	}
	text := m.String()
	again, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("behind %s: its own text: %v", behind, err)
	}
	if again.String() != text {
		t.Fatalf("behind %s: its text makes another module", behind)
	}
}

func peelAll(t *testing.T, m *ir.Module, f *ir.Func) int {
	t.Helper()
	plan := pause.New(m, f)
	t.Log(pause.Explain(m, []*pause.Plan{plan}))
	for i := range plan.Points {
		p := &plan.Points[i]
		index := p.Index
		if p.Kind == pause.BackEdge {
			index = -1
		}
		peeled, err := passes.Peel(f, p.Block, index, "resume")
		if errors.Is(err, passes.ErrIrreducible) {
			t.Logf("@%s, point %d: %v", f.Name, i+1, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		funcs := append([]*ir.Func{peeled.Func}, m.Funcs...)
		if err := ir.Verify(&ir.Module{Vars: m.Vars, Funcs: funcs}); err != nil {
			t.Fatal(err)
		}
	}
	return len(plan.Points)
}
