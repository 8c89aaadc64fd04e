// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
)

// asGPU makes this program the child process that a curun.Device talks to.
const asGPU = "HETGPU_REHEARSE_GPU"

func init() {
	if os.Getenv(asGPU) == "" {
		return
	}
	if err := curun.Rehearse(os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// rehearse starts a device that is no GPU, but the interpreter.
func rehearse(t *testing.T) *curun.Device {
	t.Helper()
	d, err := curun.Start(context.WithoutCancel(t.Context()), curun.Options{
		Program: os.Args[0], Base: base, Size: WindowSize, Timeout: 3 * time.Minute, Env: []string{asGPU + "=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestCUDA: what a GPU is told makes a program do what it does, from process to
// process, but that the interpreter is the GPU here.
func TestCUDA(t *testing.T) {
	first, second := rehearse(t), rehearse(t)
	inside := 0
	for _, name := range []string{"reduce_shared", "free_loop", "globals", "indirect", "scan_blelloch", "print", "queens", "last_block"} {
		p, err := Prepared(corpus.Get(name), "", base)
		if err != nil {
			t.Fatal(err)
		}
		text, err := NVPTX(p, nvptx.Checks{Barriers: 2, Rounds: 2, Clocks: 1, Late: true})
		if err != nil {
			t.Fatal(err)
		}
		code, _, err := first.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		path, err := Move(t.Context(), p, rand.New(rand.NewPCG(1, 2)),
			&CUDA{Device: first, Code: code, Up: true}, &CUDA{Device: second, Code: code, Up: true})
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			t.Errorf("%s: %v; %s", name, err, strings.Join(path.Legs, " "))
		}
		inside += len(path.Inside)
	}
	if inside < 4 {
		t.Errorf("%d programs were stopped inside", inside)
	}
}

// TestCUDAOwn: the program's own PTX.
func TestCUDAOwn(t *testing.T) {
	d := rehearse(t)
	for _, name := range []string{"reduce_shared", "convolution", "print"} {
		text, err := corpus.PTX(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Prepared(corpus.Get(name), "", base)
		if err != nil {
			t.Fatal(err)
		}
		runAll(t, p, &CUDA{Device: d, Code: []byte(text), Own: true})
	}
}

// TestCUDATrap: a kernel's error is an error.
func TestCUDATrap(t *testing.T) {
	d := rehearse(t)
	if _, _, err := d.Compile("nonsense"); err == nil {
		t.Error("nonsense was compiled")
	}
	const text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\ntrap;\n}\n"
	if err := d.Load(0, []byte(text)); err != nil {
		t.Fatal(err)
	}
	one := [3]uint32{1, 1, 1}
	if _, err := d.Run(curun.Run{Kernel: "k", Grid: one, Block: one}); err == nil {
		t.Error("a trap is no error")
	}
	if _, err := d.Run(curun.Run{Kernel: "none", Grid: one, Block: one}); err == nil {
		t.Error("there is no such kernel")
	}
	times, err := d.Bench(3)
	if err != nil || len(times) != 0 {
		t.Errorf("nothing in turns: %v, %v", times, err)
	}
}
