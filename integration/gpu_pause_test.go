// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
)

// withoutFreezer runs f while the processes of a paused container are thawed
// behind everybody's back: what keeps them from the GPU then is the driver.
func (c *container) withoutFreezer(ctx context.Context, f func()) {
	c.t.Helper()
	group, err := cgroup.Of(int(c.task.Pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := group.Thaw(ctx); err != nil {
		c.t.Fatal(err)
	}
	f()
	if err := group.Freeze(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// Pause stops the work on the GPU too, not only the processes that ask for it.
func TestGPUPause(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		// Each kernel takes long, so there is one under way at almost any time.
		c := d.run(ctx, t, d.toy("-n", "2", "-l", "30"))
		c.ticksOn(ctx, 2)
		for range 2 {
			d.ctr(ctx, t, "task", "pause", c.id)
			c.expectPaused(ctx, 2)
			d.ctr(ctx, t, "task", "resume", c.id)
			c.expectGoesOn(ctx, 2)
		}
		c.stop(ctx)
		c.remove()
		d.expectNothingLeft(t)
	})
}

// expectPaused fails unless the container's processes and its GPUs stand
// still.
func (c *container) expectPaused(ctx context.Context, ranks int) {
	c.t.Helper()
	c.expectStatus(ctx, containerd.Paused)
	if state := c.freezerState(); state != "frozen" {
		c.t.Errorf("the freezer is %s", state)
	}
	c.withoutFreezer(ctx, func() { c.expectStates(ctx, ranks, "locked") })
}

// A container that is paused stays so over a checkpoint, its GPU too.
func TestGPUCheckpointPaused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy())
	c.ticksOn(ctx, 1)
	if err := c.task.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	dir := c.mustCheckpoint(ctx, false)
	c.expectPaused(ctx, 1)
	paused := c.ticks()
	// What was saved in a paused container runs when it is restored.
	r := d.restore(ctx, t, d.toy(), dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
	if now := c.ticks(); now[0] != paused[0] {
		t.Errorf("it went from tick %d to %d while it was paused", paused[0], now[0])
	}
	if err := c.task.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
}

// A failed checkpoint of a paused container leaves it paused.
func TestGPUCheckpointPausedFails(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy())
	c.ticksOn(ctx, 1)
	if err := c.task.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	d.faults(t, "checkpoint error=999")
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := c.checkpointTo(ctx, dir, false); err == nil {
		t.Error("the checkpoint succeeded")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	d.faults(t)
	c.expectPaused(ctx, 1)
	if err := c.task.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectGoesOn(ctx, 1)
	c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
}

// A pause that the GPU does not allow leaves the container running.
func TestGPUPauseFails(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.toy("-n", "4"))
	c.ticksOn(ctx, 4)
	d.faults(t, "lock comm=toy2 error=999")
	err := c.task.Pause(ctx)
	expectError(t, err, "pause "+c.id, "lock")
	c.expectGoesOn(ctx, 4)
	d.faults(t)
	if err := c.task.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectPaused(ctx, 4)
	if err := c.task.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectGoesOn(ctx, 4)
	c.stop(ctx)
}
