// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// Where things lie in an OpenCL device's window. Programs' memory begins at
// ProgramOffset, behind what a launch is described with; states are at its end.
const (
	launchOffset = 0
	trapOffset   = 0x100
	flagOffset   = 0x200
	listOffset   = 0x1000
	paramsOffset = 0x4000
	varsOffset   = 0x8000
	// ProgramOffset is where programs' memory can begin.
	ProgramOffset = 0x10000
	stateOffset   = 0x100_0000
	// WindowSize is what a device needs.
	WindowSize = 0x200_0000
)

// OpenCL is a device of clrun's. It keeps the program that it built last.
type OpenCL struct {
	Device *clrun.Device
	// Up: where a run may be stopped, the flag is up from the beginning.
	Up     bool
	module *ir.Module
	code   *opencl.Program
}

// Build compiles a program's kernels for the device, unless they are the last ones.
func (o *OpenCL) Build(p *Program) error {
	if o.module == p.Module {
		return nil
	}
	code, err := opencl.Module(p.Module, p.Plans)
	if err != nil {
		return err
	}
	if log, err := o.Device.Build(opencl.Options, code.Text); err != nil {
		return fmt.Errorf("%w: %s", err, log)
	}
	o.module, o.code = p.Module, code
	return nil
}

// ErrNotWritten is in the error for a kernel that the OpenCL back end refuses, as it
// must, because an instruction needs NVIDIA's hardware (class nvidia-only). That it
// can't write another one is a plain error: the corpus has nothing else of what
// docs/opencl.md says is refused.
var ErrNotWritten = errors.New("not written in OpenCL C")

func (o *OpenCL) kernel(f *ir.Func) (*opencl.Kernel, error) {
	for _, k := range o.code.Kernels {
		switch {
		case k.Plan.Func != f:
		case k.Entry != "":
			return k, nil
		case k.Plan.Class == pause.NVIDIAOnly:
			return nil, fmt.Errorf("%w: %s", ErrNotWritten, k.Reason)
		default:
			return nil, fmt.Errorf("kernel %s can't be written in OpenCL C: %s", f.Name, k.Reason)
		}
	}
	return nil, fmt.Errorf("the module has no kernel %s", f.Name)
}

// Run runs a launch: the blocks of each status with their own entry. The flag is
// up from the beginning, so that blocks go on to the next point, or goes up while
// the kernel runs.
func (o *OpenCL) Run(_ context.Context, l *Launch, stop *rand.Rand) error {
	if err := o.Build(l.Program); err != nil {
		return err
	}
	k, err := o.kernel(l.Kernel)
	if err != nil {
		return err
	}
	if err := o.load(l); err != nil {
		return err
	}
	status := make([]uint32, l.Blocks())
	for b := range l.Blocks() {
		status[b] = l.Status(b)
	}
	for _, part := range k.Launches(status) {
		if err := o.enter(l, k, part, stop); err != nil {
			return fmt.Errorf("%s: %w", part.Entry, err)
		}
	}
	return o.unload(l)
}

func (o *OpenCL) state() uint64 { return o.Device.Base + stateOffset }

// load brings memory and state to the device.
func (o *OpenCL) load(l *Launch) error {
	for _, r := range append([]Region{
		{o.Device.Base + varsOffset, l.Program.varTable()},
		{o.Device.Base + paramsOffset, l.Params()},
		{o.state(), l.State},
	}, l.Program.Memory...) {
		if err := o.Device.Write(r.Addr, r.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// unload brings them back, and leaves nothing of them on the device.
func (o *OpenCL) unload(l *Launch) error {
	for _, r := range append([]Region{{o.state(), l.State}}, l.Program.Memory...) {
		data, err := o.Device.Read(r.Addr, uint64(len(r.Bytes)))
		if err != nil {
			return err
		}
		copy(r.Bytes, data)
		if err := o.Device.Write(r.Addr, bytes.Repeat([]byte{0xdb}, len(r.Bytes))); err != nil {
			return err
		}
	}
	return nil
}

// hgLaunch is what entries have as their first argument (package opencl).
type hgLaunch struct {
	Params, State, List, Flag, Vars, Trap uint64
	Grid, Block                           [3]uint32
	Shared, Groups                        uint32
}

// enter runs one entry over the blocks of a list.
func (o *OpenCL) enter(l *Launch, k *opencl.Kernel, part opencl.Part, stop *rand.Rand) error {
	base, groups := o.Device.Base, uint64(len(part.Blocks))
	list, err := binary.Append(nil, binary.LittleEndian, part.Blocks)
	if err != nil {
		return err
	}
	h := hgLaunch{
		Params: base + paramsOffset, State: o.state(), List: base + listOffset, Flag: base + flagOffset, Vars: base + varsOffset,
		Trap: base + trapOffset, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Groups: uint32(groups),
	}
	run := clrun.Run{
		Entry: part.Entry, Launch: base + launchOffset,
		LocalBytes: uint64(k.LocalBytes(int64(l.Threads()), int64(l.Shared))),
		Local:      [3]uint64{uint64(l.Block[0]), uint64(l.Block[1]), uint64(l.Block[2])},
		Global:     [3]uint64{groups * uint64(l.Block[0]), uint64(l.Block[1]), uint64(l.Block[2])},
	}
	flag := uint32(0)
	if stop != nil {
		switch n := stop.IntN(3); {
		case o.Up || n == 0:
			flag = 1
		case n == 1:
			run.Flag, run.FlagAfter = h.Flag, time.Duration(stop.IntN(200))*time.Microsecond
		}
	}
	var text bytes.Buffer
	if err := binary.Write(&text, binary.LittleEndian, h); err != nil {
		return err
	}
	for _, r := range []Region{
		{run.Launch, text.Bytes()},
		{h.List, list},
		{h.Trap, make([]byte, 64)},
		{h.Flag, binary.LittleEndian.AppendUint32(nil, flag)},
	} {
		if err := o.Device.Write(r.Addr, r.Bytes); err != nil {
			return err
		}
	}
	printed, err := o.Device.Run(run)
	if err != nil {
		return err
	}
	l.Program.Printed.WriteString(printed)
	trap, err := o.Device.Read(h.Trap, 64)
	if err != nil {
		return err
	}
	if code := binary.LittleEndian.Uint64(trap); code != 0 {
		return fmt.Errorf("the kernel stopped with error %d: %x", code, trap)
	}
	return nil
}
