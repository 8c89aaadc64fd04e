// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package opencl writes a program as OpenCL C 1.2 with 64-bit pointers, for AMD,
// Intel, NVIDIA and the CPU (PoCL).
//
// Module takes a program without calls (package passes prepares it). Each kernel
// becomes an entry that starts blocks and others that resume them; docs/compiler.md
// has the convention of their launch. Two ways of writing control flow:
//
//   - natural: the program's own blocks with gotos, where all threads of a block
//     come together to each barrier and to each operation of a warp;
//   - general: a loop in which each thread has a program counter of its own, for
//     the other kernels. It is slower.
//
// Memory's addresses are the numbers that the program has; helpers for what
// OpenCL has not are in lib/, of which a module gets what it uses. Nothing here
// knows a device, or the host's OpenCL.
package opencl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Options are the options that the text must be built with, by every OpenCL
// compiler.
const Options = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"

// Mode is how a kernel's control flow is written.
type Mode uint8

// The modes.
const (
	Natural Mode = iota
	General
)

func (m Mode) String() string { return [...]string{"natural", "general"}[m] }

// Program is a module as OpenCL C.
type Program struct {
	Text    string
	Kernels []*Kernel // in the module's order
}

// Kernel tells how a kernel of the module is launched.
type Kernel struct {
	Plan *pause.Plan
	// Entry is the function that starts blocks. It is empty if the kernel can't be
	// written in OpenCL C: Reason says why.
	Entry string
	// Resume are the functions that resume blocks, by the blocks' status; Launches
	// tells which are needed.
	Resume []Resume
	// Mode is how Entry is written, Reason why it is not natural.
	Mode   Mode
	Reason string

	fixed, perThread int64
	large            bool // its points have one entry together
}

// Resume is an entry for the blocks that have one of these statuses.
type Resume struct {
	Statuses []uint32
	Entry    string
}

// Part is an entry with the blocks that it is to run, in order.
type Part struct {
	Entry  string
	Blocks []uint32
}

// Launches returns what to launch, one behind the other, to go on with blocks of
// which these are the status words. Those that have stopped come first, lest they
// hold what others wait for. The kernel must have an Entry.
func (k *Kernel) Launches(status []uint32) []Part {
	entries := slices.Concat(k.Resume, []Resume{{[]uint32{pause.NotStarted}, k.Entry}})
	if begun := func(s uint32) bool { return s != pause.NotStarted }; !slices.ContainsFunc(status, begun) {
		entries = entries[len(entries)-1:]
	}
	taken := make([]bool, len(status))
	var parts []Part
	for _, e := range entries {
		part := Part{Entry: e.Entry}
		for b, s := range status {
			if !taken[b] && slices.Contains(e.Statuses, s) {
				taken[b] = true
				part.Blocks = append(part.Blocks, uint32(b))
			}
		}
		if part.Blocks != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// LocalBytes is the size of an entry's second argument for so many threads in a
// block and bytes of dynamic shared memory: the shared memory, and what threads
// tell each other.
func (k *Kernel) LocalBytes(threads, dynamicShared int64) int64 {
	return k.Plan.SharedBytes + ir.AlignUp(dynamicShared, 16) + 4*(k.fixed+k.perThread*threads)
}

// Module writes a module's kernels. plans has the plan of each.
func Module(m *ir.Module, plans map[*ir.Func]*pause.Plan) (*Program, error) {
	w := &writer{
		m: m, vars: map[*ir.Var]int{}, made: &made{text: map[string]string{}}, names: map[string]bool{},
		pointers: map[*ir.Func]*passes.Pointers{},
	}
	for i, v := range m.Vars {
		w.vars[v] = i
	}
	p := &Program{}
	var text strings.Builder
	for _, f := range m.Funcs {
		if !f.Kernel {
			continue
		}
		plan := plans[f]
		if plan == nil {
			return nil, fmt.Errorf("opencl: kernel %s has no plan", f.Name)
		}
		w.pointers[f] = passes.FindPointers(m, f)
		k := &Kernel{Plan: plan}
		p.Kernels = append(p.Kernels, k)
		t, err := w.kernel(k)
		if u := new(Unsupported); errors.As(err, &u) {
			*k = Kernel{Plan: plan, Reason: u.Error()}
			continue
		} else if err != nil {
			return nil, err
		}
		text.WriteString(t)
	}
	body := w.made.String() + text.String()
	if strings.Contains(body, "double") {
		body = fp64 + "\n" + theLibrary.closure(body) + body
	} else {
		helpers := theLibrary.closure(body)
		if strings.Contains(helpers, "double") {
			helpers = fp64 + "\n" + helpers
		}
		body = helpers + body
	}
	p.Text = prologue + body
	return p, nil
}

// writer writes the kernels of one module.
type writer struct {
	m     *ir.Module
	vars  map[*ir.Var]int
	made  *made
	names map[string]bool
	// pointers tell where generic addresses can point.
	pointers map[*ir.Func]*passes.Pointers
}

// kernel writes a kernel's entries.
func (w *writer) kernel(k *Kernel) (string, error) {
	if k.Plan.Class == pause.NVIDIAOnly {
		return "", &Unsupported{Func: k.Plan.Func.Name, Pos: k.Plan.Pos, Reason: k.Plan.Reason}
	}
	k.Entry = w.name(k.Plan.Func.Name)
	k.Mode, k.Reason = modeOf(k.Plan.Func)
	k.large = isLarge(k.Plan)
	e := w.emitter(k, k.Mode)
	text, err := e.entry(k, k.begins(), 0)
	if err != nil {
		return "", err
	}
	if k.large {
		r := Resume{k.statuses(), k.Entry + "__ra"}
		t, err := w.emitter(k, General).entry(k, r.Entry, anyStatus)
		if err != nil {
			return "", err
		}
		k.Resume = append(k.Resume, r)
		return text + t, nil
	}
	for i, p := range k.Plan.Points {
		if p.Kind != pause.Barrier {
			continue
		}
		r := Resume{[]uint32{uint32(i + 1)}, fmt.Sprintf("%s__r%d", k.Entry, i+1)}
		t, err := w.resumer(k, p, r.Entry).entry(k, r.Entry, i+1)
		if err != nil {
			return "", err
		}
		k.Resume = append(k.Resume, r)
		text += t
	}
	if e.backEdges() {
		r := Resume{[]uint32{pause.ThreadPoints}, k.Entry + "__rt"}
		t, err := w.emitter(k, Natural).entry(k, r.Entry, -1)
		if err != nil {
			return "", err
		}
		k.Resume = append(k.Resume, r)
		text += t
	}
	if k.joint() {
		text += k.together()
	}
	return text, nil
}

// together makes the entries of a kernel whose blocks must be resumed together: the
// functions that others have as entries are called by one, each for its blocks.
func (k *Kernel) together() string {
	all := Resume{k.statuses(), k.Entry + "__ra"}
	var e emitter
	e.begin(entryHead + k.Entry)
	e.line("%s(hg, hg_shared);", k.begins())
	e.close()
	e.line("")
	e.begin(entryHead + all.Entry)
	e.line("const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);")
	e.line("switch (((__global const uint *)hg->state)[hg_b]) {")
	for _, r := range k.Resume {
		e.line("case %d: %s(hg, hg_shared); break;", r.Statuses[0], r.Entry)
	}
	e.line("default: %s(hg, hg_shared);", k.begins())
	e.line("}")
	e.close()
	k.Resume = []Resume{all}
	return e.out.String() + "\n"
}

// joint tells that the kernel's blocks are resumed together, by an entry that calls
// the functions for each point.
func (k *Kernel) joint() bool { return k.Plan.Waits && len(k.Plan.Points) > 0 && !k.large }

// largest is how many instructions the entries that resume a kernel's points may
// have together. A kernel with more is resumed by one, in general mode.
var largest = 100_000

// isLarge tells whether a kernel's points are too many, or too deep in loops, for an
// entry each. That would be the kernel for each point, and its loop for each loop
// around a point.
func isLarge(plan *pause.Plan) bool {
	if len(plan.Points) == 0 || plan.Points[0].Kind != pause.Barrier {
		return false
	}
	c := passes.NewCFG(plan.Func)
	loops := c.Loops(c.Dominators())
	size := func(blocks []int) int {
		n := 0
		for _, b := range blocks {
			n += len(c.Blocks[b].Instrs)
		}
		return n
	}
	all := 0
	for _, b := range c.Blocks {
		all += len(b.Instrs)
	}
	total := all * len(plan.Points)
	inside := map[*passes.Loop]int{}
	for _, p := range plan.Points {
		for _, loop := range loops.Around(c.Number[p.Block]) {
			if total > largest {
				return true
			}
			if inside[loop] == 0 {
				inside[loop] = size(loop.Blocks())
			}
			total += inside[loop]
		}
	}
	return total > largest
}

// statuses are all that blocks which are not done can have.
func (k *Kernel) statuses() []uint32 {
	all := []uint32{pause.NotStarted}
	for i := range k.Plan.Points {
		all = append(all, uint32(i+1))
	}
	return all
}

// begins is the function that starts blocks.
func (k *Kernel) begins() string {
	if k.joint() {
		return k.Entry + "__r0"
	}
	return k.Entry
}

// name makes an entry's name that is the module's only one.
func (w *writer) name(kernel string) string {
	name := mangle(kernel)
	for w.names[name] {
		name += "_"
	}
	w.names[name] = true
	return name
}

func (w *writer) emitter(k *Kernel, mode Mode) *emitter {
	f := k.Plan.Func
	e := &emitter{
		m: w.m, f: f, plan: k.Plan, shared: f.SharedLayout(w.m), local: f.LocalLayout(), vars: w.vars, pointers: w.pointers[f],
		order: map[*ir.Block]int{}, mode: mode, saved: map[int]bool{}, points: pointsOf(k.Plan), dispatched: map[*ir.Block]int{}, made: w.made,
	}
	for i, b := range f.Blocks {
		e.order[b] = i
	}
	e.slots, e.privateBytes = map[*ir.Var]int64{}, e.local.Size
	for _, v := range f.Vars {
		if v.Space == ir.Param {
			e.slots[v] = ir.AlignUp(e.privateBytes, max(v.Align, 16))
			e.privateBytes = e.slots[v] + v.Size
		}
	}
	return e
}

// resumer is an emitter for the entry that resumes blocks at a barrier. In natural
// mode that is a function of its own, which begins there and has no loop that is
// entered in the middle; where there is none, general mode.
func (w *writer) resumer(k *Kernel, p pause.Point, name string) *emitter {
	e := w.emitter(k, General)
	if k.Mode != Natural {
		return e
	}
	peeled, err := passes.Peel(e.f, p.Block, p.Index, name)
	if err != nil {
		return e
	}
	e.mode, e.f, e.origin, e.skipped = Natural, peeled.Func, peeled.Origin, p.Index+1
	e.pointers = passes.FindPointers(w.m, e.f)
	e.order = map[*ir.Block]int{}
	for i, b := range e.f.Blocks {
		e.order[b] = i
	}
	return e
}

// anyStatus, where a point is named, is where each block is.
const anyStatus = -2

// entry writes one entry, or what together calls: resume is 0 for the start, a point's number, -1 for
// threads with points of their own, or anyStatus (in general mode).
func (e *emitter) entry(k *Kernel, name string, resume int) (string, error) {
	e.depth = 1
	e.returns = e.mode == Natural && resume > 0 && len(e.plan.Points[resume-1].Polls) > 0
	e.dispatchCycles()
	if e.mode == General {
		e.general(resume)
	} else {
		begin := []*ir.Block{e.f.Blocks[0]}
		switch {
		case resume == 0:
			e.enter()
		case resume > 0:
			e.restore(resume)
		default:
			begin = e.restoreThreads()
		}
		e.natural(begin...)
	}
	if e.err != nil {
		return "", e.err
	}
	body := e.out.String()
	e.depth = 0
	k.fixed = max(k.fixed, int64(e.fixedWords()))
	buffers := int64(1)
	if e.mode == Natural {
		buffers = 2
	}
	k.perThread = max(k.perThread, buffers*int64(e.words))
	head := entryHead
	if k.joint() {
		head = functionHead
	}
	return e.wrap(head+name, body) + "\n", nil
}

// fixedWords is how many words of local memory a block has beside its threads'.
func (e *emitter) fixedWords() int {
	if e.mode == General {
		return generalWords + 4
	}
	if e.gathers() {
		return meetWords + 4
	}
	return meetWords
}
