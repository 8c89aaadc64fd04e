// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
)

// Companion saves what belongs to a container beside its processes.
type Companion interface {
	// Capture takes it, while everything of the container stands still.
	Capture(ctx context.Context) error
	// Write writes what was captured to files in dir that are named hetgpu-*.
	// The container may have gone on.
	Write(ctx context.Context, dir string) error
}

// nothing is the [Companion] of a request that has none.
type nothing struct{}

func (nothing) Capture(context.Context) error       { return nil }
func (nothing) Write(context.Context, string) error { return nil }

// Progress is told how far a checkpoint is.
type Progress interface {
	// Begin says that a phase has begun; others may be under way.
	Begin(phase string)
	// Expect says how many bytes are going to be written, about.
	Expect(bytes uint64)
}

type silence struct{}

func (silence) Begin(string)  {}
func (silence) Expect(uint64) {}

// capture is a Companion's, beside the dump.
type capture struct {
	phases
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// capture begins it. It has to be stopped.
func (s *saving) capture(ctx context.Context) *capture {
	ctx, cancel := context.WithCancel(ctx)
	c := &capture{phases: phases{progress: s.progress}, cancel: cancel, done: make(chan struct{})}
	if s.Companion == Companion(nothing{}) {
		close(c.done)
		return c
	}
	go func() {
		defer close(c.done)
		c.err = c.run(ctx, PhaseLayer, s.Companion.Capture)
	}()
	return c
}

// wait returns when it has ended, and adds its phase to the others.
func (c *capture) wait(to *phases) error {
	<-c.done
	to.done = append(to.done, c.phases.done...)
	c.phases.done = nil
	return c.err
}

func (c *capture) stop() {
	c.cancel()
	<-c.done
}
