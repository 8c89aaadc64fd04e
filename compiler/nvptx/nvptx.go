// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package nvptx prints kernels as PTX again, with the means to pause them.
//
// The program's own instructions are printed as they were, with the hints for
// caches that the intermediate form does not know (ir.Instr.Text). What is added
// is a parameter, the launch (see Launch), a check of the flag at the pause
// points, and the saving of what lives there. A second kernel goes on with a
// launch that was paused: the same code with a way from its beginning to each
// point.
//
// The package decides nothing about pausing: that is package pause's. It knows
// no driver, and nothing of containers.
package nvptx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// LaunchParam is how the parameter is called that a pausable kernel has behind its
// own: a Launch, aligned to 8.
const LaunchParam = "hg_launch"

// Launch is the value of that parameter, little endian. It is passed by value, so
// that a block has it without a load from memory.
type Launch struct {
	// State is the address of the launch's status words. Before a launch begins they are
	// pause.Done: a block writes its own only if it stops, or does not begin.
	State uint64
	// Areas is where the first block's area begins, State +
	// pause.Plan.StatusBytes, and AreaBytes how long each is.
	Areas, AreaBytes uint64
	// Flag is the address of a u32 in global memory that is not 0 while the launch is to
	// pause.
	Flag uint64
	// Vars is the address of u64[], the addresses that states have for the module's
	// Global and Const variables, in the order of ir.Module.Vars, 0 for others; 0:
	// those that they have on the device.
	Vars uint64
	// Shared is how many bytes of dynamic shared memory the launch has.
	Shared uint32
	_      uint32
}

// LaunchBytes is how long a Launch is.
const LaunchBytes = 48

// Offsets into a Launch.
const (
	launchState     = 0
	launchAreas     = 8
	launchAreaBytes = 16
	launchFlag      = 24
	launchVars      = 32
	launchShared    = 40
)

// ResumeName returns the name of the kernel that goes on with a launch of another
// one: with the same grid, whatever the status of each block is.
func ResumeName(kernel string) string { return kernel + "__resume" }

// kernel returns the text of a pausable kernel: itself, under its name, and the
// one that resumes it. The kernel is a prepared one, without calls. Variables
// of the module are used by their names, which the rest of the module declares;
// shared ones that it doesn't are declared here.
func kernel(src *source, m *ir.Module, plan *pause.Plan, linkage ptx.Linkage, declared map[string]bool, checks Checks) (string, error) {
	if len(plan.Points) == 0 {
		return "", fmt.Errorf("kernel %s is %s: %s", plan.Func.Name, plan.Class, plan.Reason)
	}
	bases, ways, shape := findBases(plan), findWays(plan), newShape(plan, checks)
	var text strings.Builder
	for _, resume := range []bool{false, true} {
		e := newEmitter(plan, declared)
		e.bases, e.checks, e.linkage, e.src, e.shape = bases, checks, linkage, src, shape
		for i, v := range m.Vars {
			e.variables[v] = i
		}
		if e.name = plan.Func.Name; resume {
			e.name, e.ways = ResumeName(e.name), ways
		} else if !checks.Late {
			e.first = shape.first
		}
		if err := e.kernel(); err != nil {
			return "", fmt.Errorf("kernel %s: %w", e.name, err)
		}
		text.WriteString(e.out.String())
	}
	return text.String(), nil
}

// emitter prints one kernel.
type emitter struct {
	name    string
	linkage ptx.Linkage
	fn      *ir.Func
	plan    *pause.Plan
	bases   *bases
	ways    *ways // to the points; nil in the kernel that only begins at its beginning
	checks  Checks
	blocks  map[*ir.Block]int // their numbers, as labels have them
	points  map[*ir.Block][]int
	src     *source
	loc     ir.Pos // where the last instruction came from
	*shape
	first []int            // where this kernel decides whether it begins
	round int              // which round of a loop is being printed
	stubs map[stub]string  // labels of the ways out of loops, in round
	late  *strings.Builder // what stands behind all rounds
	// variables are the numbers that Launch.Vars counts.
	variables map[*ir.Var]int
	// vars are the dynamic shared arrays that the kernel declares, names what they
	// and the parameters are called. All other shared and local variables are parts
	// of one array each, at the places where states have them.
	vars   []*ir.Var
	names  map[*ir.Var]string
	out    *strings.Builder
	labels int // how many of our own there are
	// seldom prints what lies behind all else.
	seldom []func()
}

func newEmitter(plan *pause.Plan, declared map[string]bool) *emitter {
	e := &emitter{fn: plan.Func, plan: plan, blocks: map[*ir.Block]int{}, points: pointsOf(plan), variables: map[*ir.Var]int{}, stubs: map[stub]string{}, out: &strings.Builder{}, late: &strings.Builder{}}
	for i, b := range plan.Func.Blocks {
		e.blocks[b] = i
	}
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

// shape is how a kernel's loops are printed, and where it is checked: the same in the
// kernel that begins and in the one that resumes.
type shape struct {
	// unrolledLoops are the loops of which several rounds are printed, unrolled the
	// same by their blocks.
	unrolledLoops []*unrolled
	unrolled      map[*ir.Block]*unrolled
	sites         []site // of each point
	first         []int  // see firstPoints
}

func newShape(plan *pause.Plan, checks Checks) *shape {
	cfg := passes.NewCFG(plan.Func)
	dom := cfg.Dominators()
	loops := cfg.Loops(dom)
	s := &shape{}
	s.unrolledLoops, s.unrolled = findUnrolled(plan, cfg, dom, loops, checks)
	s.sites = findSites(plan, loops, cfg, dom, s.unrolled, checks.Barriers > 0)
	s.first = firstPoints(plan)
	if slices.ContainsFunc(s.first, func(n int) bool { return loops.Innermost[cfg.Number[plan.Points[n-1].Block]] != nil }) {
		s.first = nil // it would decide in each round
	}
	return s
}

// pointsOf returns the places in Points of those that each block has.
func pointsOf(plan *pause.Plan) map[*ir.Block][]int {
	of := map[*ir.Block][]int{}
	for i := range plan.Points {
		b := plan.Points[i].Block
		of[b] = append(of[b], i)
	}
	return of
}

// line prints a line of the body.
func (e *emitter) line(format string, args ...any) {
	e.out.WriteByte('\t')
	fmt.Fprintf(e.out, format, args...)
	e.out.WriteByte('\n')
}

// label returns a label that is used nowhere else.
func (e *emitter) label() string {
	e.labels++
	return fmt.Sprintf("$hg_%d", e.labels)
}

func (e *emitter) place(label string) { fmt.Fprintf(e.out, "%s:\n", label) }

// kernel prints the program's blocks first, and behind them what is seldom
// executed.
func (e *emitter) kernel() error {
	e.header()
	e.declare()
	e.prologue()
	e.polls()
	if e.ways != nil {
		e.resume()
	}
	for i, b := range e.fn.Blocks {
		if e.unused(b) {
			continue
		}
		e.place(blockLabel(i))
		e.passThrough(b)
		if err := e.block(b); err != nil {
			return err
		}
	}
	if err := e.rounds(); err != nil {
		return err
	}
	e.out.WriteString(e.late.String())
	e.unstarted()
	for i := range e.plan.Points {
		e.check(i + 1)
		e.save(i + 1)
	}
	e.saved()
	for _, behind := range e.seldom {
		behind()
	}
	if e.ways != nil {
		e.waysOn()
	}
	e.out.WriteString("}\n")
	return nil
}

func (e *emitter) header() {
	fmt.Fprintf(e.out, "\n%s.entry %s(\n", e.linkage, e.name)
	for _, p := range e.fn.Params {
		fmt.Fprintf(e.out, "\t.param .align %d .b8 %s[%d],\n", max(p.Align, 1), e.names[&p.Var], p.Size)
	}
	fmt.Fprintf(e.out, "\t.param .align 8 .b8 %s[%d]\n)\n", LaunchParam, LaunchBytes)
	triple := func(directive string, v [3]uint32) {
		if v != ([3]uint32{}) {
			fmt.Fprintf(e.out, "%s %d, %d, %d\n", directive, max(v[0], 1), max(v[1], 1), max(v[2], 1))
		}
	}
	triple(".maxntid", e.fn.Attrs.MaxThreads)
	triple(".reqntid", e.fn.Attrs.ReqThreads)
	if n := e.fn.Attrs.MinBlocks; n > 0 {
		fmt.Fprintf(e.out, ".minnctapersm %d\n", n)
	}
	if n := e.fn.Attrs.MaxRegs; n > 0 {
		fmt.Fprintf(e.out, ".maxnreg %d\n", n)
	}
	e.out.WriteString("{\n")
}

// declare declares the kernel's registers and variables, and ours. Of ours, only
// what checks keep from one to the next lives in the program's own code:
// %hg_count, %hg_budget and %hg_clock.
func (e *emitter) declare() {
	for i, r := range e.fn.Regs {
		e.line(".reg .%s %s;", r.Type, regName(e.fn, ir.Reg(i)))
	}
	for _, v := range e.vars {
		e.line(".extern .shared .align 16 .b8 %s[];", e.names[v])
	}
	e.array(ir.Shared, sharedArray, e.plan.Shared)
	e.array(ir.Local, localArray, e.plan.Local)
	e.line(".reg .b64 %%hg_area, %%hg_values, %%hg_a, %%hg_b, %%hg_t;")
	e.line(".reg .b32 %%hg_tid, %%hg_threads, %%hg_block, %%hg_point, %%hg_votes, %%hg_step, %%hg_size, %%hg_i, %%hg_v;")
	e.line(".reg .b32 %%hg_v0, %%hg_v1, %%hg_v2, %%hg_v3;")
	e.line(".reg .b32 %%hg_count, %%hg_budget, %%hg_clock, %%hg_role, %%hg_seen;")
	e.line(".reg .pred %%hg_p, %%hg_q, %%hg_slow, %%hg_asks, %%hg_resuming;")
}

// The arrays that a kernel's static shared variables, and its local ones, are in.
const (
	sharedArray = "hg_shared"
	localArray  = "hg_local_memory"
)

func (e *emitter) array(space ir.Space, name string, l *ir.Layout) {
	if e.checks.Pad > 0 {
		e.line(".%s .align 16 .b8 %s_pad[%d];", space, name, e.checks.Pad)
	}
	if l.Size > 0 {
		e.line(".%s .align %d .b8 %s[%d];", space, arrayAlign(l), name, l.Size)
	}
}

// arrayAlign returns to what an array is aligned that has all variables of a
// layout in it.
func arrayAlign(l *ir.Layout) int64 {
	align := int64(16)
	for _, v := range l.Vars {
		align = max(align, v.Align)
	}
	return align
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

// uni is what a branch's opcode has behind it that all threads of a block take
// together, if the kernel's threads pause together.
func (e *emitter) uni() string {
	if e.plan.Class == pause.BarrierPausable {
		return ".uni"
	}
	return ""
}
