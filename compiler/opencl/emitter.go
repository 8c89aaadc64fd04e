// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// emitter writes the text of one kernel's function.
type emitter struct {
	m    *ir.Module
	f    *ir.Func
	plan *pause.Plan
	// shared and local lay out the kernel's memory, vars are the indices of the
	// module's variables.
	shared, local *ir.Layout
	vars          map[*ir.Var]int
	// slots are what calls passed, of functions that are written in place: private
	// memory behind the local one, privateBytes in all. No pause saves them.
	slots        map[*ir.Var]int64
	privateBytes int64
	pointers     *passes.Pointers
	// order are the blocks' labels.
	order map[*ir.Block]int
	mode  Mode
	// returns tells that the text begins, in natural mode, at a point to which threads
	// come from loops.
	returns bool
	// words is how many each thread has in local memory to tell others, saved are
	// the points that the text goes to.
	words int
	saved map[int]bool
	// points has the numbers of the plan's points.
	points map[pointAt]int
	// origin has for each block of a function that begins behind a barrier the one
	// that it is a copy of; of the first block's so many instructions are skipped.
	origin  map[*ir.Block]*ir.Block
	skipped int
	// dispatched are the blocks to which all ways lead over hg_dispatch.
	dispatched map[*ir.Block]int
	joins      []*ir.Block

	out   bytes.Buffer
	depth int
	// usesLocal tells that the text names hg_local. made are functions that the
	// text needs and the library has not.
	usesLocal bool
	made      *made
	err       *Unsupported
}

// Unsupported tells what this back end can't express.
type Unsupported struct {
	Func   string
	Pos    ir.Pos
	Reason string
}

func (u *Unsupported) Error() string {
	return fmt.Sprintf("%s: line %d: %s", u.Func, u.Pos.Line, u.Reason)
}

// fail keeps the first reason why the kernel can't be written.
func (e *emitter) fail(format string, args ...any) {
	if e.err == nil {
		e.err = &Unsupported{Func: e.f.Name, Reason: fmt.Sprintf(format, args...)}
	}
}

// line writes a line of code.
func (e *emitter) line(format string, args ...any) {
	e.out.WriteString(strings.Repeat("\t", e.depth))
	fmt.Fprintf(&e.out, format, args...)
	e.out.WriteByte('\n')
}

// label writes a label, with a statement as C wants it.
func (e *emitter) label(format string, args ...any) {
	fmt.Fprintf(&e.out, format+":;\n", args...)
}

// open begins a block of code, after a condition if there is one.
func (e *emitter) open(format string, args ...any) {
	head := fmt.Sprintf(format, args...)
	if head != "" {
		head += " "
	}
	e.line("%s{", head)
	e.depth++
}

func (e *emitter) close() {
	e.depth--
	e.line("}")
}

// capture returns what body writes.
func (e *emitter) capture(body func()) string {
	saved := e.out
	e.out = bytes.Buffer{}
	body()
	text := e.out.String()
	e.out = saved
	return text
}
