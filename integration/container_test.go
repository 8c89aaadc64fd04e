// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
)

var lastID atomic.Int64

// newID returns an identifier that no other container has had.
func newID(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "/")
	return fmt.Sprintf("%.20s-%d", name, lastID.Add(1))
}

// container is a container of a test, with its task and what that wrote.
type container struct {
	t *testing.T
	d *daemon

	id             string
	c              containerd.Container
	task           containerd.Task
	exit           <-chan containerd.ExitStatus
	stdout, stderr *output
}

// spec is what a test says of its container; everything has a default.
type spec struct {
	id     string
	args   []string
	opts   []oci.SpecOpts
	labels map[string]string
	// runtime replaces the one under test.
	runtime string
	options any
	stdin   io.Reader
	// io replaces the pipes to stdout and stderr.
	io cio.Creator
	// terminal gives the process a terminal.
	terminal bool
	// taskOpts are for the creation of the task.
	taskOpts []containerd.NewTaskOpts
}

// counting is a spec of a container that prints numbers.
func counting(args ...string) spec { return spec{args: append([]string{"counter"}, args...)} }

// shell is a spec of a container that runs a script.
func shell(script string) spec { return spec{args: []string{"sh", "-c", script}} }

// create creates a container and its task, which is not started yet.
func (d *daemon) create(ctx context.Context, t *testing.T, s spec) *container {
	t.Helper()
	c := d.createContainer(ctx, t, s)
	c.createTask(ctx, s)
	return c
}

// run creates and starts.
func (d *daemon) run(ctx context.Context, t *testing.T, s spec) *container {
	t.Helper()
	c := d.create(ctx, t, s)
	c.start(ctx)
	return c
}

func (d *daemon) createContainer(ctx context.Context, t *testing.T, s spec) *container {
	t.Helper()
	if s.id == "" {
		s.id = newID(t)
	}
	opts := []oci.SpecOpts{oci.WithDefaultPathEnv, oci.WithImageConfigArgs(d.image, s.args)}
	if s.terminal {
		opts = append(opts, oci.WithTTY)
	}
	created, err := d.Client.NewContainer(ctx, s.id,
		containerd.WithSnapshotter(d.Snapshotter),
		containerd.WithImage(d.image),
		containerd.WithNewSnapshot(s.id, d.image),
		containerd.WithRuntime(cmp.Or(s.runtime, *runtimeName), s.options),
		containerd.WithAdditionalContainerLabels(s.labels),
		containerd.WithNewSpec(append(opts, s.opts...)...),
	)
	if err != nil {
		t.Fatalf("create container: %v", err)
	}
	c := &container{t: t, d: d, id: s.id, c: created}
	t.Cleanup(c.remove)
	return c
}

func (c *container) createTask(ctx context.Context, s spec) {
	c.t.Helper()
	task, err := c.tryCreateTask(ctx, s)
	if err != nil {
		c.t.Fatalf("create task: %v", err)
	}
	c.task = task
	if c.exit, err = task.Wait(ctx); err != nil {
		c.t.Fatalf("wait for task: %v", err)
	}
}

func (c *container) tryCreateTask(ctx context.Context, s spec) (containerd.Task, error) {
	c.stdout, c.stderr = newOutput(), newOutput()
	creator := s.io
	if creator == nil {
		opts := []cio.Opt{cio.WithStreams(s.stdin, c.stdout, c.stderr), cio.WithFIFODir(filepath.Join(c.d.Dir, "fifo"))}
		if s.terminal {
			opts = append(opts, cio.WithTerminal)
		}
		creator = cio.NewCreator(opts...)
	}
	return c.c.NewTask(ctx, creator, s.taskOpts...)
}

func (c *container) start(ctx context.Context) {
	c.t.Helper()
	if err := c.task.Start(ctx); err != nil {
		c.t.Fatalf("start: %v", err)
	}
}

// waitExit returns the status with which the container's process ended.
func (c *container) waitExit(ctx context.Context) uint32 {
	c.t.Helper()
	return waitExit(ctx, c.t, c.exit)
}

func waitExit(ctx context.Context, t *testing.T, exit <-chan containerd.ExitStatus) uint32 {
	t.Helper()
	select {
	case status := <-exit:
		code, _, err := status.Result()
		if err != nil {
			t.Fatalf("exit status: %v", err)
		}
		return code
	case <-ctx.Done():
		t.Fatalf("wait for exit: %v", context.Cause(ctx))
		return 0
	}
}

// delete deletes the task, which has ended, and returns its exit status.
func (c *container) delete(ctx context.Context) uint32 {
	c.t.Helper()
	drain(ctx, c.t, c.task.IO())
	status, err := c.task.Delete(ctx)
	if err != nil {
		c.t.Fatalf("delete: %v", err)
	}
	return status.ExitCode()
}

// drain returns when all that a process wrote has been read. The process has
// ended, and is deleted after this: that closes the pipes, whatever is still in
// them (containerd 2.4.2, pkg/cio/io_unix.go, copyIO). There are none for a client
// that has not attached to them.
func drain(ctx context.Context, t *testing.T, pipes cio.IO) {
	t.Helper()
	if pipes == nil {
		return
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		pipes.Wait()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		t.Fatalf("read the output to its end: %v", context.Cause(ctx))
	}
}

// expectStatus fails unless the task is in the given state.
func (c *container) expectStatus(ctx context.Context, want containerd.ProcessStatus) {
	c.t.Helper()
	status, err := c.task.Status(ctx)
	if err != nil {
		c.t.Fatalf("status: %v", err)
	}
	if status.Status != want {
		c.t.Fatalf("status is %q, not %q", status.Status, want)
	}
}

// kill sends a signal to the container's first process.
func (c *container) kill(ctx context.Context, sig syscall.Signal, opts ...containerd.KillOpts) {
	c.t.Helper()
	if err := c.task.Kill(ctx, sig, opts...); err != nil {
		c.t.Fatalf("kill: %v", err)
	}
}

// stop kills the container's processes and deletes the task.
func (c *container) stop(ctx context.Context) {
	c.t.Helper()
	c.kill(ctx, syscall.SIGKILL)
	c.waitExit(ctx)
	c.delete(ctx)
}

// remove removes whatever is left of the container.
func (c *container) remove() {
	c.t.Helper()
	ctx, cancel := c.d.cleanupContext()
	defer cancel()
	if err := c.d.removeContainer(ctx, c.id); err != nil {
		c.t.Errorf("remove container %s: %v", c.id, err)
	}
}

// removeContainer removes a container, with its task and snapshot. It is no
// error if there is none.
func (d *daemon) removeContainer(ctx context.Context, id string) error {
	c, err := d.Client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if task, taskErr := c.Task(ctx, nil); taskErr == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
		if errdefs.IsNotFound(err) {
			err = nil
		}
	}
	return errors.Join(err, c.Delete(ctx, containerd.WithSnapshotCleanup))
}

// task returns a container's task, whoever started it.
func (d *daemon) task(ctx context.Context, t *testing.T, id string) containerd.Task {
	t.Helper()
	c, err := d.Client.LoadContainer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	task, err := c.Task(ctx, nil)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return task
}

// shims returns the PIDs of the shim processes that serve a container's ID.
func (d *daemon) shims(t *testing.T, id string) []int {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		if !p.Container && strings.Contains(p.Command, "containerd-shim") && strings.Contains(p.Command+" ", " -id "+id+" ") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// expectNothingLeft fails if anything is left of containers that were deleted.
// Only for tests that do not run beside others.
func (d *daemon) expectNothingLeft(t *testing.T) {
	t.Helper()
	ctx, cancel := d.cleanupContext()
	defer cancel()
	if err := d.Leftovers(ctx); err != nil {
		t.Error(err)
	}
}
