// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// undoPause is the time between two looks at a process that is in motion.
	undoPause = 50 * time.Millisecond
	// undoUnavailable is how many times in a row Undo takes "no driver" for the
	// death of one helper, and asks the next.
	undoUnavailable = 3
)

// Undo returns every process to the state in which it was found, whatever it is
// in now; those that have exited are done. It goes on when ctx has ended, since
// that is when it's needed, and has a time-out of its own.
func (e *Engine) Undo(ctx context.Context, procs []gpuplugin.Process) error {
	limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), e.cfg.undoTimeout,
		fmt.Errorf("not done within %v: %w", e.cfg.undoTimeout, context.DeadlineExceeded))
	defer cancel()
	return errors.Join(each(limit, procs, "undo", e.undoOne)...)
}

// undoOne goes step by step towards the state in which the process was found.
// It looks anew after each step, and after one that failed: another helper may
// have finished it.
func (e *Engine) undoOne(ctx context.Context, p gpuplugin.Process) error {
	unavailable := 0
	for {
		state, err := e.stateOf(ctx, p.PID)
		if err == nil && state == p.State {
			return nil
		}
		if err == nil {
			err = e.stepTowards(ctx, p, state)
		}
		switch {
		case err == nil:
			unavailable = 0
			continue
		case errors.Is(err, helperapi.ErrGone):
			return nil
		case errors.Is(err, helperapi.ErrNoState) && p.State == gpuplugin.StateRunning:
			return nil // it became another program, which has no GPU state
		case errors.Is(err, gpuplugin.ErrUnavailable):
			unavailable++
		}
		if unavailable >= undoUnavailable || !worthRetrying(err) {
			return left(p, state, err)
		}
		select {
		case <-ctx.Done():
			return left(p, state, errors.Join(err, context.Cause(ctx)))
		case <-time.After(undoPause):
		}
	}
}

// stateOf asks once more, for as long as an answer may take.
func (e *Engine) stateOf(ctx context.Context, pid int) (gpuplugin.State, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.stateTimeout)
	defer cancel()
	return e.driver.State(ctx, pid)
}

// stepTowards makes the one call that brings the process nearer.
func (e *Engine) stepTowards(ctx context.Context, p gpuplugin.Process, state gpuplugin.State) error {
	switch {
	case state == gpuplugin.StateCheckpointed:
		return e.driver.Restore(ctx, p.PID, nil)
	case state == gpuplugin.StateRunning:
		return e.driver.Lock(ctx, p.PID, aloneSlice)
	case state == gpuplugin.StateLocked && p.State == gpuplugin.StateRunning:
		return e.driver.Unlock(ctx, p.PID)
	case state == gpuplugin.StateLocked && p.State == gpuplugin.StateCheckpointed:
		return e.driver.Checkpoint(ctx, p.PID)
	}
	return fmt.Errorf("no way leads from state %q to %q", state, p.State)
}

// worthRetrying says whether the same step may succeed later.
func worthRetrying(err error) bool {
	return errors.Is(err, gpuplugin.ErrUnavailable) || errors.Is(err, helperapi.ErrNotReady) ||
		errors.Is(err, helperapi.ErrIllegalState)
}

// left tells people what has become of the process.
func left(p gpuplugin.Process, state gpuplugin.State, err error) error {
	if state == "" {
		state = "of unknown state"
	}
	return fmt.Errorf("the process was %s and is now %s; once the cause is gone, "+
		"NVIDIA's cuda-checkpoint can move it on: %w", p.State, state, err)
}
