// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
)

// op is a kind of operation that a container can be in.
type op string

const (
	opNone       op = ""
	opPause      op = "pause"
	opResume     op = "resume"
	opCheckpoint op = "checkpoint"
	opRestore    op = "restore"
)

// operation is one operation under way on a container. There is one at a time.
type operation struct {
	op     op
	cancel context.CancelCauseFunc
	// ending is closed when the container is being ended, also if the operation
	// was interrupted before for another reason.
	ending, done chan struct{}
}

// begin starts an operation, or says which one is in its way. The returned
// function ends it, and has to be called.
func (c *container) begin(ctx context.Context, what op) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &operation{op: what, cancel: cancel, ending: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		cancel(nil)
		return nil, nil, fmt.Errorf("%s of container %s: its %s is under way: %w", what, c.id, c.current.op, errdefs.ErrFailedPrecondition)
	}
	c.current = o
	c.stopAwaiting()
	return ctx, func() {
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
		cancel(context.Canceled)
		close(o.done)
	}, nil
}

// busy returns the operation that is under way.
func (c *container) busy() op {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return opNone
	}
	return c.current.op
}

// execTimeout is how long a checkpoint waits for processes that are entering
// the container when it begins. runc takes a tenth of a second.
const execTimeout = 5 * time.Second

// beginExec lets a process enter the container, unless its processes are being
// saved or restored: it would be in the snapshot in part. The returned function
// has to be called when it is in.
func (c *container) beginExec() (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && (c.current.op == opCheckpoint || c.current.op == opRestore) {
		return nil, fmt.Errorf("exec in %s: its %s is under way: %w", c.id, c.current.op, errdefs.ErrFailedPrecondition)
	}
	c.execs++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.execs--; c.execs == 0 && c.quiet != nil {
			close(c.quiet)
			c.quiet = nil
		}
	}, nil
}

// waitExecs returns when no process is entering the container. An operation
// that lets none begin is under way.
func (c *container) waitExecs(ctx context.Context) error {
	c.mu.Lock()
	if c.execs == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.quiet == nil {
		c.quiet = make(chan struct{})
	}
	quiet := c.quiet
	c.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, execTimeout,
		fmt.Errorf("a process is being started in it by exec, not done within %s: %w", execTimeout, errdefs.ErrFailedPrecondition))
	defer cancel()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interrupt ends the operation that is under way, if there is one, and returns
// what is closed when it has ended, rolled back if need be.
func (c *container) interrupt(why error) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil
	}
	if errors.Is(why, checkpoint.ErrEnding) {
		select {
		case <-c.current.ending:
		default:
			close(c.current.ending)
		}
	}
	c.current.cancel(why)
	return c.current.done
}

// ending returns what is closed when the container is being ended during the
// operation that is under way.
func (c *container) ending() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.ending
}

var (
	// errAbandoned means that nobody waits for an operation any more.
	errAbandoned = errors.New("the client that asked for it has gone")
	// errResuming means that somebody else wants the container to go on, and
	// sees to it.
	errResuming = errors.New("the container is being resumed")
)
