// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package clrun runs kernels in OpenCL C on a device of this machine, in a child
// process (child/clrun.c, built with cc when it is needed).
package clrun

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/child"
)

//go:embed child/clrun.c
var source []byte

// Build makes the program in a directory and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	return child.Build(ctx, dir, "clrun", source, "-lOpenCL", "-lpthread")
}

// Options of Start.
type Options struct {
	// Program is what Build returned.
	Program string
	// Platform is the name of an OpenCL platform or a part of it; "": the first.
	Platform string
	// Base and Size of the device's memory. Devices that are no CPU choose
	// another base: see Device.Base.
	Base, Size uint64
	// Timeout is for each request; the child process is killed then.
	Timeout time.Duration
	// Buffer: the memory is one buffer, at an address that the driver chooses.
	Buffer bool
	// Env are variables for the driver, beside this process'.
	Env []string
}

// Device is an OpenCL device. One goroutine may use it at a time. After an error
// with child.ErrCrashed its memory is lost; Close it and start another.
type Device struct {
	Name string
	Base uint64

	process *child.Process
}

// Requests; see child/clrun.c.
const (
	reqOpen uint32 = iota + 1
	reqBuild
	reqWrite
	reqRead
	reqRun
)

// Start starts a child process and opens the device.
func Start(ctx context.Context, o Options) (*Device, error) {
	env := slices.Clone(o.Env)
	if o.Buffer {
		env = append(env, "CLRUN_BUFFER=1")
	}
	process, err := child.Start(ctx, o.Program, o.Timeout, env...)
	if err != nil {
		return nil, err
	}
	d := &Device{process: process}
	answer, err := process.Do(reqOpen, child.U64s(o.Base, o.Size), []byte(o.Platform))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Base, d.Name = binary.NativeEndian.Uint64(answer), string(answer[8:])
	return d, nil
}

// Build compiles a program, which takes the place of the one before. Its log is
// returned, or is the error.
func (d *Device) Build(options, source string) (string, error) {
	log, err := d.process.Do(reqBuild, []byte(options), []byte{0}, []byte(source))
	return string(log), err
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

// Run is one run of an entry point.
type Run struct {
	Entry  string
	Launch uint64 // address of its struct hg_launch
	// LocalBytes is the size of the second argument.
	LocalBytes    uint64
	Global, Local [3]uint64 // work items
	// Flag is the address of a u32 that becomes 1 FlagAfter the start, unless the
	// kernel has ended. 0: none.
	Flag      uint64
	FlagAfter time.Duration
}

// Run runs an entry point of the program to its end and returns what it printed.
func (d *Device) Run(r Run) (string, error) {
	out, err := d.process.Do(reqRun, child.U64s(r.Launch, r.LocalBytes), child.U64s(r.Global[:]...), child.U64s(r.Local[:]...),
		child.U64s(r.Flag, uint64(r.FlagAfter)), []byte(r.Entry))
	return string(out), err
}

// Close ends the child process.
func (d *Device) Close() error { return d.process.Close() }
