// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// What fails while device memory is away from its processes is undone.
func TestFaultsSplit(t *testing.T) {
	for _, tc := range []struct {
		rule string
		exit bool
		says []string
	}{
		{"export comm=toy1 error=999", false, []string{"gpu-park"}},
		{"export comm=toy1 error=999", true, []string{"gpu-park"}},
		{"lock comm=toy1 error=999", false, []string{"gpu-lock", "CUDA_ERROR_UNKNOWN"}},
		{"lock comm=toy1 nth=2 error=999", false, []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		{"checkpoint comm=toy1 error=999", false, []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		{"checkpoint comm=toy0 crash times=1", false, []string{"gpu-suspend", "device helper died"}},
		{"copy comm=hetgpu-gpu error=999", false, []string{"device memory"}},
		{"copy comm=hetgpu-gpu error=999", true, []string{"gpu-drain", "device memory"}},
		{"restore comm=toy1 error=999 times=1", false, nil},
		{"restore comm=toy1 crash times=1", false, nil},
		{"unlock comm=toy1 nth=2 error=999 times=1", false, nil},
	} {
		name := tc.rule
		if tc.exit {
			name += ", exit"
		}
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			p := d.patient(ctx, t, d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2"}}), 2)
			d.faults(t, tc.rule)
			if err := p.checkpointDirectly(ctx, tc.exit); p.expectOutcome(err, tc.says) {
				expectSplit(t, p.dir)
				p.startOver()
			}
			d.faults(t)
			p.expectRecovered(ctx)
		})
	}
}

// The helper that holds device memory dies, at each of its calls of the driver:
// the container is as it was, or ended, and never runs without its memory.
func TestFaultsSplitHelperDies(t *testing.T) {
	for _, rule := range []string{
		"import comm=hetgpu-gpu crash times=1", "map comm=hetgpu-gpu crash times=1", // The first two are of the opening of the devices.
		"create comm=hetgpu-gpu nth=3 crash times=1",
		"copy comm=hetgpu-gpu crash times=1", "copy comm=hetgpu-gpu nth=3 crash times=1",
	} {
		t.Run(rule, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			p := d.patient(ctx, t, d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "6000000"}}), 2)
			d.faults(t, rule)
			err := p.checkpointDirectly(ctx, false)
			d.faults(t)
			t.Logf("the checkpoint says: %v", err)
			if err == nil {
				expectSplit(t, p.dir)
				p.startOver()
			}
			if err == nil || !strings.Contains(err.Error(), "device memory is lost") {
				p.expectRecovered(ctx)
				return
			}
			expectError(t, err, "the container was ended", "device helper that held it has died")
			p.expectEnded(t)
		})
	}
}

// expectEnded fails unless the container has ended and left nothing.
func (p *patient) expectEnded(t *testing.T) {
	t.Helper()
	ctx := p.d.testContext(t)
	p.waitExit(ctx)
	p.delete(ctx)
	p.remove()
	p.d.expectNothingLeft(t)
	expectNoControlDir(t)
	for _, gpu := range usual.GPUs {
		p.d.expectUsed(t, gpu, 0)
	}
}

// The helpers are killed while CRIU dumps, with all device memory in the hands
// of one of them.
func TestFaultsSplitHelpersKilled(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	h, withHook := newHook(t)
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2"}})
	s.opts = append(s.opts, withHook)
	p := d.patient(ctx, t, s, 2)
	o := h.holdAt(t, "network-lock")
	t.Cleanup(o.release)
	done := make(chan error, 1)
	go func() { done <- p.checkpointDirectly(ctx, false) }()
	o.wait(ctx)
	h.at(t, "", "")
	killHelpers(t, d)
	o.release()
	err := <-done
	expectError(t, err, "device memory is lost", "the container was ended")
	p.expectEnded(t)
	// What was saved by then is whole, or there is nothing.
	if _, err := os.Stat(filepath.Join(p.dir, snapshot.ManifestName)); err == nil {
		expectSplit(t, p.dir)
		r := d.restore(ctx, t, s, p.dir)
		r.expectGoesOn(ctx, 2)
		r.stop(ctx)
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// killHelpers kills all device helpers of the daemon's shims.
func killHelpers(t *testing.T, d *daemon) {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range procs {
		program, _, _ := strings.Cut(proc.Command, " ")
		if filepath.Base(program) == "hetgpu-gpu" {
			if err := syscall.Kill(proc.PID, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
}

// A container that is killed while its memory is away, and a shim.
func TestFaultsSplitKilled(t *testing.T) {
	for _, what := range []string{"container", "shim"} {
		t.Run(what, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			h, withHook := newHook(t)
			s := d.splitToy()
			s.opts = append(s.opts, withHook)
			p := d.patient(ctx, t, s, 1)
			o := h.holdAt(t, "network-lock")
			t.Cleanup(o.release)
			done := make(chan error, 1)
			go func() { done <- p.checkpointDirectly(ctx, false) }()
			o.wait(ctx)
			h.at(t, "", "")
			if what == "container" {
				if err := p.task.Kill(ctx, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				o.release()
				if err := <-done; err == nil {
					t.Error("the checkpoint succeeded")
				}
				p.expectEnded(t)
				return
			}
			for _, pid := range d.shims(t, p.id) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			if err := <-done; err == nil {
				t.Error("the checkpoint succeeded")
			}
			o.release()
			expectNothingRuns(ctx, t, d)
			p.remove()
			d.expectNothingLeft(t)
			expectNoControlDir(t)
			for _, gpu := range usual.GPUs {
				d.expectUsed(t, gpu, 0)
			}
		})
	}
}

// Device memory in a snapshot that is damaged, or can't be had, ends a restore.
func TestFaultsSplitRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy()
	dir, _ := d.saved(ctx, t, s, 1)
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		rule   string
		says   []string
	}{
		"one bit of device memory": {damage: func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, memfile.DataName(0)), flip(5000, 3))
		}, says: []string{"saved device memory is damaged"}},
		"one bit of its index": {damage: func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, memfile.IndexName), flip(30, 3))
		}, says: []string{memfile.IndexName, "digest"}},
		"a file of it missing": {damage: func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, memfile.DataName(0))); err != nil {
				t.Fatal(err)
			}
		}, says: []string{memfile.DataName(0) + " is missing"}},
		"no device memory":                 {rule: "create comm=hetgpu-gpu error=2", says: []string{"device memory"}},
		"the helper dies as it loads":      {rule: "copy comm=hetgpu-gpu crash times=1", says: []string{"device helper died"}},
		"the process can't have it":        {rule: "import comm=vmmtoy error=999", says: []string{"gpu-resume"}},
		"the driver does not take it back": {rule: "restore comm=vmmtoy error=999", says: []string{"gpu-resume", "CUDA_ERROR_UNKNOWN"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			damaged := dir
			if tc.damage != nil {
				damaged = copySnapshot(t, dir)
				tc.damage(t, damaged)
			}
			if tc.rule != "" {
				d.faults(t, tc.rule)
			}
			d.expectRestoreFails(ctx, t, s, damaged, tc.says...)
			d.faults(t)
			expectNoControlDir(t)
		})
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}
