// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/version"
)

// Report is corpus.json.
type Report struct {
	// Rehearsal: the interpreter ran it all, and nothing is about a GPU.
	Rehearsal bool              `json:"rehearsal"`
	Started   time.Time         `json:"started"`
	Seconds   float64           `json:"seconds"`
	HetGPU    string            `json:"hetgpu"`
	Device    map[string]string `json:"device"`
	Base      uint64            `json:"base"`
	// OpenCL is NVIDIA's platform.
	OpenCL   *platform  `json:"opencl,omitempty"`
	PoCL     *platform  `json:"pocl,omitempty"`
	Programs []*Program `json:"programs"`
	NVCC     *NVCC      `json:"nvcc,omitempty"`
	Loops    []*Loop    `json:"loops"`
	Benches  []*Bench   `json:"benchmarks"`
}

// Program is what became of one of the corpus' programs.
type Program struct {
	Name    string    `json:"name"`
	File    string    `json:"file"`
	Kernels []*Kernel `json:"kernels"`
	// Bytes of our PTX.
	Bytes int `json:"ptx_bytes"`
	// Own: the program's own PTX. Ours: ours, not stopped. Stopped: by flags that went
	// up at any time, from process to process. Stepped: at point after point. Moved:
	// the same, with the interpreter in between. OpenCL: through NVIDIA's, not stopped.
	// OpenCLMoved: stopped, with the interpreter in between. ToPoCL: our PTX on the
	// GPU, and PoCL in between.
	Own     Outcome `json:"own"`
	Ours    Outcome `json:"ours"`
	Stopped Outcome `json:"stopped"`
	Stepped Outcome `json:"stepped"`
	Moved   Outcome `json:"moved"`

	OpenCL      Outcome `json:"opencl"`
	OpenCLMoved Outcome `json:"opencl_moved"`
	ToPoCL      Outcome `json:"to_pocl"`
}

// Kernel is one of a program's.
type Kernel struct {
	Name   string `json:"name"`
	Class  string `json:"class"`
	Points int    `json:"points"`
	// Refused is why it is not paused on NVIDIA's devices.
	Refused string         `json:"refused,omitempty"`
	Own     curun.Function `json:"own"`
	Ours    curun.Function `json:"ours"`
}

// Outcome is what became of one way to run a program.
type Outcome struct {
	Passed         bool    `json:"passed"`
	NotRun         string  `json:"not_run,omitempty"`
	Error          string  `json:"error,omitempty"`
	Seconds        float64 `json:"seconds,omitempty"`
	CompileSeconds float64 `json:"compile_seconds,omitempty"`
	CodeBytes      int     `json:"code_bytes,omitempty"`
	Log            string  `json:"log,omitempty"`
	// Runs of the whole program, legs of all of them, and how often a kernel was
	// stopped after its beginning.
	Runs   int            `json:"runs,omitempty"`
	Legs   int            `json:"legs,omitempty"`
	Inside map[string]int `json:"inside,omitempty"`
}

func (o *Outcome) add(p harness.Path) {
	o.Runs++
	o.Legs += len(p.Legs)
	for k, n := range p.Inside {
		if o.Inside == nil {
			o.Inside = map[string]int{}
		}
		o.Inside[k] += n
	}
}

func (o *Outcome) inside() (n int) {
	for _, i := range o.Inside {
		n += i
	}
	return n
}

// ways are the ways to run a program, in their order.
var ways = []struct {
	name string
	of   func(*Program) *Outcome
}{
	{"own PTX", func(p *Program) *Outcome { return &p.Own }},
	{"our PTX", func(p *Program) *Outcome { return &p.Ours }},
	{"stopped at any time", func(p *Program) *Outcome { return &p.Stopped }},
	{"stopped at each point", func(p *Program) *Outcome { return &p.Stepped }},
	{"moved to the interpreter and back", func(p *Program) *Outcome { return &p.Moved }},
	{"moved to PoCL and back", func(p *Program) *Outcome { return &p.ToPoCL }},
	{"NVIDIA's OpenCL", func(p *Program) *Outcome { return &p.OpenCL }},
	{"NVIDIA's OpenCL, moved to the interpreter and back", func(p *Program) *Outcome { return &p.OpenCLMoved }},
}

// Failures are what went wrong.
func (p *Program) Failures() []string {
	var all []string
	for _, way := range ways {
		if e := way.of(p).Error; e != "" {
			all = append(all, way.name+": "+e)
		}
	}
	return all
}

// Failed says that something went wrong. A limit that was missed does not: the
// report tells.
func (r *Report) Failed() bool {
	all := r.Programs
	if r.NVCC != nil {
		if len(r.NVCC.Errors) > 0 {
			return true
		}
		all = slices.Concat(all, r.NVCC.Programs)
	}
	for _, p := range all {
		if len(p.Failures()) > 0 {
			return true
		}
	}
	for _, b := range r.Benches {
		if b.Error != "" {
			return true
		}
	}
	for _, l := range r.Loops {
		if l.Error != "" {
			return true
		}
	}
	return false
}

// Summary says how many programs passed each way.
func (r *Report) Summary() string {
	text := summary(r.Programs)
	if r.NVCC != nil && r.NVCC.Missing == "" {
		text += fmt.Sprintf("; PTX by nvcc (%d files not compiled): %s", len(r.NVCC.Errors), summary(r.NVCC.Programs))
	}
	return text
}

func summary(programs []*Program) string {
	var text []string
	for _, way := range ways {
		t := count(programs, way.of)
		if t.passed+t.failed == 0 {
			continue
		}
		line := fmt.Sprintf("%s: %d passed, %d failed", way.name, t.passed, t.failed)
		if t.inside > 0 {
			line += fmt.Sprintf(" (%d stops inside kernels)", t.inside)
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}

// totals of one way.
type totals struct{ passed, failed, notRun, runs, legs, inside int }

func count(programs []*Program, of func(*Program) *Outcome) (t totals) {
	for _, p := range programs {
		o := of(p)
		switch {
		case o.Passed:
			t.passed++
		case o.Error != "":
			t.failed++
		default:
			t.notRun++
		}
		t.runs, t.legs, t.inside = t.runs+o.Runs, t.legs+o.Legs, t.inside+o.inside()
	}
	return t
}

// Write writes corpus.json and corpus.md.
func (r *Report) Write(dir string) error {
	r.HetGPU = version.Version
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	r.markdown(&text)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "corpus.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "corpus.md"), []byte(text.String()), 0o644))
}

// cell is text in a table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(strings.TrimSpace(s))
}

func (r *Report) markdown(w io.Writer) {
	fmt.Fprintln(w, "# The compiler's corpus on a GPU")
	if r.Rehearsal {
		fmt.Fprintln(w, "\n**A rehearsal: the interpreter ran it, no GPU. It says nothing about any hardware.**")
	}
	fmt.Fprintf(w, "\n%s, hetGPU %s: %s, sm_%s, %s multiprocessors, driver's CUDA %s; %.0f s.\n",
		r.Started.Format(time.DateTime), r.HetGPU, r.Device["name"], r.Device["sm"], r.Device["multiprocessors"], r.Device["cuda"], r.Seconds)
	for _, p := range []*platform{r.OpenCL, r.PoCL} {
		if p != nil {
			fmt.Fprintf(w, "\nOpenCL: %s. %s\n", p.Name, cell(p.Missing))
			for _, note := range p.Notes {
				fmt.Fprintf(w, "- %s\n", cell(note))
			}
		}
	}
	if len(r.Programs) > 0 {
		fmt.Fprint(w, "\n## Programs\n\n")
		programs(w, r.Programs)
		kernels(w, r.Programs)
	}
	if r.NVCC != nil {
		r.NVCC.markdown(w)
	}
	if len(r.Loops) > 0 {
		r.loops(w)
	}
	if len(r.Benches) > 0 {
		r.benches(w)
	}
}

func programs(w io.Writer, all []*Program) {
	fmt.Fprintf(w, "| %d programs | passed | failed | not run | runs | legs | stops inside kernels |\n|---|---|---|---|---|---|---|\n", len(all))
	for _, way := range ways {
		t := count(all, way.of)
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d |\n", way.name, t.passed, t.failed, t.notRun, t.runs, t.legs, t.inside)
	}
	fmt.Fprintln(w)
	for _, f := range fold(all) {
		fmt.Fprintf(w, "- %s\n", cell(f))
	}
}

// fold puts together what failed in one way in several programs.
func fold(all []*Program) []string {
	var order []string
	alike := map[string][]string{}
	first := map[string]string{}
	for _, p := range all {
		for _, f := range p.Failures() {
			kind := strings.ReplaceAll(f, p.Name, "")
			if alike[kind] == nil {
				order = append(order, kind)
				first[kind] = f
			}
			alike[kind] = append(alike[kind], p.Name)
		}
	}
	var lines []string
	for _, kind := range order {
		names := alike[kind]
		lines = append(lines, fmt.Sprintf("**%s**: %s", strings.Join(names, ", "), first[kind]))
	}
	return lines
}

func (n *NVCC) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## The same, PTX by nvcc\n\n%s%s: %d files are not compiled.\n\n", n.Version, cell(n.Missing), len(n.Errors))
	for _, file := range slices.Sorted(maps.Keys(n.Errors)) {
		fmt.Fprintf(w, "- %s.cu: %s\n", file, cell(n.Errors[file]))
	}
	if len(n.Programs) > 0 {
		fmt.Fprintln(w)
		programs(w, n.Programs)
	}
}

func kernels(w io.Writer, all []*Program) {
	fmt.Fprint(w, "\n### Kernels\n\nRegisters, and bytes of local memory of each thread (with registers that are spilled), of the program's own kernel and of ours; bytes of all machine code of the file.\n\n",
		"| kernel | class | points | registers | ours | local | ours | code | ours |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range all {
		for _, k := range p.Kernels {
			class := k.Class
			if k.Points > 0 && k.Refused != "" {
				class += ", not on NVIDIA: " + k.Refused
			}
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d | %d | %d |\n", k.Name, cell(class), k.Points,
				k.Own.Registers, k.Ours.Registers, k.Own.Local, k.Ours.Local, p.Own.CodeBytes, p.Ours.CodeBytes)
		}
	}
}
