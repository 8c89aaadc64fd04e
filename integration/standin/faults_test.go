// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

func TestFaults(t *testing.T) {
	tests := []struct {
		name string
		rule string
		// steps are done to the process one by one; each has the error that it
		// has to end with, or "".
		steps []string
		want  []string
		state string
	}{
		{"error", "lock error=999", []string{"l"}, []string{"CUDA_ERROR_UNKNOWN"}, "running"},
		{"of another process", "lock pid=1 error=999", []string{"l"}, []string{""}, "locked"},
		{"of another name", "lock comm=toy7 error=999", []string{"l"}, []string{""}, "locked"},
		{"of this name", "lock comm=toy0 error=999", []string{"l"}, []string{"CUDA_ERROR_UNKNOWN"}, "running"},
		{"of another step", "checkpoint error=2", []string{"l", "c"}, []string{"", "CUDA_ERROR_OUT_OF_MEMORY"}, "locked"},
		{"any step", "any error=304", []string{"l"}, []string{"CUDA_ERROR_OPERATING_SYSTEM"}, "running"},
		{"twice", "lock times=2 error=600", []string{"l", "l", "l"}, []string{"CUDA_ERROR_NOT_READY", "CUDA_ERROR_NOT_READY", ""}, "locked"},
		{"the second", "lock nth=2 error=600", []string{"l", "u", "l"}, []string{"", "", "CUDA_ERROR_NOT_READY"}, "running"},
		{"after it was done", "lock when=after error=999", []string{"l"}, []string{"CUDA_ERROR_UNKNOWN"}, "locked"},
		{"slow", "lock delay=20", []string{"l"}, []string{""}, "locked"},
		{"a comment", "# lock error=999", []string{"l"}, []string{""}, "locked"},
	}
	b := newBench(t, "address", standin.H200s(1, 1))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			faults(t, b, tt.rule)
			for i, step := range tt.steps {
				if tt.want[i] == "" {
					b.must(t, step, y.pid())
				} else {
					b.refused(t, tt.want[i], step, y.pid())
				}
			}
			faults(t, b)
			b.state(t, y.pid(), tt.state)
		})
	}
}

// The driver may give up on a process: its next call says so.
func TestFailedProcess(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 1)
	faults(t, b, "checkpoint fail error=999")
	b.refused(t, "CUDA_ERROR_UNKNOWN", "lc", y.pid())
	if line := y.fails(t); !strings.Contains(line, "CUDA_ERROR_UNKNOWN") {
		t.Errorf("the toy ended with %q", line)
	}
}

func faults(t *testing.T, b *bench, rules ...string) {
	t.Helper()
	if err := b.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
}

func TestCrashOfTheCaller(t *testing.T) {
	tests := []struct{ rule, state string }{
		{"lock crash", "running"},
		{"lock crash when=during", "locked"},
		{"lock crash when=after", "locked"},
	}
	b := newBench(t, "plain", standin.H200s(1, 1))
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			faults(t, b, tt.rule)
			_, err := b.ckpt(t, "l", y.pid())
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the caller ended with %v", err)
			}
			// The next caller's request comes after the one left behind.
			faults(t, b)
			b.state(t, y.pid(), tt.state)
		})
	}
}

func TestHangEndsWithItsRule(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 1)
	faults(t, b, "lock hang")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c := b.command(ctx, "ckpt", "l", fmt.Sprint(y.pid()))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	err := testbed.Eventually(ctx, "the lock begins", func() error {
		calls, err := b.Calls()
		if err != nil {
			return testbed.Permanent(err)
		}
		if len(calls) != 1 {
			return fmt.Errorf("%d calls", len(calls))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	y.goesOn(t, 0) // nothing has reached it
	faults(t, b)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	b.state(t, y.pid(), "locked")
}

func TestFaultsOfTheStart(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	faults(t, b, "init comm=toy0 error=999")
	if line := b.start(t, nil).fails(t); !strings.Contains(line, "cuInit(0): CUDA_ERROR_UNKNOWN") {
		t.Errorf("the toy ended with %q", line)
	}
}

// Nothing but the API is visible: the libraries are loaded into other programs.
func TestExports(t *testing.T) {
	for library, prefix := range map[string]string{"libcuda.so.1": "cu", "libnvidia-ml.so.1": "nvml"} {
		f, err := elf.Open(filepath.Join(built("plain"), library))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		exported := 0
		for _, s := range symbols {
			if s.Section == elf.SHN_UNDEF {
				continue
			}
			exported++
			if !strings.HasPrefix(s.Name, prefix) {
				t.Errorf("%s exports %s", library, s.Name)
			}
		}
		if exported < 20 {
			t.Errorf("%s exports %d functions only", library, exported)
		}
		soname, err := f.DynString(elf.DT_SONAME)
		if err != nil || len(soname) != 1 || soname[0] != library {
			t.Errorf("%s calls itself %v, %v", library, soname, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// monitor loads NVML into the test itself.
func monitor(t *testing.T, b *bench) nvml.Interface {
	t.Helper()
	for _, e := range b.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	n := nvml.New(nvml.WithLibraryPath(filepath.Join(b.bin, "libnvidia-ml.so.1")))
	if r := n.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	t.Cleanup(func() {
		if r := n.Shutdown(); r != nvml.SUCCESS {
			t.Error(r)
		}
	})
	return n
}

func TestNVMLInventory(t *testing.T) {
	spec := standin.H200s(2, 1)
	spec.GPUs[1].MIG = true
	spec.GPUs[1].Used = 5 * mib
	n := monitor(t, newBench(t, "plain", spec))
	if v, r := n.SystemGetDriverVersion(); r != nvml.SUCCESS || v != spec.Driver {
		t.Errorf("driver %q, %v", v, r)
	}
	if v, r := n.SystemGetCudaDriverVersion_v2(); r != nvml.SUCCESS || v != spec.CUDA {
		t.Errorf("CUDA %d, %v", v, r)
	}
	count, r := n.DeviceGetCount()
	if r != nvml.SUCCESS || count != 2 {
		t.Fatalf("%d devices, %v", count, r)
	}
	for i, want := range spec.GPUs {
		d, r := n.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		got := standin.GPU{}
		var mode int
		var memory nvml.Memory
		var pci nvml.PciInfo
		var returns [6]nvml.Return
		got.UUID, returns[0] = d.GetUUID()
		got.Name, returns[1] = d.GetName()
		got.Minor, returns[2] = d.GetMinorNumber()
		mode, _, returns[3] = d.GetMigMode()
		memory, returns[4] = d.GetMemoryInfo()
		pci, returns[5] = d.GetPciInfo()
		if returns != [6]nvml.Return{} {
			t.Fatal(returns)
		}
		got.MIG, got.Memory, got.Used = mode == 1, memory.Total, memory.Used
		if got != want || memory.Free != want.Memory-want.Used {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if pci.Bus != uint32(i+1) || pci.BusId[0] != '0' {
			t.Errorf("PCI of %d: %+v", i, pci)
		}
		v2, r := d.GetMemoryInfo_v2()
		if r != nvml.SUCCESS || v2.Total != want.Memory || v2.Used != want.Used {
			t.Errorf("memory v2: %+v, %v", v2, r)
		}
	}
	if _, r := n.DeviceGetHandleByIndex(2); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("device 2: %v", r)
	}
}

func TestNVMLProcesses(t *testing.T) {
	spec := standin.H200s(2, 1)
	b := newBench(t, "plain", spec)
	n := monitor(t, b)
	y := b.start(t, nil, "-n", "3", "-i", "10")
	pids := y.ranks(t, 3)
	// A machine beside it, with GPUs of the same UUIDs, is none of its business.
	newBench(t, "plain", spec).start(t, nil, "-i", "10").reaches(t, 0, 1)
	using := func(i int) map[uint32]uint64 {
		d, r := n.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		infos, r := d.GetComputeRunningProcesses()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		m := map[uint32]uint64{}
		for _, p := range infos {
			m[p.Pid] = p.UsedGpuMemory
		}
		return m
	}
	one := uint32(pids[1])
	if m := using(0); len(m) != 2 || m[uint32(pids[0])] != mib || m[uint32(pids[2])] != mib {
		t.Errorf("GPU 0 is used by %v, want ranks 0 and 2 of %v", m, pids)
	}
	if m := using(1); len(m) != 1 || m[one] != mib {
		t.Errorf("GPU 1 is used by %v, want rank 1 of %v", m, pids)
	}
	b.must(t, "lc", pids[1])
	if m := using(1); len(m) != 0 {
		t.Errorf("GPU 1 is used by %v after the checkpoint", m)
	}
	b.must(t, "ru", pids[1])
	if m := using(1); len(m) != 1 || m[one] != mib {
		t.Errorf("GPU 1 is used by %v after the restore", m)
	}
}

func TestNVMLWithoutDriver(t *testing.T) {
	t.Setenv("HETGPU_STANDIN", t.TempDir())
	n := nvml.New(nvml.WithLibraryPath(filepath.Join(built("plain"), "libnvidia-ml.so.1")))
	if r := n.Init(); r != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("init: %v", r)
	}
}

// The time that a call takes when nothing is in its way: what the tests of the
// engine measure must not be the stand-in.
func TestCallsAreFast(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 1)
	start := time.Now()
	b.must(t, strings.Repeat("s", 100), y.pid())
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("100 calls took %v", took)
	}
}
