// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

const (
	// sharedSlice is the unit of the driver's time-outs where several processes
	// are locked together.
	sharedSlice = 25 * time.Millisecond
	// aloneSlice is the first time-out where there is only one.
	aloneSlice = 250 * time.Millisecond
)

// Lock brings the GPU work of all processes to rest and keeps it so; on error
// each is back in the state in which it was found.
//
// Processes that communicate on the GPU (NCCL) wait for one another in kernels,
// so one that is locked first can keep the others from ever coming to rest.
// Therefore all are locked at the same time, each try is short, and after one
// that failed all go on for a moment: sooner or later a try falls between two
// collectives.
func (e *Engine) Lock(ctx context.Context, procs []gpuplugin.Process) error {
	todo := running(procs)
	if len(todo) == 0 {
		return nil
	}
	return e.insist(ctx, len(todo), attempt{
		do:   func(ctx context.Context, timeout time.Duration) []error { return e.lockOnce(ctx, todo, timeout) },
		undo: func(ctx context.Context) error { return e.Undo(ctx, todo) },
	})
}

// attempt is one try to bring processes to rest, and its way back.
type attempt struct {
	do   func(ctx context.Context, timeout time.Duration) []error
	undo func(ctx context.Context) error
}

// insist tries until all of the processes have come to rest, or time is up. It
// gives up at once if anything but time was lacking.
func (e *Engine) insist(ctx context.Context, processes int, a attempt) error {
	limit, cancel := context.WithTimeoutCause(ctx, e.cfg.lockTimeout,
		fmt.Errorf("GPU work did not come to rest within %v: %w", e.cfg.lockTimeout, context.DeadlineExceeded))
	defer cancel()
	var errs []error
	for try := 1; ; try++ {
		if limit.Err() != nil {
			return errors.Join(append([]error{fmt.Errorf("lock the GPU, %d tries: %w", try-1, context.Cause(limit))}, errs...)...)
		}
		before := errs
		errs = a.do(limit, within(limit, slice(try, processes)))
		if len(errs) == 0 && ctx.Err() == nil {
			return nil
		}
		// What the end of the time has cut short says less than a whole try.
		if limit.Err() != nil && len(before) > 0 && (allNotReady(errs) || allEnded(errs)) {
			errs = before
		}
		undone := a.undo(ctx)
		if !allNotReady(errs) || undone != nil {
			return errors.Join(append(errs, undone)...)
		}
		log.G(ctx).WithField(logfields.Attempt, try).WithField(logfields.Phase, "lock").
			Debug("GPU work did not come to rest; trying again")
		select {
		case <-time.After(e.cfg.pause()):
		case <-limit.Done():
		}
	}
}

// within shortens a time-out to what the context has left.
func within(ctx context.Context, timeout time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	return max(timeout, time.Millisecond)
}

// lockOnce tries to lock all processes at the same time.
func (e *Engine) lockOnce(ctx context.Context, procs []gpuplugin.Process, timeout time.Duration) []error {
	return each(ctx, procs, "lock", func(ctx context.Context, p gpuplugin.Process) error {
		// The call returns by itself, so its context is for a driver that hangs.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+e.cfg.grace)
		defer cancel()
		err := e.driver.Lock(ctx, p.PID, timeout)
		switch {
		case errors.Is(err, helperapi.ErrGone):
			return nil // its GPU state has gone with it
		case errors.Is(err, helperapi.ErrIllegalState):
			return e.acceptLocked(ctx, p.PID, err)
		}
		return err
	})
}

// acceptLocked forgives a failed lock of a process that is locked already.
func (e *Engine) acceptLocked(ctx context.Context, pid int, lockErr error) error {
	state, err := e.driver.State(ctx, pid)
	switch {
	case err != nil:
		return errors.Join(lockErr, err)
	case state != gpuplugin.StateLocked:
		return fmt.Errorf("process is %s: %w", state, lockErr)
	}
	return nil
}

// slice is the driver's time-out at the try-th try. How long it must be isn't
// known: longer than the work that is under way, and shorter than what is lost
// where it's in vain. One process alone gets ever longer ones. Several get the
// sequence 1 1 2 1 1 2 4 ... of Luby, Sinclair and Zuckerman ("Optimal speedup
// of Las Vegas algorithms", 1993), which is never much worse than the best
// choice in hindsight.
func slice(try, processes int) time.Duration {
	if processes == 1 {
		return aloneSlice << min(try-1, 10)
	}
	return sharedSlice * time.Duration(luby(uint(try)))
}

// luby is the i-th member of the sequence, from 1.
func luby(i uint) int {
	for {
		k := bits.Len(i) // 2^(k-1) <= i < 2^k
		if i == 1<<k-1 {
			return 1 << (k - 1)
		}
		i -= 1<<(k-1) - 1
	}
}

// lockPause is how long everything runs between two tries; it differs from time
// to time, lest it keep step with the program.
func lockPause() time.Duration {
	return 10*time.Millisecond + rand.N(40*time.Millisecond) //nolint:gosec // no secret hangs on it
}

// allNotReady says whether the tries failed for nothing but time.
func allNotReady(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, helperapi.ErrNotReady) {
			return false
		}
	}
	return true
}

// allEnded says whether the tries failed with their context.
func allEnded(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return false
		}
	}
	return true
}

func running(procs []gpuplugin.Process) []gpuplugin.Process {
	var out []gpuplugin.Process
	for _, p := range procs {
		if p.State == gpuplugin.StateRunning {
			out = append(out, p)
		}
	}
	return out
}
