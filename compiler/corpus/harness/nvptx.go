// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// NVPTX returns a program's PTX that is for NVIDIA's devices.
func NVPTX(p *Program, checks nvptx.Checks) (string, error) {
	src, err := ptx.Parse(p.Text)
	if err != nil {
		return "", err
	}
	var plans []*pause.Plan
	for _, f := range p.Module.Funcs {
		if plan := p.Plans[f]; plan != nil {
			plans = append(plans, plan)
		}
	}
	return nvptx.Module(src, p.Module, plans, checks)
}

// entry is the kernel of that PTX which begins a launch, or goes on with it.
func entry(l *Launch) string {
	if slices.ContainsFunc(l.State[:4*l.Blocks()], func(b byte) bool { return b != 0 }) {
		return nvptx.ResumeName(l.Kernel.Name)
	}
	return l.Kernel.Name
}

// begin makes the statuses what they are before a launch begins: those of blocks that
// end by themselves.
func begin(l *Launch) {
	for b := range l.Blocks() {
		binary.LittleEndian.PutUint32(l.State[4*b:], pause.Done)
	}
}

// params is the parameter block of a kernel of that PTX: the launch's description
// is behind the program's own. state, flag and vars are their addresses.
func params(l *Launch, state, flag, vars uint64) ([]byte, error) {
	p := l.Params()
	p = append(p, make([]byte, (8-len(p)%8)%8)...)
	return binary.Append(p, binary.LittleEndian, nvptx.Launch{
		State: state, Areas: state + uint64(l.Plan.StatusBytes(int64(l.Blocks()))),
		AreaBytes: uint64(l.Plan.AreaBytes(int64(l.Threads()), int64(l.Shared))), Flag: flag, Vars: vars, Shared: l.Shared,
	})
}

// Interpreted runs the PTX that is for NVIDIA's devices in the interpreter: through
// the front end a second time, with a flag that goes up while it runs. Nothing of
// it is run by a GPU.
type Interpreted struct {
	module *ir.Module // the program that was built last
	code   *ir.Module // what came of it
}

// Build makes PTX of a program, and reads it.
func (d *Interpreted) Build(p *Program) error {
	if d.module == p.Module {
		return nil
	}
	// The corpus' loops are short; shared memory begins at 1024 on an H200.
	text, err := NVPTX(p, nvptx.Checks{Barriers: 4, Rounds: 4, Clocks: 64, Pad: 1024})
	if err != nil {
		return err
	}
	again, err := ptx.Parse(text)
	if err != nil {
		return fmt.Errorf("our PTX: %w\n%s", err, text)
	}
	code, err := lower.Lower(again)
	if err != nil {
		return fmt.Errorf("our PTX: %w\n%s", err, text)
	}
	d.module, d.code = p.Module, code
	return nil
}

// Run begins a launch, or goes on with one, whatever its blocks' statuses are.
func (d *Interpreted) Run(ctx context.Context, l *Launch, stop *rand.Rand) error {
	if err := d.Build(l.Program); err != nil {
		return err
	}
	if nvptx.Pausable(d.module, l.Plan) != nil {
		return d.whole(ctx, l)
	}
	kernel := entry(l)
	if kernel == l.Kernel.Name {
		begin(l)
	}
	if err := d.enter(ctx, l, kernel, stop); err != nil {
		return fmt.Errorf("%s: %w", kernel, err)
	}
	return nil
}

// whole runs a kernel that is the program's own, which nobody pauses.
func (d *Interpreted) whole(ctx context.Context, l *Launch) error {
	if len(l.Plan.Points) > 0 { // others may have paused it
		return Interpreter{}.Run(ctx, l, nil)
	}
	run, err := d.launch(l, l.Kernel.Name, l.Params())
	if err != nil {
		return err
	}
	run.Grid = l.Grid
	for b := range l.Blocks() { // others may have run some
		if l.Status(b) == pause.NotStarted {
			run.Blocks = append(run.Blocks, b)
			binary.LittleEndian.PutUint32(l.State[4*b:], pause.Done)
		}
	}
	return interp.Run(ctx, run)
}

// elsewhere returns how far variables are from where other devices have them. Where
// they begin with addresses of others, memory has those, and nobody changes it.
func elsewhere(m *ir.Module) uint64 {
	for _, v := range m.Vars {
		if slices.ContainsFunc(v.Addresses, func(a ir.Address) bool { return a.Var != nil }) {
			return 0
		}
	}
	return 0x100_0000_0000
}

func (d *Interpreted) launch(l *Launch, kernel string, params []byte) (*interp.Launch, error) {
	run := &interp.Launch{
		Module: d.code, Kernel: d.code.Func(kernel), Block: l.Block, DynamicShared: l.Shared, Params: params,
		Vars: map[*ir.Var]uint64{}, Memory: &interp.Memory{}, Out: &l.Program.Printed, MaxSteps: maxSteps,
	}
	if run.Kernel == nil {
		return nil, fmt.Errorf("there is no kernel %s", kernel)
	}
	for old, at := range l.Program.Vars {
		i := slices.IndexFunc(d.code.Vars, func(v *ir.Var) bool { return v.Name == old.Name })
		if i < 0 {
			return nil, fmt.Errorf("there is no variable %s", old.Name)
		}
		run.Vars[d.code.Vars[i]] = at + elsewhere(d.code)
	}
	for _, r := range l.Program.Memory {
		at := r.Addr
		if l.Program.isVars(r) {
			at += elsewhere(d.code)
		}
		if err := run.Memory.Map(at, r.Bytes); err != nil {
			return nil, err
		}
	}
	return run, nil
}

// enter runs one kernel. The flag goes up after some looks at it.
func (d *Interpreted) enter(ctx context.Context, l *Launch, kernel string, stop *rand.Rand) error {
	const state, flagAt, vars = 0x1000_0000_0000, 0x1800_0000_0000, 0x1900_0000_0000
	values, err := params(l, state, flagAt, vars)
	if err != nil {
		return err
	}
	run, err := d.launch(l, kernel, values)
	if err != nil {
		return err
	}
	run.Grid = l.Grid
	if err := errors.Join(run.Memory.Map(state, l.State), run.Memory.Map(vars, l.Program.varTable())); err != nil {
		return err
	}
	flag, looks := make([]byte, 4), -1
	if stop != nil {
		looks = stop.IntN(5)
	}
	if err := run.Memory.Watch(flagAt, flag, func() {
		if looks == 0 {
			flag[0] = 1
		}
		looks--
	}); err != nil {
		return err
	}
	return interp.Run(ctx, run)
}
