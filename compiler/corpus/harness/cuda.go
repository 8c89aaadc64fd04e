// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// CUDA runs a program's PTX, as it is or ours, on a GPU. For each run the module is
// loaded anew, so that its variables are at other addresses, and what the run
// leaves on the device is wiped.
type CUDA struct {
	Device *curun.Device
	// Code is the module, as machine code or PTX.
	Code []byte
	// Own: the module is the program's own, and knows nothing of pauses.
	Own bool
	// Up: where a run may be stopped, the flag is up from the beginning.
	Up bool

	// State is where states go; 0: at the usual place of the window.
	State uint64

	// Early is how long before the launch a flag may be sent, for kernels that end
	// before one that is sent later is there.
	Early time.Duration
	// Took is how long kernels ran that nobody stopped.
	Took map[string]time.Duration
	// Stops are the flags that went up while a kernel ran.
	Stops []Stop
	// missing are variables that the driver does not know. Nobody needs them, if
	// no buffer is one.
	symbols map[*ir.Var]uint64
}

// Stop is how soon a kernel ended after its flag.
type Stop struct {
	Kernel string
	// Sent and There are the times from the call that sends the flag, and from when
	// the copy was seen to be done, to when the kernel was seen to have ended.
	Sent, There time.Duration
}

// ErrNotOnGPU is in the error for a launch that can't go on on a GPU: its kernel
// can't be paused there, and another device has begun it.
var ErrNotOnGPU = errors.New("it can't go on on a GPU")

const slot = 0

// Run runs a launch.
func (c *CUDA) Run(_ context.Context, l *Launch, stop *rand.Rand) error {
	whole := c.whole(l)
	if whole && !untouched(l) {
		return ErrNotOnGPU
	}
	if err := c.Load(l); err != nil {
		return err
	}
	if err := c.Step(l, stop); err != nil {
		return err
	}
	return c.unload(l, !whole)
}

// whole tells of kernels that nobody can pause.
func (c *CUDA) whole(l *Launch) bool {
	return c.Own || nvptx.Pausable(l.Program.Module, l.Plan) != nil
}

// Step runs a launch that is on the device. In a pausable kernel's launch the
// statuses are read back, and nothing else is.
func (c *CUDA) Step(l *Launch, stop *rand.Rand) error {
	if c.whole(l) {
		ran, err := c.Device.Run(curun.Run{
			Slot: slot, Kernel: l.Kernel.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: l.Params(),
		})
		if err != nil {
			return fmt.Errorf("%s: %w", l.Kernel.Name, err)
		}
		l.Program.Printed.WriteString(ran.Printed)
		c.ended(l.Kernel.Name, ran)
		for b := range l.Blocks() {
			if l.State != nil {
				binary.LittleEndian.PutUint32(l.State[4*b:], pause.Done)
			}
		}
		return nil
	}
	kernel := entry(l)
	if kernel == l.Kernel.Name {
		begin(l)
		if err := c.Device.Write(c.state(), l.State[:4*l.Blocks()]); err != nil {
			return err
		}
	}
	if err := c.enter(l, kernel, stop); err != nil {
		return err
	}
	words, err := c.Device.Read(c.state(), 4*uint64(l.Blocks()))
	copy(l.State, words)
	return err
}

func (c *CUDA) state() uint64 {
	if c.State != 0 {
		return c.State
	}
	return c.Device.Base + stateOffset
}

func untouched(l *Launch) bool {
	for b := range l.Blocks() {
		if l.State != nil && l.Status(b) != pause.NotStarted {
			return false
		}
	}
	return true
}

// ended keeps what is to be known of a run that was not stopped before it began.
func (c *CUDA) ended(kernel string, ran curun.Ran) {
	if ran.FlagSent > 0 {
		c.Stops = append(c.Stops, Stop{kernel, ran.Done - ran.FlagSent, ran.Done - ran.FlagThere})
		return
	}
	if c.Took == nil {
		c.Took = map[string]time.Duration{}
	}
	took := ran.Done - ran.Launched
	if before, known := c.Took[kernel]; known {
		took = min(took, before)
	}
	c.Took[kernel] = took
}

// Load loads the module, and brings memory and state to the device. What an
// initializer has as an address is the device's own, and stays.
func (c *CUDA) Load(l *Launch) error {
	if err := c.Device.Load(slot, c.Code); err != nil {
		return err
	}
	c.symbols = map[*ir.Var]uint64{}
	return errors.Join(c.parts(l, func(r Region) error { return c.Device.Write(r.Addr, r.Bytes) }), c.variables(l, c.Device.Write))
}

// unload brings them back, and leaves nothing of them on the device.
func (c *CUDA) unload(l *Launch, state bool) error {
	read := func(addr uint64, into []byte) error {
		data, err := c.Device.Read(addr, uint64(len(into)))
		copy(into, data)
		return err
	}
	kept := l.State
	if !state {
		l.State = nil
	}
	err := errors.Join(c.parts(l, func(r Region) error { return read(r.Addr, r.Bytes) }), c.variables(l, read))
	l.State = kept
	return errors.Join(err, c.Device.Fill(c.Device.Base, WindowSize, 0xdb))
}

// parts does something with each part of the window that a launch has: its state,
// and all memory but the module's variables.
func (c *CUDA) parts(l *Launch, do func(Region) error) error {
	var errs []error
	for _, r := range l.Program.Memory {
		if !l.Program.isVars(r) {
			errs = append(errs, do(r))
		}
	}
	if len(l.State) > 0 {
		errs = append(errs, do(Region{c.state(), l.State}))
	}
	return errors.Join(errs...)
}

// variables does something with the bytes of each variable of the module, but for
// the addresses that its initial value has.
func (c *CUDA) variables(l *Launch, do func(addr uint64, bytes []byte) error) error {
	var errs []error
	for _, v := range l.Program.Module.Vars {
		at, placed := l.Program.Vars[v]
		if !placed || v.Size == 0 {
			continue
		}
		addr, err := c.symbol(l, v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if addr == 0 {
			continue
		}
		bytes, from := l.Program.at(at, int(v.Size)), int64(0)
		for _, a := range v.Addresses { // by their offset
			if a.Offset > from {
				errs = append(errs, do(addr+uint64(from), bytes[from:a.Offset]))
			}
			from = a.Offset + 8
		}
		if from < v.Size {
			errs = append(errs, do(addr+uint64(from), bytes[from:]))
		}
	}
	return errors.Join(errs...)
}

// symbol is where the device has a variable. 0: the driver doesn't know it, and
// nobody needs it, since no buffer is one.
func (c *CUDA) symbol(l *Launch, v *ir.Var) (uint64, error) {
	if addr, known := c.symbols[v]; known {
		return addr, nil
	}
	addr, size, err := c.Device.Symbol(slot, v.Name)
	if err == nil && size < uint64(v.Size) {
		err = fmt.Errorf("it has %d bytes, not %d", size, v.Size)
	}
	if err != nil {
		for _, b := range l.Program.Case.Buffers {
			if b.Var && b.Name == v.Name {
				return 0, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		addr = 0
	}
	c.symbols[v] = addr
	return addr, nil
}

// Params returns the parameters of our kernels for a launch, and writes the flag
// and the addresses of variables.
func (c *CUDA) Params(l *Launch, flag uint32) ([]byte, error) {
	at, vars := c.Device.Base+flagOffset, c.Device.Base+varsOffset
	if err := errors.Join(c.Device.Write(at, binary.LittleEndian.AppendUint32(nil, flag)), c.Device.Write(vars, l.Program.varTable())); err != nil {
		return nil, err
	}
	return params(l, c.state(), at, vars)
}

// enter runs one kernel.
func (c *CUDA) enter(l *Launch, kernel string, stop *rand.Rand) error {
	run := curun.Run{Slot: slot, Kernel: kernel, Grid: l.Grid, Block: l.Block, Shared: l.Shared}
	flag := uint32(0)
	if stop != nil {
		if c.Up {
			flag = 1
		} else {
			// Anywhere in the time that the kernel takes when nobody stops it.
			took := max(c.Took[l.Kernel.Name], c.Took[kernel], 10*time.Microsecond)
			run.Flag, run.FlagAfter = c.Device.Base+flagOffset, time.Duration(stop.Int64N(int64(took+c.Early)))-c.Early
		}
	}
	var err error
	if run.Params, err = c.Params(l, flag); err != nil {
		return err
	}
	ran, err := c.Device.Run(run)
	if err != nil {
		return fmt.Errorf("%s: %w", kernel, err)
	}
	l.Program.Printed.WriteString(ran.Printed)
	if flag == 0 && run.FlagAfter >= 0 {
		c.ended(kernel, ran)
	}
	return nil
}
