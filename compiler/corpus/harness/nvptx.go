// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// NVPTX runs the PTX that is for NVIDIA's devices in the interpreter: through the
// front end a second time, with a flag that goes up while it runs. Nothing of it
// is run by a GPU.
type NVPTX struct {
	module *ir.Module // the program that was built last
	code   *ir.Module // what came of it
}

// Build makes PTX of a program, and reads it.
func (d *NVPTX) Build(p *Program) error {
	if d.module == p.Module {
		return nil
	}
	text, err := corpus.PTX(p.Case.File)
	if err != nil {
		return err
	}
	src, err := ptx.Parse(text)
	if err != nil {
		return err
	}
	var plans []*pause.Plan
	for _, f := range p.Module.Funcs {
		if plan := p.Plans[f]; plan != nil {
			plans = append(plans, plan)
		}
	}
	// The corpus' loops are short; shared memory begins at 1024 on an H200.
	text, err = nvptx.Module(src, p.Module, plans, nvptx.Checks{Barriers: 4, Rounds: 4, Pad: 1024})
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

// Run runs a launch, with a kernel of its own for the blocks of each status.
func (d *NVPTX) Run(ctx context.Context, l *Launch, stop *rand.Rand) error {
	if err := d.Build(l.Program); err != nil {
		return err
	}
	if nvptx.Pausable(d.module, l.Plan) != nil {
		return d.whole(ctx, l)
	}
	before := slices.Clone(l.State)
	statuses := append([]uint32{pause.NotStarted, pause.ThreadPoints}, make([]uint32, len(l.Plan.Points))...)
	for i := range l.Plan.Points {
		statuses[i+2] = uint32(i + 1)
	}
	for _, s := range statuses {
		var list []byte
		for b := range l.Blocks() {
			if binary.LittleEndian.Uint32(before[4*b:]) == s {
				list = binary.LittleEndian.AppendUint32(list, b)
			}
		}
		if list == nil {
			continue
		}
		kernel := nvptx.ResumeName(l.Kernel.Name, int(s))
		if s == pause.ThreadPoints {
			kernel = nvptx.ThreadsName(l.Kernel.Name)
		}
		grid := [3]uint32{uint32(len(list) / 4), 1, 1}
		if s == pause.NotStarted && grid[0] == l.Blocks() {
			kernel, grid = l.Kernel.Name, l.Grid // as the program launches it
		}
		if err := d.enter(ctx, l, kernel, grid, list, stop); err != nil {
			return fmt.Errorf("%s: %w", kernel, err)
		}
	}
	return nil
}

// whole runs a kernel that is the program's own, which nobody pauses.
func (d *NVPTX) whole(ctx context.Context, l *Launch) error {
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

func (d *NVPTX) launch(l *Launch, kernel string, params []byte) (*interp.Launch, error) {
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
		run.Vars[d.code.Vars[i]] = at
	}
	for _, r := range l.Program.Memory {
		if err := run.Memory.Map(r.Addr, r.Bytes); err != nil {
			return nil, err
		}
	}
	return run, nil
}

// enter runs one kernel over the blocks of a list. The flag goes up after some
// looks at it.
func (d *NVPTX) enter(ctx context.Context, l *Launch, kernel string, grid [3]uint32, list []byte, stop *rand.Rand) error {
	const at = 0x1000_0000_0000
	h := hgLaunch{State: at + stateOffset, List: at + listOffset, Flag: at + flagOffset, Grid: l.Grid, Block: l.Block, Shared: l.Shared}
	text, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		return err
	}
	params := l.Params()
	params = append(params, make([]byte, (8-len(params)%8)%8)...)
	params = binary.LittleEndian.AppendUint64(params, at+launchOffset)
	run, err := d.launch(l, kernel, params)
	if err != nil {
		return err
	}
	run.Grid = grid
	for _, r := range []Region{{at + launchOffset, text}, {at + listOffset, list}, {at + stateOffset, l.State}} {
		if err := run.Memory.Map(r.Addr, r.Bytes); err != nil {
			return err
		}
	}
	flag, looks := make([]byte, 4), -1
	if stop != nil {
		looks = stop.IntN(5)
	}
	if err := run.Memory.Watch(h.Flag, flag, func() {
		if looks == 0 {
			flag[0] = 1
		}
		looks--
	}); err != nil {
		return err
	}
	return interp.Run(ctx, run)
}
