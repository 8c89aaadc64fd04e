// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package curun runs PTX on a GPU of this machine through NVIDIA's driver, in a
// child process (child/curun.c), which opens the driver's library when it starts.
package curun

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/child"
)

//go:embed child/curun.c
var source []byte

// Build makes the program in a directory and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	return child.Build(ctx, dir, "curun", source, "-ldl")
}

// Options of Start.
type Options struct {
	// Program is what Build returned.
	Program string
	// Library is libcuda; "": where the system's loader finds it.
	Library string
	// Base and Size of the device's memory.
	Base, Size uint64
	// Timeout is for each request; the child process is killed then.
	Timeout time.Duration
	// Env are variables for the driver, beside this process'.
	Env []string
}

// Device is a GPU, with a context of its own. One goroutine may use it at a time.
// After an error of a kernel its context is of no more use; Close it and start another.
type Device struct {
	// Base is where its memory begins.
	Base uint64
	// Facts are lines of "key value": name, cuda, sm, multiprocessors.
	Facts map[string]string

	process *child.Process
}

// Requests; see child/curun.c.
const (
	reqOpen uint32 = iota + 1
	reqCompile
	reqLoad
	reqSymbol
	reqFunction
	reqWrite
	reqRead
	reqFill
	reqRun
	reqBench
)

// Start starts a child process and opens the first GPU.
func Start(ctx context.Context, o Options) (*Device, error) {
	// Code that is loaded when it is first used waits for running kernels.
	process, err := child.Start(ctx, o.Program, o.Timeout, append(o.Env, "CUDA_MODULE_LOADING=EAGER")...)
	if err != nil {
		return nil, err
	}
	d := &Device{process: process, Facts: map[string]string{}}
	answer, err := process.Do(reqOpen, child.U64s(o.Base, o.Size), []byte(o.Library))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Base = binary.NativeEndian.Uint64(answer)
	for line := range strings.Lines(string(answer[8:])) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		d.Facts[key] = value
	}
	return d, nil
}

// Compile makes machine code of PTX with the driver's compiler, whose log is
// returned too, or is the error.
func (d *Device) Compile(ptx string) (code []byte, log string, err error) {
	answer, err := d.process.Do(reqCompile, []byte(ptx))
	if err != nil {
		return nil, "", err
	}
	n := binary.NativeEndian.Uint64(answer)
	return answer[8:][:n], string(answer[8+n:]), nil
}

// Load loads machine code, or PTX, as a module, in the place of the one that is in
// the slot. Its variables are at other addresses than that one's.
func (d *Device) Load(slot int, image []byte) error {
	_, err := d.process.Do(reqLoad, child.U64s(uint64(slot)), image)
	return err
}

// Symbol returns where a variable of a slot's module is, and its size.
func (d *Device) Symbol(slot int, name string) (addr, size uint64, err error) {
	answer, err := d.process.Do(reqSymbol, child.U64s(uint64(slot)), []byte(name))
	if err != nil {
		return 0, 0, err
	}
	return binary.NativeEndian.Uint64(answer), binary.NativeEndian.Uint64(answer[8:]), nil
}

// Function is what the driver knows of a kernel.
type Function struct {
	MaxThreads uint64 `json:"max_threads"`
	Shared     uint64 `json:"shared"`
	Const      uint64 `json:"const"`
	// Local is bytes of each thread: arrays, and registers that are spilled.
	Local     uint64 `json:"local"`
	Registers uint64 `json:"registers"`
	PTX       uint64 `json:"ptx"`
	Binary    uint64 `json:"binary"`
	Cache     uint64 `json:"-"`
}

// Function asks about a kernel of a slot's module.
func (d *Device) Function(slot int, name string) (f Function, err error) {
	answer, err := d.process.Do(reqFunction, child.U64s(uint64(slot)), []byte(name))
	if err != nil {
		return f, err
	}
	return f, binary.Read(bytes.NewReader(answer), binary.NativeEndian, &f)
}

// Write changes device memory.
func (d *Device) Write(addr uint64, data []byte) error {
	_, err := d.process.Do(reqWrite, child.U64s(addr), data)
	return err
}

// Read returns n bytes of device memory.
func (d *Device) Read(addr, n uint64) ([]byte, error) {
	return d.process.Do(reqRead, child.U64s(addr, n))
}

// Fill sets n bytes of the window.
func (d *Device) Fill(addr, n uint64, value byte) error {
	_, err := d.process.Do(reqFill, child.U64s(addr, n, uint64(value)))
	return err
}

// Run is one launch of a kernel.
type Run struct {
	Slot        int
	Kernel      string
	Grid, Block [3]uint32
	// Shared is the dynamic shared memory, in bytes.
	Shared uint32
	Params []byte
	// Flag is the address of a u32 that becomes 1 FlagAfter the launch, unless the
	// kernel has ended; before the launch, if that is negative. 0: none.
	Flag      uint64
	FlagAfter time.Duration
}

// Ran is when what happened, as the host saw it, since the launch was called, or
// the flag if that was first. The flag's are 0 if the kernel had ended before.
type Ran struct {
	Launched, FlagSent, FlagThere, Done time.Duration
	Printed                             string
}

// runHead is the child's struct run.
type runHead struct {
	Slot           uint64
	Grid, Block    [3]uint32
	Shared, Params uint32
	Flag           uint64
	After          int64
}

func (r *Run) encode() []byte {
	head := runHead{uint64(r.Slot), r.Grid, r.Block, r.Shared, uint32(len(r.Params)), r.Flag, int64(r.FlagAfter)}
	text, err := binary.Append(nil, binary.NativeEndian, head)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return append(append(text, r.Params...), r.Kernel...)
}

// Run runs a kernel to its end.
func (d *Device) Run(r Run) (Ran, error) {
	answer, err := d.process.Do(reqRun, r.encode())
	if err != nil {
		return Ran{}, err
	}
	at := func(i int) time.Duration { return time.Duration(binary.NativeEndian.Uint64(answer[8*i:])) }
	return Ran{at(0), at(1), at(2), at(3), string(answer[32:])}, nil
}

// Bench runs kernels in turns, so many rounds, and returns how long each took, in
// milliseconds: of kernel i in its order.
func (d *Device) Bench(rounds int, runs ...Run) ([][]float64, error) {
	parts := [][]byte{child.U64s(uint64(rounds), uint64(len(runs)))}
	for _, r := range runs {
		text := r.encode()
		parts = append(parts, child.U64s(uint64(len(text))), text)
	}
	answer, err := d.process.Do(reqBench, parts...)
	if err != nil {
		return nil, err
	}
	if len(answer) != 4*rounds*len(runs) {
		return nil, fmt.Errorf("%d bytes of times for %d rounds of %d kernels", len(answer), rounds, len(runs))
	}
	all := make([]float32, rounds*len(runs))
	if err := binary.Read(bytes.NewReader(answer), binary.NativeEndian, all); err != nil {
		return nil, err
	}
	times := make([][]float64, len(runs))
	for i, ms := range all {
		times[i%len(runs)] = append(times[i%len(runs)], float64(ms))
	}
	return times, nil
}

// Close ends the child process.
func (d *Device) Close() error { return d.process.Close() }
