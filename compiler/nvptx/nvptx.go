// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package nvptx prints kernels as PTX again, with the means to pause them.
//
// The program's own instructions are printed as they were, with the hints for
// caches that the intermediate form does not know (ir.Instr.Text). What is added
// is a parameter, the address of the launch (see Launch), a check of the flag at
// the pause points, the saving of what lives there, and for each point a kernel
// that goes on from it. PTX may jump into the middle of a loop, so those kernels
// are the same code behind another beginning.
//
// The package decides nothing about pausing: that is package pause's. It knows
// no driver, and nothing of containers.
package nvptx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Offsets into a launch's description, which all back ends share: see package
// opencl's struct hg_launch. Addresses of 8 bytes, then words of 4.
const (
	launchState  = 8
	launchList   = 16
	launchFlag   = 24
	launchGrid   = 48 // x, y, z
	launchShared = 72 // bytes of dynamic shared memory
)

// LaunchParam is how the parameter that a pausable kernel has behind its own is called:
// the address of the launch's description, 8 bytes, aligned to 8.
const LaunchParam = "hg_launch"

// ResumeName returns the name of the kernel that runs listed blocks from a point
// on, counted from 1; 0 is for blocks that have not started.
func ResumeName(kernel string, point int) string { return fmt.Sprintf("%s__r%d", kernel, point) }

// ThreadsName returns the name of the kernel that resumes blocks whose threads
// have points of their own.
func ThreadsName(kernel string) string { return kernel + "__threads" }

// kernel returns the text of a pausable kernel: itself, under its name, and the
// kernels that resume it. The kernel is a prepared one, without calls. Variables
// of the module are used by their names, which the rest of the module declares;
// shared ones that it doesn't are declared here.
func kernel(plan *pause.Plan, declared map[string]bool, checks Checks) (string, error) {
	var starts []start
	name := plan.Func.Name
	starts = append(starts, start{name: name}, start{name: ResumeName(name, 0), listed: true})
	switch plan.Class {
	case pause.BarrierPausable:
		for i := range plan.Points {
			starts = append(starts, start{name: ResumeName(name, i+1), listed: true, point: i + 1})
		}
	case pause.BackEdgePausable:
		starts = append(starts, start{name: ThreadsName(name), listed: true, threads: true})
	default:
		return "", fmt.Errorf("kernel %s is %s: %s", plan.Func.Name, plan.Class, plan.Reason)
	}
	var text strings.Builder
	bases := findBases(plan.Func)
	for _, s := range starts {
		e := newEmitter(plan, declared, s)
		e.bases, e.checks = bases, checks
		if err := e.kernel(); err != nil {
			return "", fmt.Errorf("kernel %s: %w", s.name, err)
		}
		text.WriteString(e.out.String())
	}
	return text.String(), nil
}

// start is where a kernel begins.
type start struct {
	name    string
	listed  bool // its blocks are those of the launch's list
	point   int  // 0: at the kernel's own beginning
	threads bool // each thread at its own point
}

// emitter prints one kernel.
type emitter struct {
	fn     *ir.Func
	plan   *pause.Plan
	bases  *bases
	start  start
	checks Checks
	// vars are the dynamic shared arrays that the kernel declares, names what they
	// and the parameters are called. All other shared and local variables are parts
	// of one array each, at the places where states have them.
	vars   []*ir.Var
	names  map[*ir.Var]string
	out    strings.Builder
	labels int // how many of our own there are
}

func newEmitter(plan *pause.Plan, declared map[string]bool, s start) *emitter {
	e := &emitter{fn: plan.Func, plan: plan, start: s}
	for _, v := range plan.Func.Vars {
		if v.Size == 0 {
			e.vars = append(e.vars, v)
		}
	}
	for _, v := range plan.Shared.Vars {
		if v.Size == 0 && !declared[v.Name] && !slices.Contains(e.vars, v) {
			e.vars = append(e.vars, v)
		}
	}
	e.names = varNames(plan.Func, e.vars, declared)
	return e
}

// line prints a line of the body.
func (e *emitter) line(format string, args ...any) {
	e.out.WriteByte('\t')
	fmt.Fprintf(&e.out, format, args...)
	e.out.WriteByte('\n')
}

// label returns a label that is used nowhere else.
func (e *emitter) label() string {
	e.labels++
	return fmt.Sprintf("$hg_%d", e.labels)
}

func (e *emitter) place(label string) { fmt.Fprintf(&e.out, "%s:\n", label) }

func (e *emitter) kernel() error {
	e.header()
	e.declare()
	e.prologue()
	if err := e.begin(); err != nil {
		return err
	}
	for i, b := range e.fn.Blocks {
		e.place(blockLabel(i))
		if err := e.block(b); err != nil {
			return err
		}
	}
	e.ends()
	for i := range e.plan.Points {
		e.save(i)
	}
	e.out.WriteString("}\n")
	return nil
}

func (e *emitter) header() {
	fmt.Fprintf(&e.out, "\n.visible .entry %s(\n", e.start.name)
	for _, p := range e.fn.Params {
		fmt.Fprintf(&e.out, "\t.param .align %d .b8 %s[%d],\n", max(p.Align, 1), e.names[&p.Var], p.Size)
	}
	fmt.Fprintf(&e.out, "\t.param .align 8 .b8 %s[8]\n)\n", LaunchParam)
	triple := func(directive string, v [3]uint32) {
		if v != ([3]uint32{}) {
			fmt.Fprintf(&e.out, "%s %d, %d, %d\n", directive, max(v[0], 1), max(v[1], 1), max(v[2], 1))
		}
	}
	triple(".maxntid", e.fn.Attrs.MaxThreads)
	triple(".reqntid", e.fn.Attrs.ReqThreads)
	if n := e.fn.Attrs.MinBlocks; n > 0 {
		fmt.Fprintf(&e.out, ".minnctapersm %d\n", n)
	}
	if n := e.fn.Attrs.MaxRegs; n > 0 {
		fmt.Fprintf(&e.out, ".maxnreg %d\n", n)
	}
	e.out.WriteString("{\n")
}

// declare declares the kernel's registers and variables, and ours.
func (e *emitter) declare() {
	for i, r := range e.fn.Regs {
		e.line(".reg .%s %s;", r.Type, regName(e.fn, ir.Reg(i)))
	}
	for _, v := range e.vars {
		e.line(".extern .shared .align %d .b8 %s[];", max(v.Align, 1), e.names[v])
	}
	e.array(ir.Shared, sharedArray, e.plan.SharedBytes)
	e.array(ir.Local, localArray, e.plan.LocalBytes)
	e.line(".reg .b64 %%hg, %%hg_flag, %%hg_area, %%hg_status, %%hg_values, %%hg_local, %%hg_a, %%hg_b, %%hg_t;")
	e.line(".reg .b32 %%hg_tid, %%hg_threads, %%hg_block, %%hg_count, %%hg_interval, %%hg_most, %%hg_bias, %%hg_votes, %%hg_clock, %%hg_i, %%hg_v;")
	e.line(".reg .b32 %%hg_cx, %%hg_cy, %%hg_cz, %%hg_nx, %%hg_ny, %%hg_nz;")
	e.line(".reg .pred %%hg_reads, %%hg_first, %%hg_p, %%hg_q, %%hg_slow, %%hg_saved;")
}

// The arrays that a kernel's static shared variables, and its local ones, are in.
const (
	sharedArray = "hg_shared"
	localArray  = "hg_local_memory"
)

func (e *emitter) array(space ir.Space, name string, size int64) {
	if e.checks.Pad > 0 {
		e.line(".%s .align 16 .b8 %s_pad[%d];", space, name, e.checks.Pad)
	}
	if size > 0 {
		e.line(".%s .align 16 .b8 %s[%d];", space, name, size)
	}
}

// dynamic is how a dynamic shared array of the kernel is called: all of them
// begin at the same place. "" without one.
func (e *emitter) dynamic() string {
	for _, v := range e.plan.Shared.Vars {
		if v.Size == 0 {
			return e.varName(v)
		}
	}
	return ""
}

// beginning is what lies where a space's part of a state begins.
func (e *emitter) beginning(space ir.Space) string {
	switch {
	case space == ir.Local:
		return localArray
	case e.plan.SharedBytes > 0:
		return sharedArray
	}
	return e.dynamic()
}

func blockLabel(i int) string { return fmt.Sprintf("$hg_block%d", i) }
