// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gpuengine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

func TestCycle(t *testing.T) {
	spec := standin.H200s(2, 1)
	b := newBench(t, spec)
	y := b.start(t, 4)
	procs := b.find(t, y)
	if err := b.Prepare(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	used, err := b.Usage(t.Context(), procs)
	if err != nil || used[spec.GPUs[0].UUID] < 2<<20 || used[spec.GPUs[1].UUID] < 2<<20 {
		t.Errorf("Usage = %v, %v", used, err)
	}
	if err := b.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	b.states(t, procs, gpuplugin.StateCheckpointed)
	for _, gpu := range spec.GPUs {
		if left, err := b.UsedBytes(gpu.UUID); err != nil || left != 0 {
			t.Errorf("%d bytes left on %s, %v", left, gpu.UUID, err)
		}
	}
	again, err := b.Processes(t.Context(), y.pids)
	if err != nil || len(again) != 4 {
		t.Errorf("suspended processes found: %v, %v", again, err)
	}
	if err := b.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	b.states(t, procs, gpuplugin.StateRunning)
	y.goesOn(t)
}

// Ranks that wait for one another in kernels can be locked between two of them
// only.
func TestCollective(t *testing.T) {
	b := newBench(t, standin.H200s(2, 1))
	y := b.start(t, 3, "-c")
	procs := b.find(t, y)
	for range 3 {
		if err := b.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		if err := b.Resume(t.Context(), procs, nil); err != nil {
			t.Fatal(err)
		}
		y.goesOn(t)
	}
}

func TestOtherDevices(t *testing.T) {
	saved, other := standin.H200s(2, 1), standin.H200s(2, 7)
	b := newBench(t, saved)
	y := b.start(t, 2)
	procs := b.find(t, y)
	inventory, err := b.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	if err := b.Set(other); err != nil {
		t.Fatal(err)
	}
	devices, err := b.Match(t.Context(), inventory, nil)
	if err != nil || len(devices) != 2 {
		t.Fatalf("Match = %v, %v", devices, err)
	}
	if err := b.Resume(t.Context(), procs, devices); err != nil {
		t.Fatal(err)
	}
	y.goesOn(t)
	for _, gpu := range other.GPUs {
		if used, err := b.UsedBytes(gpu.UUID); err != nil || used == 0 {
			t.Errorf("nothing is on %s: %v", gpu.UUID, err)
		}
	}
}

// Whatever goes wrong while processes are suspended, they go on afterwards.
func TestSuspendFails(t *testing.T) {
	tests := map[string]struct {
		fault string
		is    error
		text  string
	}{
		"one fails to lock":          {fault: "lock comm=toy2 error=999", text: "GPU lock of process"},
		"one fails to checkpoint":    {fault: "checkpoint comm=toy2 error=999", text: "CUDA_ERROR_UNKNOWN (999)"},
		"one is not supported":       {fault: "checkpoint comm=toy1 error=801", is: gpuplugin.ErrUnsupported, text: "can't checkpoint"},
		"helper dies before a lock":  {fault: "lock times=1 crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"helper dies during a lock":  {fault: "lock times=1 when=during crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"helper dies after a lock":   {fault: "lock nth=3 when=after crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"helper dies before one":     {fault: "checkpoint times=1 crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"helper dies during one":     {fault: "checkpoint times=1 when=during crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"helper dies after one":      {fault: "checkpoint nth=2 when=after crash", is: gpuplugin.ErrUnavailable, text: "helper died"},
		"a checkpoint never returns": {fault: "checkpoint comm=toy0 hang", is: context.DeadlineExceeded, text: "no answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, standin.H200s(2, 1), nvidia.WithStepTimeout(3*time.Second))
			y := b.start(t, 4)
			procs := b.find(t, y)
			b.faults(t, test.fault)
			err := b.Suspend(t.Context(), procs)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v, want %q", err, test.text)
			}
			b.states(t, procs, gpuplugin.StateRunning)
			y.goesOn(t)
			b.faults(t)
			if err := errors.Join(b.Suspend(t.Context(), procs), b.Resume(t.Context(), procs, nil)); err != nil {
				t.Errorf("the next time: %v", err)
			}
			y.goesOn(t)
		})
	}
}

func TestResumeFails(t *testing.T) {
	for name, fault := range map[string]string{
		"helper dies before a restore": "restore times=1 crash",
		"helper dies during a restore": "restore times=1 when=during crash",
		"helper dies after a restore":  "restore nth=3 when=after crash",
		"helper dies before an unlock": "unlock times=1 crash",
		"helper dies after an unlock":  "unlock times=1 when=after crash",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, standin.H200s(2, 1))
			y := b.start(t, 4)
			procs := b.find(t, y)
			if err := b.Suspend(t.Context(), procs); err != nil {
				t.Fatal(err)
			}
			b.faults(t, fault)
			if err := b.Resume(t.Context(), procs, nil); !errors.Is(err, gpuplugin.ErrUnavailable) {
				t.Errorf("err = %v", err)
			}
			if err := b.Undo(t.Context(), procs); err != nil {
				t.Error(err)
			}
			b.states(t, procs, gpuplugin.StateRunning)
			y.goesOn(t)
		})
	}
}

func TestCanceled(t *testing.T) {
	b := newBench(t, standin.H200s(1, 1))
	y := b.start(t, 2)
	procs := b.find(t, y)
	b.faults(t, "checkpoint delay=300")
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if err := b.Suspend(ctx, procs); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	b.states(t, procs, gpuplugin.StateRunning)
	y.goesOn(t)
}

func TestManagedMemory(t *testing.T) {
	b := newBench(t, standin.H200s(1, 1))
	y := b.start(t, 2, "-m")
	procs := b.find(t, y)
	if err := b.Suspend(t.Context(), procs); !errors.Is(err, gpuplugin.ErrUnsupported) {
		t.Errorf("err = %v", err)
	}
	b.states(t, procs, gpuplugin.StateRunning)
	y.goesOn(t)
}

// The driver never answers for a process that is stopped: that can't be taken
// for an answer.
func TestStoppedProcess(t *testing.T) {
	b := newBench(t, standin.H200s(1, 1))
	y := b.start(t, 2)
	if err := syscall.Kill(y.pids[2], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	procs, err := b.Processes(ctx, y.pids)
	if !errors.Is(err, gpuplugin.ErrUnknownState) || procs != nil || !strings.Contains(err.Error(), "toy1") {
		t.Errorf("got %v, %v", procs, err)
	}
	if err := syscall.Kill(y.pids[2], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.find(t, y)
	y.goesOn(t)
}

func TestOldDriver(t *testing.T) {
	spec := standin.H200s(1, 1)
	b := newBench(t, spec)
	y := b.start(t, 2)
	spec.Driver, spec.CUDA = "550.54.14", 12040
	if err := b.Set(spec); err != nil {
		t.Fatal(err)
	}
	// The helper of this machine as it was has loaded the newer driver.
	old := nvidia.NewHelper(nvidia.HelperConfig{Binary: filepath.Join(bin, "hetgpu-gpu"), Env: helperEnv(b.Machine)})
	t.Cleanup(func() { _ = old.Close() })
	e := nvidia.NewEngine(old)
	_, err := e.Processes(t.Context(), y.pids)
	if !errors.Is(err, gpuplugin.ErrUnknownState) || !errors.Is(err, gpuplugin.ErrUnsupported) ||
		!strings.Contains(err.Error(), "driver 570 or later") {
		t.Errorf("Processes: %v", err)
	}
	err = e.Prepare(t.Context(), []gpuplugin.Process{{PID: y.pids[1], State: gpuplugin.StateRunning}})
	if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), "550.54.14") {
		t.Errorf("Prepare: %v", err)
	}
}

// A driver that can't be initialized at first is tried again.
func TestDriverComesLater(t *testing.T) {
	spec := standin.H200s(1, 1)
	b := newBench(t, spec)
	b.faults(t, "init comm=hetgpu-gpu error=100")
	late := nvidia.NewHelper(nvidia.HelperConfig{Binary: filepath.Join(bin, "hetgpu-gpu"), Env: helperEnv(b.Machine)})
	t.Cleanup(func() { _ = late.Close() })
	_, err := late.State(t.Context(), os.Getpid())
	if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), "CUDA_ERROR_NO_DEVICE (100)") {
		t.Errorf("err = %v", err)
	}
	b.faults(t)
	if _, err := late.State(t.Context(), os.Getpid()); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("err = %v", err)
	}
}

func TestInventoryCommand(t *testing.T) {
	spec := standin.H200s(2, 1)
	b := newBench(t, spec)
	cmd := exec.Command(filepath.Join(bin, "hetgpu-gpu"), "inventory")
	cmd.Env = helperEnv(b.Machine)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var report helperapi.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if report.Driver != spec.Driver || report.API != spec.CUDA || len(report.Devices) != 2 ||
		report.Devices[1].UUID != spec.GPUs[1].UUID || report.Devices[1].MemoryBytes != spec.GPUs[1].Memory {
		t.Errorf("report = %+v", report)
	}
	for _, s := range report.Symbols {
		if s.Required && !s.Found {
			t.Errorf("%s is missing", s.Name)
		}
		if s.Name == "cuCheckpointOperationComplete" && s.Found {
			t.Error("driver 580 has what 615 brought")
		}
	}
}

// A process that has memory of another by a legacy handle could not be
// restored, so it is refused before anything changes; once the handle is
// closed, nothing is in the way.
func TestLegacyIPC(t *testing.T) {
	for mode, refused := range map[string]bool{"keep": true, "close": false} {
		t.Run(mode, func(t *testing.T) {
			if err := ipcwatch.Supported(); err != nil {
				t.Skip(err)
			}
			guard := ipcwatch.NewGuard()
			t.Cleanup(func() { _ = guard.Close() })
			guard.Attach(t.Context(), []int{os.Getpid()}, bin)
			guard.Wait(t.Context())
			b := newBench(t, standin.H200s(1, 1), nvidia.WithSharing(guard))
			y := b.start(t, 2, "-p", mode)
			procs := b.find(t, y)
			err := b.Prepare(t.Context(), procs)
			if refused {
				if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), "1 legacy CUDA IPC handle") {
					t.Errorf("err = %v", err)
				}
				b.states(t, procs, gpuplugin.StateRunning)
				y.goesOn(t)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.Suspend(t.Context(), procs), b.Resume(t.Context(), procs, nil)); err != nil {
				t.Error(err)
			}
			y.goesOn(t)
		})
	}
}
