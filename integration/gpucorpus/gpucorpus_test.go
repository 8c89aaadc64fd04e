// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
)

// TestMain makes the test's program the child that it starts, as main does.
func TestMain(m *testing.M) {
	if os.Getenv(rehearsing) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func report(t *testing.T, args ...string) (r Report, text string, failed bool) {
	t.Helper()
	dir := t.TempDir()
	failed, err := command(t.Context(), append([]string{"-out", dir, "-budget", "30m"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(filepath.Join(dir, "corpus.md"))
	if err != nil {
		t.Fatal(err)
	}
	return r, string(md), failed
}

// TestRehearsal: everything but the driver, on a few programs.
func TestRehearsal(t *testing.T) {
	r, text, failed := report(t, "-rehearse", "-scale", "16384", "-workers", "2",
		"-only", "reduce_shared,collatz,globals,generic_pointers,a loop without barriers that computes")
	if failed {
		t.Error(text)
	}
	if !r.Rehearsal || r.Device["name"] != curun.Rehearsal || !strings.Contains(text, "no GPU") {
		t.Error("a rehearsal looks like a run on a GPU")
	}
	if len(r.Programs) != 4 || len(r.Benches) != 2 || len(r.Loops) != 1 {
		t.Fatalf("%d programs, %d benchmarks, %d loops", len(r.Programs), len(r.Benches), len(r.Loops))
	}
	for _, p := range r.Programs {
		pausable := p.Name != "generic_pointers" && p.Name != "globals"
		if !p.Own.Passed || !p.Ours.Passed || p.Stepped.Passed != pausable || p.Moved.Passed != pausable {
			t.Errorf("%s: %+v", p.Name, p)
		}
		if !p.OpenCL.Passed || p.ToPoCL.Passed != pausable {
			t.Errorf("%s through OpenCL: %+v, %+v", p.Name, p.OpenCL, p.ToPoCL)
		}
		if pausable && (p.Stepped.inside() == 0 || p.Moved.inside() == 0 || p.ToPoCL.inside() == 0) {
			t.Errorf("%s was never stopped inside", p.Name)
		}
	}
	for _, b := range r.Benches {
		if len(b.Own) != rounds || len(b.Ours) != rounds || b.Error != "" {
			t.Errorf("%+v", b)
		}
	}
}

// TestNoGPU: without a driver there is an error, and no report of anything.
func TestNoGPU(t *testing.T) {
	dir := t.TempDir()
	failed, err := command(t.Context(), []string{"-out", dir, "-libcuda", filepath.Join(dir, "none.so")})
	if err == nil || !failed || !strings.Contains(err.Error(), "none.so") {
		t.Errorf("%v, %v", failed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "corpus.json")); err == nil {
		t.Error("there is a report")
	}
}

// TestBroken: a child that ends at once fails each program by itself, and the
// report has them all.
func TestBroken(t *testing.T) {
	s := &suite{config: config{program: "/bin/false"}, report: Report{Base: base}}
	s.scale = 1
	s.only = "reduce_shared,collatz"
	s.workers = 1
	s.programs(t.Context())
	s.loops(t.Context())
	if len(s.report.Programs) != 2 || !s.report.Failed() {
		t.Fatalf("%+v", s.report.Programs)
	}
	for _, p := range s.report.Programs {
		if p.Own.Passed || p.Own.Error == "" {
			t.Errorf("%+v", p.Own)
		}
	}
}

// TestNVCC: a program that does as if it were nvcc, and knows one of two files.
func TestNVCC(t *testing.T) {
	kernels, err := filepath.Abs("../../compiler/corpus/kernels")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n[ $1 != --version ] || { echo release 0; exit; }\n" +
		"while [ $1 != -o ]; do shift; done; f=${3%.cu}; [ $f != bitonic ] && [ -f nvcc.h ] && cp " + kernels + "/$f.ptx $2\n"
	if err := os.WriteFile(filepath.Join(dir, "nvcc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r, text, failed := report(t, "-rehearse", "-workers", "1", "-parts", "nvcc", "-only", "collatz,bitonic")
	if !failed || r.NVCC.Version != "release 0" || r.NVCC.Errors["bitonic"] == "" || len(r.NVCC.Programs) != 1 || !r.NVCC.Programs[0].Moved.Passed {
		t.Error(text)
	}
}

func TestFold(t *testing.T) {
	got := fold([]*Program{
		{Name: "one", Ours: Outcome{Error: "kernel one is lost"}},
		{Name: "two", Ours: Outcome{Error: "kernel two is lost"}},
		{Name: "three", Own: Outcome{Error: "other"}},
	})
	if len(got) != 2 || got[0] != "**one, two**: our PTX: kernel one is lost" || got[1] != "**three**: own PTX: other" {
		t.Errorf("%q", got)
	}
}

// TestProbes: small kernels do on PoCL what they are to do.
func TestProbes(t *testing.T) {
	s := &suite{config: config{rehearse: true}}
	nvidia, _ := s.platforms(t.Context(), t.TempDir())
	for _, k := range probes[:3] {
		want := "[1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0]"
		if k.name == "nothing" {
			want = "[0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0]"
		}
		if got := probe(t.Context(), nvidia.options, k.text); got != want {
			t.Errorf("%s: %s", k.name, got)
		}
	}
}

func TestFailures(t *testing.T) {
	p := &Program{Ours: Outcome{Error: "wrong"}, Moved: Outcome{Error: "lost"}}
	if got := strings.Join(p.Failures(), "; "); got != "our PTX: wrong; moved to the interpreter and back: lost" {
		t.Error(got)
	}
	for _, c := range []struct {
		bench Bench
		want  string
	}{
		{Bench{Class: "barrier-pausable", Cost: 0.014}, "met"},
		{Bench{Class: "barrier-pausable", Cost: 0.016}, "missed"},
		{Bench{Class: "back-edge-pausable", Cost: 0.049}, "met"},
		{Bench{Class: "back-edge-pausable", Cost: 0.051}, "missed"},
		{Bench{Error: "trap"}, "trap"},
		{Bench{Worst: true, Cost: 9}, "worst case: nothing but barriers"},
	} {
		if got := c.bench.verdict(); got != c.want {
			t.Errorf("%+v: %s", c.bench, got)
		}
	}
}
