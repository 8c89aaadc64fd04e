// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// A process that somebody has stopped is saved as it is on the unified
// hierarchy, and named with version 1, where CRIU would wait for it: whether the
// client has paused the container, which hides the process's state, or not.
func TestCheckpointStopped(t *testing.T) {
	skipOnStock(t, "it waits for CRIU without end")
	for name, checkpoint := range map[string]func(context.Context, *patient) error{
		"paused by the client": func(ctx context.Context, p *patient) error { return p.checkpoint(ctx) },
		"running":              func(ctx context.Context, p *patient) error { return p.checkpointDirectly(ctx, false) },
	} {
		t.Run(name, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				s := counting("-c", "1")
				p := &patient{container: d.run(ctx, t, s), dir: filepath.Join(t.TempDir(), "snapshot")}
				p.stdout.waitMore(ctx, t, 3)
				child := p.child(ctx)
				p.signalChild(ctx, syscall.SIGSTOP)
				err := checkpoint(ctx, p)
				p.expectChildStopped(ctx)
				p.expectStatus(ctx, containerd.Running)
				if !unified() {
					expectError(t, err, "preflight", fmt.Sprintf("process %d (counter) is stopped", child), "SIGCONT")
				} else if err != nil {
					t.Errorf("the checkpoint failed: %v", err)
				} else {
					r := d.restore(ctx, t, s, p.dir)
					r.expectChildStopped(ctx)
					r.signalChild(ctx, syscall.SIGCONT)
					r.stdout.waitMore(ctx, t, 3)
					r.stop(ctx)
					r.remove()
				}
				p.signalChild(ctx, syscall.SIGCONT)
				p.startOver()
				if err := checkpoint(ctx, p); err != nil {
					t.Errorf("once it goes on: %v", err)
				}
				p.stdout.waitMore(ctx, t, 3)
				p.stop(ctx)
				p.remove()
				d.expectNothingLeft(t)
			})
		})
	}
}

// child returns the PID of the only process beside the first.
func (c *container) child(ctx context.Context) int {
	c.t.Helper()
	procs, err := c.task.Pids(ctx)
	if err != nil || len(procs) != 2 {
		c.t.Fatalf("processes %v (%v), not two", procs, err)
	}
	if procs[0].Pid == c.task.Pid() {
		return int(procs[1].Pid)
	}
	return int(procs[0].Pid)
}

// signalChild stops the child or lets it go on.
func (c *container) signalChild(ctx context.Context, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(c.child(ctx), sig); err != nil {
		c.t.Fatal(err)
	}
	if sig == syscall.SIGSTOP {
		c.expectChildStopped(ctx)
	}
}

func (c *container) expectChildStopped(ctx context.Context) {
	c.t.Helper()
	name := fmt.Sprintf("/proc/%d/status", c.child(ctx))
	err := testbed.Eventually(ctx, "the child is stopped", func() error {
		status, err := os.ReadFile(name)
		if err == nil && !strings.Contains(string(status), "\nState:\tT") {
			err = fmt.Errorf("%s says\n%s", name, status)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
