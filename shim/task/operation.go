// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
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
	done   chan struct{}
}

// begin starts an operation, or says which one is in its way. The returned
// function ends it, and has to be called.
func (c *container) begin(ctx context.Context, what op) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &operation{op: what, cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		cancel(nil)
		return nil, nil, fmt.Errorf("%s of container %s: its %s is under way: %w", what, c.id, c.current.op, errdefs.ErrFailedPrecondition)
	}
	c.current = o
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

// interrupt ends the operation that is under way, if there is one, and returns
// what is closed when it has ended, rolled back if need be.
func (c *container) interrupt(why error) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil
	}
	c.current.cancel(why)
	return c.current.done
}

var (
	// errAbandoned means that nobody waits for an operation any more.
	errAbandoned = errors.New("the client that asked for it has gone")
	// errResuming means that somebody else wants the container to go on, and
	// sees to it.
	errResuming = errors.New("the container is being resumed")
)
