// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// onGPUs returns the newer daemon, for tests that need no other.
func onGPUs(t *testing.T) *daemon {
	t.Helper()
	skipOnStock(t, "it knows nothing of GPUs")
	d := daemons[0]
	d.logIfFailed(t)
	return d
}

// A container goes on after its checkpoint, and is restored beside itself, as
// often as one likes, with device memory of its own each time.
func TestGPULeaveRunning(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.toy())
		before := c.ticksOn(ctx, 1)
		dir := c.mustCheckpoint(ctx, false)
		c.expectGoesOn(ctx, 1)
		d.expectUsed(t, usual.GPUs[0], mib)
		for i := range 2 {
			restored := d.restore(ctx, t, d.toy(), dir)
			restored.expectGoesOn(ctx, 1)
			if first := restored.firstTick(); first <= before[0] {
				t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
			}
			d.expectUsed(t, usual.GPUs[0], uint64(2+i)*mib)
			defer restored.stop(ctx)
		}
		c.expectGoesOn(ctx, 1)
		c.stop(ctx)
	})
}

// expectGoesOn fails unless the container runs and each of its ranks goes on
// with its GPU.
func (c *container) expectGoesOn(ctx context.Context, ranks int) {
	c.t.Helper()
	c.expectStatus(ctx, containerd.Running)
	c.expectStates(ctx, ranks, "running")
	c.ticksOn(ctx, ranks)
}

// A container that is to end leaves nothing on the GPU and comes back under
// its own id.
func TestGPUExit(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.toy())
		before := c.ticksOn(ctx, 1)
		dir := c.mustCheckpoint(ctx, true)
		if status := c.waitExit(ctx); status != 137 {
			t.Errorf("exit status %d, not 137", status)
		}
		c.delete(ctx)
		d.expectUsed(t, usual.GPUs[0], 0)
		after := c.ticks()
		c.remove()
		d.expectNothingLeft(t)

		s := d.toy()
		s.id = c.id
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 1)
		if first := r.firstTick(); first <= before[0] || first > after[0]+1 {
			t.Errorf("it went on at tick %d, and was saved between %d and %d", first, before[0], after[0])
		}
		r.stop(ctx)
		r.remove()
		d.expectNothingLeft(t)
	})
}

// Four processes on two GPUs: all are locked before one is checkpointed, and
// all come back, each to its own GPU.
func TestGPUFourProcesses(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "4")
	s.opts = []oci.SpecOpts{d.withProgram, d.withGPUs(0, 1)}
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 4)
	seen := d.callsSoFar(t)
	dir := c.mustCheckpoint(ctx, false)
	locked, checkpointed := 0, 0
	for _, call := range d.callsSoFar(t)[len(seen):] {
		switch {
		case call.Op == "lock" && call.Done && call.Result == 0:
			locked++
		case call.Op == "checkpoint" && !call.Done && locked < 4:
			t.Errorf("process %d was checkpointed when %d of 4 were locked", call.PID, locked)
		case call.Op == "checkpoint" && call.Done:
			checkpointed++
		}
	}
	if checkpointed != 4 {
		t.Errorf("%d processes were checkpointed, not 4", checkpointed)
	}
	c.expectGoesOn(ctx, 4)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 4)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 4*mib)
	}
	m := readManifest(t, dir)
	if m.Engine != snapshot.EngineDriver || len(m.Processes) != 4 || len(m.Devices) != 2 || m.Devices[0].UsedBytes != 2*mib {
		t.Errorf("the manifest says %+v", m)
	}
	c.stop(ctx)
	r.expectGoesOn(ctx, 4)
	r.stop(ctx)
}

// The driver checkpoints and restores processes at the same time: it does not
// return from any of its calls until it is at all of them.
func TestGPUParallel(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "4")
	p := d.patient(ctx, t, s, 4)
	d.faults(t, "checkpoint hang", "restore hang")
	seen := len(d.callsSoFar(t))
	done := make(chan error, 1)
	go func() { done <- p.checkpointDirectly(ctx, false) }()
	d.waitCalls(ctx, t, seen, "checkpoint", 4)
	d.faults(t, "restore hang")
	d.waitCalls(ctx, t, seen, "restore", 4)
	d.faults(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.expectRunsOn(ctx)
	p.stop(ctx)

	d.faults(t, "restore hang")
	seen = len(d.callsSoFar(t))
	s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(p.dir)}
	r := d.create(ctx, t, s)
	go func() { done <- r.task.Start(ctx) }()
	d.waitCalls(ctx, t, seen, "restore", 4)
	d.faults(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.expectGoesOn(ctx, 4)
	r.stop(ctx)
}

// waitCalls waits until the driver is at so many calls of an operation, of which
// none was there before and none has returned.
func (d *daemon) waitCalls(ctx context.Context, t *testing.T, before int, op string, want int) {
	t.Helper()
	err := testbed.Eventually(ctx, fmt.Sprintf("the driver is at %d calls of %s", want, op), func() error {
		under := 0
		for _, call := range d.callsSoFar(t)[before:] {
			switch {
			case call.Op != op:
			case call.Done:
				return testbed.Permanent(fmt.Errorf("%s of process %d has returned, with %d under way", op, call.PID, under))
			default:
				under++
			}
		}
		if under < want {
			return fmt.Errorf("it is at %d", under)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) callsSoFar(t *testing.T) []standin.Call {
	t.Helper()
	calls, err := d.gpu.Calls()
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func readManifest(t *testing.T, dir string) *snapshot.Manifest {
	t.Helper()
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Without a PID namespace of its own a container's processes have the host's
// PIDs, and take them again.
func TestGPUHostPIDs(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2")
	s.opts = append(s.opts, oci.WithHostNamespace(specs.PIDNamespace))
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 2)
	before := c.gpuProcesses(ctx)
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 2)
	if after := r.gpuProcesses(ctx); !slices.Equal(before, after) {
		t.Errorf("processes %v were restored as %v", before, after)
	}
	r.stop(ctx)
}

// Programs whose GPU work never rests by itself, since each process waits for
// the others, are locked by trying again.
func TestGPUCollective(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-c", "-n", "4")
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 4)
	// One is so late at first that it is in a collective by then, which those
	// that are locked do not join.
	d.faults(t, "lock comm=toy2 delay=100 times=3")
	seen := d.callsSoFar(t)
	dir := c.mustCheckpoint(ctx, false)
	tries := map[int]int{}
	for _, call := range d.callsSoFar(t)[len(seen):] {
		if call.Op == "lock" && call.Done {
			tries[call.Result]++
		}
	}
	const success, notReady = 0, 600
	if tries[notReady] == 0 || tries[success] < 4 {
		t.Errorf("results of the locks: %v", tries)
	}
	d.faults(t)
	c.expectGoesOn(ctx, 4)
	c.stop(ctx)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 4)
	r.stop(ctx)
}

// A process that another tool had locked or checkpointed is left so.
func TestGPUFoundInAnotherState(t *testing.T) {
	for _, tc := range []struct{ steps, state, back string }{
		{"l", "locked", "u"},
		{"lc", "checkpointed", "ru"},
	} {
		t.Run(tc.state, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			c := d.run(ctx, t, d.toy())
			c.ticksOn(ctx, 1)
			c.drive(ctx, tc.steps)
			dir := c.mustCheckpoint(ctx, false)
			c.expectStatus(ctx, containerd.Running)
			c.expectStates(ctx, 1, tc.state)
			c.drive(ctx, tc.back)
			c.expectGoesOn(ctx, 1)
			c.stop(ctx)
			r := d.restore(ctx, t, d.toy(), dir)
			if tc.state == "checkpointed" {
				r.expectStates(ctx, 1, tc.state)
				r.drive(ctx, tc.back)
			}
			r.expectGoesOn(ctx, 1)
			r.stop(ctx)
		})
	}
}

// A GPU that no process uses is no hindrance, and its absence at the restore
// none either.
func TestGPUUnused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := counting()
	s.opts = []oci.SpecOpts{d.withProgram, d.withGPUs(0)}
	c := d.run(ctx, t, s)
	c.stdout.waitMore(ctx, t, 3)
	dir := c.mustCheckpoint(ctx, false)
	c.stdout.waitMore(ctx, t, 3)
	if m := readManifest(t, dir); m.Engine != snapshot.EngineNone || len(m.Processes) != 0 {
		t.Errorf("the manifest says engine %q and processes %v", m.Engine, m.Processes)
	}
	r := d.restore(ctx, t, s, dir)
	r.stdout.waitMore(ctx, t, 3)
	r.stop(ctx)
	c.stop(ctx)
}

// helpers returns the PIDs of the device helpers that the daemon's shims have.
func (d *daemon) helpers(t *testing.T) []int {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		if !p.Container && strings.HasPrefix(filepath.Base(p.Command), "hetgpu-gpu") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// A shim has one helper for all of its containers, and none if they have no
// GPU.
func TestGPUHelpers(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	plain := d.run(ctx, t, counting())
	plain.stdout.waitMore(ctx, t, 3)
	plain.mustCheckpoint(ctx, false)
	if pids := d.helpers(t); len(pids) != 0 {
		t.Errorf("a container without a GPU has helpers %v", pids)
	}
	together := oci.WithAnnotations(map[string]string{"io.containerd.runc.v2.group": newID(t)})
	var group []*container
	var helpers []int
	for i := range 2 {
		s := d.toy()
		s.opts = append(s.opts, together)
		c := d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		c.mustCheckpoint(ctx, false)
		group = append(group, c)
		now := d.helpers(t)
		if len(now) != 1 || i > 0 && !slices.Equal(now, helpers) {
			t.Errorf("container %d of a shim: helpers %v, before %v", i, now, helpers)
		}
		helpers = now
	}
	alone := d.run(ctx, t, d.toy())
	if now := d.helpers(t); len(now) != 2 {
		t.Errorf("two shims have helpers %v", now)
	}
	for _, c := range append(group, alone, plain) {
		c.stop(ctx)
		c.remove()
	}
	d.expectNothingLeft(t)
}

// What was restored is a container like any other.
func TestGPUCheckpointOfRestored(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy())
	for range 3 {
		c.ticksOn(ctx, 1)
		before := c.ticks()
		dir := c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		c = d.restore(ctx, t, d.toy(), dir)
		c.expectGoesOn(ctx, 1)
		if first := c.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d after tick %d", first, before[0])
		}
	}
	c.stop(ctx)
}

// The real ctr, with and without a directory.
func TestGPUCtr(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.toy())
		before := c.ticksOn(ctx, 1)
		dir := filepath.Join(t.TempDir(), "snapshot")
		d.ctr(ctx, t, "task", "checkpoint", "--image-path", dir, c.id)
		c.expectGoesOn(ctx, 1)
		expectSnapshotDir(t, dir)
		ref := "test.hetgpu.local/checkpoint/" + c.id
		d.ctr(ctx, t, "container", "checkpoint", "--task", "--image", "--rw", c.id, ref)
		c.expectGoesOn(ctx, 1)
		r := d.ctrRestore(ctx, t, newID(t), ref)
		r.waitRunning(ctx) // the GPU's part comes after the event
		r.expectGoesOn(ctx, 1)
		if first := r.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d after tick %d", first, before[0])
		}
		d.expectUsed(t, usual.GPUs[0], 2*mib)
		d.ctr(ctx, t, "task", "checkpoint", r.id)
		r.expectGoesOn(ctx, 1)
		r.stop(ctx)
		c.stop(ctx)
		for _, c := range []*container{c, r} {
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// A restore by ctr that fails, as the task is created or as it starts, leaves
// nothing: not containerd's copy of the snapshot either, which has all memory.
func TestGPUCtrRestoreFails(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy())
	c.ticksOn(ctx, 1)
	ref := "test.hetgpu.local/checkpoint/" + c.id
	d.ctr(ctx, t, "container", "checkpoint", "--task", "--image", "--rw", c.id, ref)
	c.stop(ctx)
	c.remove()
	fails := func(says string) {
		t.Helper()
		id := newID(t)
		_, err := d.Ctr(ctx, "container", "restore", "--live", "--rw", id, ref)
		expectError(t, err, says)
		if err := d.removeContainer(ctx, id); err != nil {
			t.Error(err)
		}
		d.expectNothingLeft(t)
	}
	d.faults(t, "restore error=999")
	fails("gpu-resume")
	d.faults(t)
	d.change(t, withGPU(usual, func(g *standin.GPU) { g.MIG = true }))
	fails("MIG")
}
