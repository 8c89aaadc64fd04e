// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// exercise runs one case of exercise.c to its end.
func (b *bench) exercise(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if out, err := b.command(ctx, "exercise", name).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}

func TestExercise(t *testing.T) {
	cases := []string{
		"addresses", "mappings", "faulting", "limits", "parked", "back", "streams", "apart", "reduce", "copies", "twofold", "pointers",
		"contexts", "procs", "digest", "pools",
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			spec := standin.H200s(2, 1)
			b := newBench(t, v.name, spec)
			for _, name := range cases {
				t.Run(name, func(t *testing.T) {
					if v.name == "thread" && (name == "addresses" || name == "twofold") {
						t.Skip("at addresses that the thread sanitizer wants for itself")
					}
					b.exercise(t, name)
					for _, g := range spec.GPUs {
						b.used(t, g, 0)
					}
				})
			}
		})
	}
}

func TestFaultsOfMemory(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(2, 1))
			faults(t, b, "copy delay=300")
			b.exercise(t, "late")
			var rules []string
			for _, op := range []string{"create", "map", "export", "import", "copy"} {
				rules = append(rules, op+" nth=1 error=999")
			}
			faults(t, b, rules...)
			b.exercise(t, "refused")
			faults(t, b, "any nth=2 error=1") // the first is cuInit, the rest are not of "any"
			b.exercise(t, "mappings")
		})
	}
}

// line waits until a program has printed a line and returns it.
func (y *toy) line(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var line string
	err := testbed.Eventually(ctx, "the program prints a line", func() error {
		text, err := os.ReadFile(y.output)
		if err != nil {
			return testbed.Permanent(err)
		}
		var found bool
		if line, _, found = strings.Cut(string(text), "\n"); !found {
			return errors.New("there is none")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// A process that has mapped memory of its own is checkpointed like any other.
func TestMappedMemory(t *testing.T) {
	const all = 8<<20 + 3*2<<20 + 9<<20 // more than -b 8 MiB, three mappings and the list of sizes need
	here, there := standin.H200s(1, 1), standin.H200s(1, 2)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, here)
			y := b.startProgram(t, nil, "vmmtoy", "-v", "-i", "10")
			y.reaches(t, 0, 2)
			used, err := b.UsedBytes(here.GPUs[0].UUID)
			if err != nil || used < 14<<20 || used > all+4<<20 {
				t.Errorf("%d bytes in use, %v", used, err)
			}
			b.must(t, "lc", y.pid())
			b.used(t, here.GPUs[0], 0)
			if err := b.Set(there); err != nil {
				t.Fatal(err)
			}
			b.must(t, "-m", here.GPUs[0].UUID+"="+there.GPUs[0].UUID, "ru", y.pid())
			y.goesOn(t, 0)
			b.must(t, "lcrulcru", y.pid())
			y.goesOn(t, 0)
		})
	}
}

func TestMappedMemoryComesBackWithCRIU(t *testing.T) {
	spec := standin.H200s(1, 1)
	b := newBench(t, "plain", spec)
	i := newImages(t)
	y := b.startProgram(t, nil, "vmmtoy", "-v", "-i", "10")
	y.reaches(t, 0, 3)
	b.must(t, "lc", y.pid())
	i.dump(t, y)
	b.used(t, spec.GPUs[0], 0)
	i.restore(t)
	b.must(t, "ru", y.pid())
	y.goesOn(t, 0)
}

// Memory that two processes have would become two memories.
func TestSharedMemoryIsRefused(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.startProgram(t, nil, "exercise", "sharing")
			var exporter, importer int
			if _, err := fmt.Sscan(y.line(t), &exporter, &importer); err != nil {
				t.Fatal(err)
			}
			for _, pid := range []int{exporter, importer, exporter} {
				b.refused(t, "CUDA_ERROR_NOT_SUPPORTED", "lc", pid)
				b.state(t, pid, "locked")
				b.must(t, "u", pid)
			}
		})
	}
}

func TestMemoryThatWasShared(t *testing.T) {
	spec := standin.H200s(1, 1)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, spec)
			y := b.startProgram(t, nil, "exercise", "holding")
			pid, err := strconv.Atoi(y.line(t))
			if err != nil {
				t.Fatal(err)
			}
			b.must(t, "lcrulc", pid)
			b.used(t, spec.GPUs[0], 0)
			b.must(t, "ru", pid)
			b.used(t, spec.GPUs[0], 2*mib)
			b.state(t, pid, "running")
			if err := y.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-y.ended; err == nil {
				t.Error("a killed program ended well")
			}
			b.used(t, spec.GPUs[0], 0)
		})
	}
}

// A process that was restored to another GPU can't use what others have made, and they can
// use what it makes.
func TestMovedMemory(t *testing.T) {
	spec := standin.H200s(2, 1)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, spec)
			hide := func(gpu int) {
				t.Helper()
				if err := b.Set(spec); err != nil {
					t.Fatal(err)
				}
				if gpu < 0 {
					return
				}
				if err := os.Remove(filepath.Join(b.DevDir(), fmt.Sprintf("nvidia%d", gpu))); err != nil {
					t.Fatal(err)
				}
			}
			hide(1)
			y := b.startProgram(t, nil, "exercise", "moved")
			pid, err := strconv.Atoi(y.line(t))
			if err != nil {
				t.Fatal(err)
			}
			b.must(t, "lc", pid)
			hide(0)
			b.must(t, "-m "+spec.GPUs[0].UUID+"="+spec.GPUs[1].UUID, "ru", pid)
			hide(-1)
			if err := <-y.ended; err != nil {
				t.Error(err)
			}
			for _, g := range spec.GPUs {
				b.used(t, g, 0)
			}
		})
	}
}

// What is mapped counts to the process that made it, once.
func TestNVMLCountsMappedMemory(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	n := monitor(t, b)
	y := b.startProgram(t, nil, "exercise", "holding")
	y.line(t)
	d, r := n.DeviceGetHandleByIndex(0)
	if r != nvml.SUCCESS {
		t.Fatal(r)
	}
	processes, r := d.GetComputeRunningProcesses()
	if r != nvml.SUCCESS || len(processes) != 1 || processes[0].UsedGpuMemory != 2*mib {
		t.Errorf("processes %v, %v", processes, r)
	}
	memory, r := d.GetMemoryInfo()
	if r != nvml.SUCCESS || memory.Used != 2*mib {
		t.Errorf("memory %v, %v", memory, r)
	}
	left, err := filepath.Glob(filepath.Join(b.Dir, "memory", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("files %v, %v", left, err)
	}
}

// Programs see no difference between the stand-in and libhetcuda before it.
func TestTheSameWithLibhetcuda(t *testing.T) {
	spec := standin.H200s(2, 1)
	b := newBench(t, "plain", spec)
	run := func(program string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		out, err := b.command(ctx, program, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v: %s", program, args, err, out)
		}
		for _, g := range spec.GPUs {
			b.used(t, g, 0)
		}
		return string(out)
	}
	programs := [][]string{
		{"toy", "-t", "3", "-i", "0"},
		{"vmmtoy", "-t", "3", "-i", "0", "-l", "5"},
		{"vmmtoy", "-t", "3", "-i", "0", "-g", "1", "-v"},
	}
	var plain []string
	for _, p := range programs {
		plain = append(plain, run(p[0], p[1:]...))
	}
	b, _ = forwarded(t, b)
	for i, p := range programs {
		if got := run(p[0], p[1:]...); got != plain[i] {
			t.Errorf("%v prints %q, without libhetcuda %q", p, got, plain[i])
		}
	}
	// Not "pointers": memory of libhetcuda can't be shared by legacy IPC.
	for _, name := range []string{
		"addresses", "mappings", "faulting", "limits", "parked", "back", "streams", "apart", "reduce", "copies", "twofold", "contexts",
	} {
		run("exercise", name)
	}
}

// The driver's own checkpoint takes along what libhetcuda has mapped.
func TestCheckpointWithLibhetcuda(t *testing.T) {
	spec := standin.H200s(1, 1)
	b := newBench(t, "plain", spec)
	i := newImages(t)
	b, _ = forwarded(t, b)
	y := b.startProgram(t, nil, "vmmtoy", "-v", "-i", "10")
	y.reaches(t, 0, 3)
	b.must(t, "lcrulc", y.pid())
	b.used(t, spec.GPUs[0], 0)
	i.dump(t, y)
	i.restore(t)
	b.must(t, "ru", y.pid())
	y.goesOn(t, 0)
}
