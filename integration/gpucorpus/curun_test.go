// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// onStandIn opens the stand-in's GPU as a real one is opened. It knows two kernels
// by their names, and compiles nothing.
func onStandIn(t *testing.T) *curun.Device {
	t.Helper()
	program, err := curun.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := standin.New(t.TempDir(), standin.H200s(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../../bin/standin/libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	d, err := curun.Start(t.Context(), curun.Options{
		Program: program, Library: library, Base: base, Size: 8 << 20, Timeout: time.Minute, Env: machine.Env(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // some tests break it
	const text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry add() { ret; }\n.visible .entry spin() { ret; }\n"
	if err := d.Load(0, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

func parameters(values ...uint64) []byte {
	var p []byte
	for _, v := range values {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}

var one = [3]uint32{1, 1, 1}

// TestChild: the child's calls of the driver, up to what the stand-in knows.
func TestChild(t *testing.T) {
	d := onStandIn(t)
	if d.Base != base || !strings.Contains(d.Facts["name"], "H200") || d.Facts["cuda"] == "" || d.Facts["multiprocessors"] == "" {
		t.Errorf("base %#x, %v", d.Base, d.Facts)
	}
	data := bytes.Repeat([]byte{1, 0, 0, 0}, 1<<20) // more than goes at once, less than all
	if err := d.Fill(base, 8<<20, 0xdb); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(base+4096, data); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(curun.Run{Kernel: "add", Grid: one, Block: one, Params: parameters(base+4096, 1<<20, 2)}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Bench(5, curun.Run{Kernel: "add", Grid: one, Block: one, Params: parameters(base+4096, 4, 1)}); err != nil {
		t.Fatal(err)
	}
	got, err := d.Read(base+4092, uint64(len(data)+8))
	if err != nil {
		t.Fatal(err)
	}
	want := append([]byte{0xdb, 0xdb, 0xdb, 0xdb, 8, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0}, bytes.Repeat([]byte{3, 0, 0, 0}, 1<<20-4)...)
	if !bytes.Equal(got, append(want, 0xdb, 0xdb, 0xdb, 0xdb)) {
		t.Error("memory is not what was written, with what the kernel added")
	}
}

// TestChildFlag: a flag goes up while a kernel runs, before it, or never.
func TestChildFlag(t *testing.T) {
	d := onStandIn(t)
	for _, c := range []struct {
		after time.Duration
		sent  bool
	}{{time.Millisecond, true}, {-time.Microsecond, true}, {time.Hour, false}} {
		if err := d.Fill(base, 8, 0); err != nil {
			t.Fatal(err)
		}
		ran, err := d.Run(curun.Run{
			Kernel: "spin", Grid: one, Block: one, Params: parameters(uint64(50*time.Millisecond), 0), Flag: base, FlagAfter: c.after,
		})
		if err != nil {
			t.Fatal(err)
		}
		flag, err := d.Read(base, 4)
		if err != nil {
			t.Fatal(err)
		}
		if (flag[0] == 1) != c.sent || (ran.FlagSent > 0) != c.sent || ran.FlagSent > ran.Done || c.sent && c.after > ran.FlagSent {
			t.Errorf("after %v: flag %v, %+v", c.after, flag, ran)
		}
	}
}

// TestChildRefuses: what can't be done is an error that says what.
func TestChildRefuses(t *testing.T) {
	d := onStandIn(t)
	run := func(r curun.Run) error { _, err := d.Run(r); return err }
	for want, try := range map[string]func() error{
		"no linker":               func() error { _, _, err := d.Compile("x"); return err },
		"cuModuleLoadDataEx":      func() error { return d.Load(1, []byte("x")) },
		"no such slot":            func() error { return d.Load(64, []byte("x")) },
		"no module there":         func() error { _, err := d.Function(3, "add"); return err },
		"outside the window":      func() error { return d.Fill(base, 9<<20, 0) },
		"READ":                    func() error { _, err := d.Read(64, 8); return err },
		"a wrong length":          func() error { return run(curun.Run{Kernel: "add", Params: make([]byte, 5000)}) },
		"no module in the slot":   func() error { return run(curun.Run{Slot: 2, Kernel: "add"}) },
		"or a wrong length or ad": func() error { return run(curun.Run{Kernel: "add", Flag: 8}) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	// A kernel's fault stays, and is the parent's reason to start another child.
	for range 2 {
		err := run(curun.Run{Kernel: "add", Grid: one, Block: one, Params: parameters(64, 1, 1)})
		if err == nil || !strings.Contains(err.Error(), "ILLEGAL_ADDRESS") {
			t.Error(err)
		}
	}
}
