// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package clrun runs kernels in OpenCL C on a device of this machine, in a child
// process (child/clrun.c, built with cc when it is needed): a driver may abort, and that
// must be an error here.
package clrun

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

//go:embed child/clrun.c
var source []byte

// Build makes the program in a directory and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	src, program := filepath.Join(dir, "clrun.c"), filepath.Join(dir, "clrun")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "cc", "-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
		"-o", program, src, "-lOpenCL", "-lpthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc clrun.c: %w: %s", err, out)
	}
	return program, nil
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
	// Env are variables for the driver, beside this process'.
	Env []string
}

// Device is an OpenCL device. One goroutine may use it at a time.
type Device struct {
	Name string
	Base uint64

	timeout time.Duration
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	said    *tail
	broken  error
}

// ErrCrashed is in the error of a request during which the child ended or was
// killed. The device's memory is lost; Close it and start another.
var ErrCrashed = errors.New("the OpenCL process ended")

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
	d := &Device{timeout: o.Timeout, said: &tail{}}
	d.cmd = exec.CommandContext(ctx, o.Program)
	d.cmd.Env = append(os.Environ(), o.Env...)
	d.cmd.Stderr = d.said
	d.cmd.WaitDelay = 5 * time.Second
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if d.out, err = d.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	answer, err := d.do(reqOpen, u64s(o.Base, o.Size), []byte(o.Platform))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Base, d.Name = binary.NativeEndian.Uint64(answer), string(answer[8:])
	return d, nil
}

// Build compiles a program, which takes the place of the one before. Its log is
// returned, or is the error.
func (d *Device) Build(options, source string) (string, error) {
	log, err := d.do(reqBuild, []byte(options), []byte{0}, []byte(source))
	return string(log), err
}

// Write changes device memory.
func (d *Device) Write(addr uint64, data []byte) error {
	_, err := d.do(reqWrite, u64s(addr), data)
	return err
}

// Read returns n bytes of device memory.
func (d *Device) Read(addr, n uint64) ([]byte, error) { return d.do(reqRead, u64s(addr, n)) }

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
	out, err := d.do(reqRun, u64s(r.Launch, r.LocalBytes), u64s(r.Global[:]...), u64s(r.Local[:]...),
		u64s(r.Flag, uint64(r.FlagAfter)), []byte(r.Entry))
	return string(out), err
}

// Close ends the child process.
func (d *Device) Close() error {
	if d.broken != nil {
		return nil // the request that found it has said so, and waited
	}
	_ = d.in.Close()
	stop := time.AfterFunc(d.timeout, func() { _ = d.cmd.Process.Kill() })
	defer stop.Stop()
	return d.cmd.Wait()
}

// do sends a request and waits for its answer.
func (d *Device) do(kind uint32, parts ...[]byte) ([]byte, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	stop := time.AfterFunc(d.timeout, func() { _ = d.cmd.Process.Kill() })
	defer stop.Stop()
	payload := bytes.Join(parts, nil)
	head := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, uint64(kind)), uint64(len(payload)))
	_, err := d.in.Write(append(head, payload...))
	var answer struct {
		Kind, Zero uint32
		Length     uint64
	}
	var data []byte
	if err == nil {
		err = binary.Read(d.out, binary.NativeEndian, &answer)
	}
	if err == nil {
		data = make([]byte, answer.Length)
		_, err = io.ReadFull(d.out, data)
	}
	if err != nil {
		timedOut := ""
		if !stop.Stop() {
			timedOut = fmt.Sprintf(" after %v", d.timeout)
		}
		_ = d.in.Close()
		_ = d.cmd.Process.Kill()
		d.broken = fmt.Errorf("%w%s: %w (%w); it said: %s", ErrCrashed, timedOut, err, ended(d.cmd.Wait()), d.said)
		return nil, d.broken
	}
	if answer.Kind != 0 {
		return nil, errors.New(string(data))
	}
	return data, nil
}

// ended is how the child ended, which is an error even where it said all is well.
func ended(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// u64s encodes numbers as the child reads them. A request's kind is such a number
// too: its upper half is zero on the little-endian hosts that there are.
func u64s(values ...uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}

// tail keeps the last of what the child says on standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
