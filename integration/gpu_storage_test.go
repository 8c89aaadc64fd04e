// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// onStorage gives the machine a driver with custom storage. What a driver does
// with it that is not documented, the stand-in does in the way that loses most.
func onStorage(t *testing.T, room bool) *daemon {
	t.Helper()
	d := onGPUs(t)
	d.change(t, withStorage(1, room))
	return d
}

// withStorage is a machine like usual, or one with other GPUs. With room there is
// some for a copy on the device: the helper leaves half a GiB free.
func withStorage(series int, room bool) standin.Spec {
	s := standin.H200s(2, series)
	s.Driver, s.CUDA = "615.71.09", 13040
	if room {
		return s.WithMemory(1 << 30)
	}
	return s
}

// expectStorage checks that the memory of so many processes is in files.
func expectStorage(t *testing.T, dir string, processes int) *snapshot.Manifest {
	t.Helper()
	s, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	m := s.Manifest
	if m.Version != 3 || m.Engine != snapshot.EngineDriver || m.Memory == nil || m.Memory.Bytes == 0 || m.Split() != processes || m.Library != nil {
		t.Errorf("version %d, engine %q (%s), %d processes, memory %+v, library %v", m.Version, m.Engine, m.EngineReason, m.Split(), m.Memory, m.Library)
	}
	return m
}

// A container goes on after its checkpoint, and is restored beside itself, as
// often as one likes.
func TestGPUStorageLeaveRunning(t *testing.T) {
	for name, program := range map[string][]string{
		"one allocation":      {"toy", "-b", "5000000"},
		"memory of each kind": {"vmmtoy", "-v"},
	} {
		t.Run(name, func(t *testing.T) {
			d := onStorage(t, true)
			ctx := d.testContext(t)
			s := d.toy()
			s.args = append([]string{inContainer + "/" + program[0], "-i", "10"}, program[1:]...)
			c := d.run(ctx, t, s)
			before := c.ticksOn(ctx, 1)
			dir := c.mustCheckpoint(ctx, false)
			if m := expectStorage(t, dir, 1); m.EngineReason != "" {
				t.Errorf("the reason is %q", m.EngineReason)
			}
			c.expectGoesOn(ctx, 1)
			for range 2 {
				r := d.restore(ctx, t, s, dir)
				r.expectGoesOn(ctx, 1)
				if first := r.firstTick(); first <= before[0] {
					t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
				}
				// And is saved once more.
				again := r.mustCheckpoint(ctx, false)
				expectStorage(t, again, 1)
				r.expectGoesOn(ctx, 1)
				r.stop(ctx)
			}
			c.expectGoesOn(ctx, 1)
			c.stop(ctx)
			c.remove()
			for _, gpu := range usual.GPUs {
				d.expectUsed(t, gpu, 0)
			}
		})
	}
}

// Four processes on two GPUs end, and come back on others.
func TestGPUStorageFourProcesses(t *testing.T) {
	d := onStorage(t, true)
	ctx := d.testContext(t)
	s := d.toy("-n", "4", "-b", "3000000")
	s.opts = []oci.SpecOpts{d.withProgram, d.withGPUs(0, 1)}
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 4)
	dir := c.mustCheckpoint(ctx, true)
	if status := c.waitExit(ctx); status != 137 {
		t.Errorf("exit status %d, not 137", status)
	}
	c.delete(ctx)
	c.remove()
	d.expectNothingLeft(t)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
	m := expectStorage(t, dir, 4)
	if len(m.Devices) != 2 || m.Memory.Bytes < 4*3000000 {
		t.Errorf("devices %+v, memory %+v", m.Devices, m.Memory)
	}
	d.change(t, withStorage(7, true))
	for range 2 {
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 4)
		if first := r.firstTick(); first <= min(before[0], before[1], before[2], before[3]) {
			t.Errorf("it went on at tick %d, and was saved after %v", first, before)
		}
		r.stop(ctx)
		r.remove()
	}
	d.expectNothingLeft(t)
}

// Without room on the device for a copy, all is in files before the processes
// let go of it.
func TestGPUStorageNoRoom(t *testing.T) {
	d := onStorage(t, false)
	ctx := d.testContext(t)
	s := d.toy("-b", "40000000")
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 1)
	m := expectStorage(t, dir, 1)
	if !slices.ContainsFunc(m.Phases, func(p snapshot.Phase) bool { return p.Name == checkpoint.PhaseDrain }) {
		t.Errorf("phases are %+v", m.Phases)
	}
	c.stop(ctx)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// A driver that has no custom storage, or refuses it to a process, saves the
// memory itself; an older one can't restore what is in files.
func TestGPUStorageFallback(t *testing.T) {
	d := onStorage(t, true)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.toy("-n", "2"), 2)
	d.faults(t, "checkpoint comm=toy1 error=801 times=1")
	if err := p.checkpointDirectly(ctx, false); err != nil {
		t.Fatal(err)
	}
	d.faults(t)
	m := expectStorage(t, p.dir, 1)
	if !strings.Contains(m.EngineReason, "custom storage") || !strings.Contains(m.EngineReason, "CUDA_ERROR_NOT_SUPPORTED") {
		t.Errorf("the reason is %q", m.EngineReason)
	}
	r := d.restore(ctx, t, d.toy("-n", "2"), p.dir)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
	// Refused to both.
	refused := p.dir
	p.startOver()
	d.faults(t, "checkpoint comm=toy0 error=801 times=1", "checkpoint comm=toy1 error=801 times=1")
	if err := p.checkpointDirectly(ctx, false); err != nil {
		t.Fatal(err)
	}
	d.faults(t)
	if m := readManifest(t, p.dir); m.Engine != snapshot.EngineDriver || m.Memory != nil || !strings.Contains(m.EngineReason, "custom storage") {
		t.Errorf("engine %q (%s), memory %+v", m.Engine, m.EngineReason, m.Memory)
	}
	p.startOver()
	p.expectRecovered(ctx)
	d.change(t, usual)
	d.expectRestoreFails(ctx, t, d.toy("-n", "2"), refused, "custom storage", "615")
}

// The configuration turns it off.
func TestGPUStorageOff(t *testing.T) {
	d := onStorage(t, true)
	d.configure(t, "driver.custom_storage = false")
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy())
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 1)
	if m := readManifest(t, dir); m.Version != 1 && m.Memory != nil {
		t.Errorf("version %d, memory %+v", m.Version, m.Memory)
	}
	c.stop(ctx)
}

// What fails while device memory is shown to the helper is undone; where nothing
// could, the container is ended, and never runs without its memory.
func TestFaultsStorage(t *testing.T) {
	for _, tc := range []struct {
		rule string
		exit bool
		// room says that there is room for a copy on the device.
		room bool
		says []string
		lost bool
	}{
		{rule: "lock comm=toy1 error=999", room: true, says: []string{"gpu-lock", "CUDA_ERROR_UNKNOWN"}},
		{rule: "checkpoint comm=toy1 error=999", room: true, says: []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		{rule: "checkpoint comm=toy1 error=999", exit: true, says: []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		// It has begun, and nobody has a handle by which to complete it.
		{rule: "checkpoint comm=toy1 error=999 times=1 when=after", room: true, says: []string{"gpu-park", "device memory is lost"}, lost: true},
		// The copy fails once; what is mapped is copied on the way back.
		{rule: "copy comm=hetgpu-gpu error=999 times=1", room: true, says: []string{"gpu-copy"}},
		{rule: "copy comm=hetgpu-gpu error=999 times=1", exit: true, room: true, says: []string{"gpu-drain"}},
		{rule: "copy comm=hetgpu-gpu error=999 times=1", exit: true, says: []string{"gpu-drain"}},
		{rule: "copy comm=hetgpu-gpu error=999", room: true, says: []string{"device memory is lost"}, lost: true},
		// What the driver does with a handle that failed is not known.
		{rule: "complete comm=toy1 error=999 times=1", room: true, says: []string{"gpu-suspend", "device memory is lost"}, lost: true},
		{rule: "complete comm=toy1 error=999 times=1 when=after", room: true, says: []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		{rule: "complete comm=toy1 error=999 times=1 when=after", exit: true, says: []string{"gpu-suspend", "CUDA_ERROR_UNKNOWN"}},
		{rule: "complete comm=toy1 nth=2 error=999 times=2", room: true, says: []string{"could not be brought back", "device memory is lost"}, lost: true},
		// The second try brings it back.
		{rule: "restore comm=toy1 error=999 times=1", room: true},
		{rule: "restore comm=toy1 error=999 times=1"},
		{rule: "unlock comm=toy1 error=999 times=1", room: true},
	} {
		name := fmt.Sprintf("%s, exit %t, room %t", tc.rule, tc.exit, tc.room)
		t.Run(name, func(t *testing.T) {
			d := onStorage(t, tc.room)
			ctx := d.testContext(t)
			p := d.patient(ctx, t, d.toy("-n", "2", "-b", "3000000"), 2)
			d.faults(t, tc.rule)
			err := p.checkpointDirectly(ctx, tc.exit)
			d.faults(t)
			switch {
			case tc.says != nil:
				expectError(t, err, tc.says...)
			case err != nil:
				t.Errorf("the checkpoint failed: %v", err)
			default:
				expectStorage(t, p.dir, 2)
				p.startOver()
			}
			if tc.lost {
				p.expectEnded(t)
				return
			}
			p.expectRecovered(ctx)
		})
	}
}

// The helper that has the memory dies, at each of its calls: the container is as
// it was, or ended, and never runs without its memory.
func TestFaultsStorageHelperDies(t *testing.T) {
	for _, rule := range []string{
		"checkpoint comm=toy0 crash times=1",
		"checkpoint comm=toy1 crash times=1",
		"checkpoint comm=toy1 crash times=1 when=after",
		"copy comm=hetgpu-gpu crash times=1",
		"copy comm=hetgpu-gpu nth=3 crash times=1",
		"complete comm=toy1 crash times=1",
		"complete comm=toy1 crash times=1 when=after",
		"restore comm=toy1 crash times=1",
		"restore comm=toy1 crash times=1 when=after",
	} {
		for _, room := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, room %t", rule, room), func(t *testing.T) {
				d := onStorage(t, room)
				ctx := d.testContext(t)
				p := d.patient(ctx, t, d.toy("-n", "2", "-b", "3000000"), 2)
				d.faults(t, rule)
				err := p.checkpointDirectly(ctx, false)
				d.faults(t)
				t.Logf("the checkpoint says: %v", err)
				switch {
				case err == nil:
					if m := readManifest(t, p.dir); m.Engine != snapshot.EngineDriver {
						t.Errorf("the manifest says %+v", m)
					}
					p.startOver()
					p.expectRecovered(ctx)
				case strings.Contains(err.Error(), "device memory is lost"):
					expectError(t, err, "the container was ended")
					p.expectEnded(t)
				default:
					p.expectRecovered(ctx)
				}
			})
		}
	}
}

// The disk fills up after the pre-flight, when the memory is only shown: it is
// brought back from a copy, and nothing is left on the disk.
func TestFaultsStorageDiskFull(t *testing.T) {
	for name, room := range map[string]bool{"room on the device": true, "no room": false} {
		t.Run(name, func(t *testing.T) {
			d := onStorage(t, room)
			ctx := d.testContext(t)
			disk := smallDisk(t, 100)
			p := d.patient(ctx, t, d.toy("-n", "2", "-b", "9000000"), 2)
			p.dir = filepath.Join(disk, "snapshot")
			// While the first process is mapped, which comes after the pre-flight.
			d.faults(t, "checkpoint comm=toy0 hang")
			seen := len(d.callsSoFar(t))
			done := make(chan error, 1)
			go func() { done <- p.checkpointDirectly(ctx, true) }()
			err := testbed.Eventually(ctx, "the driver is asked for a checkpoint", func() error {
				if !slices.ContainsFunc(d.callsSoFar(t)[seen:], func(c standin.Call) bool { return c.Op == "checkpoint" }) {
					return errors.New("it is not")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			fill := filepath.Join(disk, "fill")
			if err := os.WriteFile(fill, make([]byte, 95<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			d.faults(t)
			expectError(t, <-done, "gpu-drain", "no space left")
			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
			p.expectUnharmed(ctx)
			if left := list(disk); len(left) != 0 {
				t.Errorf("on the disk is %v", left)
			}
			p.startOver()
			p.expectRecovered(ctx)
		})
	}
}

// Device memory in a snapshot that is damaged, or can't be had, ends a restore.
func TestFaultsStorageRestore(t *testing.T) {
	d := onStorage(t, true)
	ctx := d.testContext(t)
	s := d.toy()
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
		"the helper dies as it loads":          {rule: "copy comm=hetgpu-gpu crash times=1", says: []string{"device helper died"}},
		"the driver does not take it back":     {rule: "restore comm=toy0 error=999", says: []string{"gpu-resume", "CUDA_ERROR_UNKNOWN"}},
		"the driver does not complete it":      {rule: "complete comm=toy0 error=999", says: []string{"gpu-resume", "CUDA_ERROR_UNKNOWN"}},
		"the driver does not unlock it":        {rule: "unlock comm=toy0 error=999", says: []string{"gpu-resume", "CUDA_ERROR_UNKNOWN"}},
		"the driver says that there's no room": {rule: "restore comm=toy0 error=2", says: []string{"gpu-resume", "CUDA_ERROR_OUT_OF_MEMORY"}},
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
		})
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}
