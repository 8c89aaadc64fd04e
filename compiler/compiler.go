// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package compiler takes a program in PTX to a form that can be paused on one
// device and go on on another: docs/compiler.md tells how.
//
// It is deterministic: the same text gives the same bytes, so that what comes out
// can be kept under the text's digest. It knows nothing of devices, drivers and
// containers.
package compiler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Program is a module of which it is known how each kernel can be paused.
type Program struct {
	// Source is what was parsed, which PTX for NVIDIA has most of.
	Source *ptx.Module
	// Module has kernels without calls, as passes.Prepare makes them.
	Module *ir.Module
	// Plans are the kernels', in the module's order.
	Plans []*pause.Plan
}

// Load reads PTX. An error in the program is a *ptx.Error. Changes are made behind
// the passes, of kernels without calls; pause.Prepare is one. What is saved of a kernel
// fits programs that were loaded with the same.
func Load(text string, changes ...func(*ir.Module)) (*Program, error) {
	src, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	m, err := lower.Lower(src)
	if err != nil {
		return nil, err
	}
	verify(m, "lower")
	if err := passes.Prepare(m); err != nil {
		return nil, err
	}
	verify(m, "passes")
	for _, change := range changes {
		change(m)
		verify(m, "a change")
	}
	p := &Program{Source: src, Module: m}
	for _, f := range m.Funcs {
		if f.Kernel && f.Blocks != nil {
			p.Plans = append(p.Plans, pause.New(m, f))
		}
	}
	return p, nil
}

// Leave makes a kernel run to its end, and leaves it as it is in PTX: for one that
// the driver refuses in the form that it gets here.
func (p *Program) Leave(kernel string) error {
	for i, plan := range p.Plans {
		if plan.Func.Name == kernel {
			p.Plans[i] = &pause.Plan{
				Func: plan.Func, Class: pause.RunsToEnd, Reason: "it is to be left as it is", Pos: plan.Func.Pos, Waits: plan.Waits,
				Shared: plan.Shared, Local: plan.Local, SharedBytes: plan.SharedBytes, LocalBytes: plan.LocalBytes,
			}
			return nil
		}
	}
	return fmt.Errorf("there is no kernel %q", kernel)
}

// verify finds our own mistakes: a program's are found before.
func verify(m *ir.Module, after string) {
	if err := ir.Verify(m); err != nil {
		panic(fmt.Sprintf("BUG: after %s: %v", after, err))
	}
}

// Explain says of each kernel how it is paused and why, which ones are not on NVIDIA's
// devices although others could, and which variables must keep their places: a text for
// people.
func (p *Program) Explain() string {
	var text strings.Builder
	text.WriteString(pause.Explain(p.Module, p.Plans))
	pauses := false
	for _, plan := range p.Plans {
		pauses = pauses || len(plan.Points) > 0
		if err := nvptx.Pausable(p.Module, plan); err != nil && len(plan.Points) > 0 {
			fmt.Fprintf(&text, "%s: not paused on NVIDIA's devices: %v\n", plan.Func.Name, err)
		}
	}
	for _, v := range p.Module.Vars {
		if of := pointsTo(v); pauses && len(of) > 0 {
			fmt.Fprintf(&text, "%s: has the addresses of %s, which must lie at the same places where a kernel is resumed\n", v.Name, strings.Join(of, ", "))
		}
	}
	return text.String()
}

// pointsTo returns the variables of which another one has the addresses in the
// beginning. Nobody changes these in memory.
func pointsTo(v *ir.Var) []string {
	var names []string
	for _, a := range v.Addresses {
		if a.Var != nil && !slices.Contains(names, a.Var.Name) {
			names = append(names, a.Var.Name)
		}
	}
	return names
}

// Layout returns what is saved of each kernel and where, as JSON.
func (p *Program) Layout() ([]byte, error) { return pause.Layout(p.Plans) }

// emitters are the target languages.
var emitters = map[string]func(*Program) (string, error){
	"ir":  func(p *Program) (string, error) { return p.Module.String(), nil },
	"ptx": func(p *Program) (string, error) { return nvptx.Module(p.Source, p.Module, p.Plans, nvptx.Checks{}) },
	"opencl": func(p *Program) (string, error) {
		plans := map[*ir.Func]*pause.Plan{}
		for _, plan := range p.Plans {
			plans[plan.Func] = plan
		}
		out, err := opencl.Module(p.Module, plans)
		if err != nil {
			return "", err
		}
		return out.Text, nil
	},
}

// Targets are the languages that Emit knows.
func Targets() []string {
	var names []string
	for name := range emitters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Emit writes the program in a target language.
func (p *Program) Emit(target string) (string, error) {
	emit := emitters[target]
	if emit == nil {
		return "", fmt.Errorf("there is no target %q, only %q", target, Targets())
	}
	return emit(p)
}
