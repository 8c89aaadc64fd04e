// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package rig has what the benchmark and the suite for hosts with a GPU do
// with containers on a private containerd: run them, read what they write,
// checkpoint and restore them with the time of each call.
//
// Like package testbed it knows nothing of the testing package. It knows
// nothing of GPUs.
package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// removeTimeout bounds the removal of a container, whose own context may have
// ended.
const removeTimeout = 60 * time.Second

// lastWords is how long after the end of a task its output may come.
const lastWords = 2 * time.Second

// Spec is what a container consists of.
type Spec struct {
	ID      string
	Runtime string
	Image   containerd.Image
	Args    []string
	Opts    []oci.SpecOpts
}

// Container is a container with its task, if it has one.
type Container struct {
	ID string
	// Out and Err are what its current task wrote.
	Out, Err *Output
	// Task is nil before NewTask.
	Task containerd.Task

	d *testbed.Daemon
	c containerd.Container
	// ended is closed when the task has, and status is set before.
	ended  chan struct{}
	status containerd.ExitStatus
}

// New makes a container without a task.
func New(ctx context.Context, d *testbed.Daemon, s Spec) (*Container, error) {
	opts := append([]oci.SpecOpts{oci.WithDefaultPathEnv, oci.WithImageConfigArgs(s.Image, s.Args)}, s.Opts...)
	c, err := d.Client.NewContainer(d.Context(ctx), s.ID,
		containerd.WithSnapshotter(d.Snapshotter),
		containerd.WithImage(s.Image),
		containerd.WithNewSnapshot(s.ID, s.Image),
		containerd.WithRuntime(s.Runtime, nil),
		containerd.WithNewSpec(opts...),
	)
	if err != nil {
		return nil, fmt.Errorf("make container %s: %w", s.ID, err)
	}
	return &Container{ID: s.ID, d: d, c: c}, nil
}

// Run makes a container and starts it.
func Run(ctx context.Context, d *testbed.Daemon, s Spec) (*Container, error) {
	c, err := New(ctx, d, s)
	if err != nil {
		return nil, err
	}
	if err := c.NewTask(ctx, ""); err != nil {
		return c, err
	}
	return c, c.Start(ctx)
}

// Spec returns the container's OCI spec.
func (c *Container) Spec(ctx context.Context) (*oci.Spec, error) { return c.c.Spec(c.d.Context(ctx)) }

// NewTask creates the task, from the snapshot in a directory if one is named.
// containerd passes that directory on to the shim as it is, so that no
// unpacking of an archive is part of a restore's time.
func (c *Container) NewTask(ctx context.Context, snapshot string) error {
	ctx = c.d.Context(ctx)
	c.Out, c.Err = NewOutput(), NewOutput()
	var opts []containerd.NewTaskOpts
	if snapshot != "" {
		opts = append(opts, containerd.WithRestoreImagePath(snapshot))
	}
	creator := cio.NewCreator(cio.WithStreams(nil, c.Out, c.Err), cio.WithFIFODir(filepath.Join(c.d.Dir, "fifo")))
	task, err := c.c.NewTask(ctx, creator, opts...)
	if err != nil {
		return fmt.Errorf("create task of %s: %w", c.ID, err)
	}
	c.Task = task
	// It outlives the context of the start.
	exit, err := task.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	c.ended = ended
	go func() {
		c.status = <-exit
		close(ended)
	}()
	return nil
}

// Start starts the task.
func (c *Container) Start(ctx context.Context) error {
	if err := c.Task.Start(c.d.Context(ctx)); err != nil {
		return fmt.Errorf("start %s: %w", c.ID, err)
	}
	return nil
}

// Restored is the time of a restore, call by call.
type Restored struct{ Create, Start time.Duration }

// Restore creates the task from a snapshot and starts it.
func (c *Container) Restore(ctx context.Context, snapshot string) (Restored, error) {
	var r Restored
	err := timed(&r.Create, func() error { return c.NewTask(ctx, snapshot) })
	if err == nil {
		err = timed(&r.Start, func() error { return c.Start(ctx) })
	}
	return r, err
}

// Saved is the time of a checkpoint, call by call. A checkpoint of
// containerd's client is these three calls.
type Saved struct{ Pause, Checkpoint, Resume time.Duration }

// Total is how long the client waits.
func (s Saved) Total() time.Duration { return s.Pause + s.Checkpoint + s.Resume }

// Checkpoint does what containerd's client does with an image path: it pauses
// the task, has it saved into a directory, which no archive is made of, and
// resumes it unless it is to end.
func (c *Container) Checkpoint(ctx context.Context, dir string, exit bool) (s Saved, err error) {
	ctx = c.d.Context(ctx)
	opts, err := typeurl.MarshalAny(&options.CheckpointOptions{ImagePath: dir, Exit: exit})
	if err != nil {
		return s, err
	}
	request := &tasks.CheckpointTaskRequest{ContainerID: c.ID, Options: typeurl.MarshalProto(opts)}
	if err := timed(&s.Pause, func() error { return c.Task.Pause(ctx) }); err != nil {
		return s, fmt.Errorf("pause %s: %w", c.ID, err)
	}
	err = timed(&s.Checkpoint, func() error {
		_, err := c.d.Client.TaskService().Checkpoint(ctx, request)
		return errgrpc.ToNative(err)
	})
	if err == nil && exit {
		return s, nil
	}
	if err != nil {
		err = fmt.Errorf("checkpoint %s: %w", c.ID, err)
	}
	// As the client does, also after a failure and when its context has ended.
	ctx = context.WithoutCancel(ctx)
	return s, errors.Join(err, timed(&s.Resume, func() error { return c.Task.Resume(ctx) }))
}

// Wait returns once enough says so of the lines that the task wrote, or with
// an error when it has ended.
func (c *Container) Wait(ctx context.Context, what string, enough func(lines []string) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := c.ended
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
		// Its last words may still be on their way.
		select {
		case <-ctx.Done():
		case <-time.After(lastWords):
			cancel(fmt.Errorf("it ended with status %d: %q", c.status.ExitCode(), c.Err.Lines()))
		}
	}()
	return c.Out.Wait(ctx, what+" of "+c.ID, enough)
}

// WaitExit returns the status with which the task ended.
func (c *Container) WaitExit(ctx context.Context) (uint32, error) {
	select {
	case <-c.ended:
		code, _, err := c.status.Result()
		return code, err
	case <-ctx.Done():
		return 0, fmt.Errorf("wait until %s exits: %w", c.ID, context.Cause(ctx))
	}
}

// Kill ends the task and deletes it; the container stays.
func (c *Container) Kill(ctx context.Context) error {
	if c.Task == nil {
		return nil
	}
	ctx = c.d.Context(ctx)
	if err := c.Task.Kill(ctx, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill %s: %w", c.ID, err)
	}
	if _, err := c.WaitExit(ctx); err != nil {
		return err
	}
	return c.DeleteTask(ctx)
}

// DeleteTask deletes the task, which has ended. containerd's client closes the
// pipes of a task that it deletes, whether they were read or not, so what is in
// them is read before.
func (c *Container) DeleteTask(ctx context.Context) error {
	if io := c.Task.IO(); io != nil {
		drained := make(chan struct{})
		go func() {
			io.Wait()
			close(drained)
		}()
		select {
		case <-drained:
		case <-time.After(lastWords): // a process that is left may hold them
		case <-ctx.Done():
		}
	}
	_, err := c.Task.Delete(c.d.Context(ctx))
	c.Task = nil
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete task of %s: %w", c.ID, err)
	}
	return nil
}

// Remove removes the container with all that it has, whatever its state.
func (c *Container) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.d.Context(ctx)), removeTimeout)
	defer cancel()
	var err error
	if c.Task != nil {
		_, err = c.Task.Delete(ctx, containerd.WithProcessKill)
		if errdefs.IsNotFound(err) {
			err = nil
		}
		c.Task = nil
	}
	return errors.Join(err, c.c.Delete(ctx, containerd.WithSnapshotCleanup))
}

func timed(took *time.Duration, call func() error) error {
	start := time.Now()
	err := call()
	*took = time.Since(start)
	return err
}
