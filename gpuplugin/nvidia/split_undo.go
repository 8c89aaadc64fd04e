// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Undo returns every process to the state in which it was found, whatever it is
// in now, device memory included. It goes on when ctx has ended, and after an
// error. Of a process whose memory can't be given back its error is
// [gpuplugin.ErrLost]; the gate stays closed there.
func (s *SplitEngine) Undo(ctx context.Context, procs []gpuplugin.Process) error {
	limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.driver.cfg.undoTimeout,
		fmt.Errorf("not done within %v: %w", s.driver.cfg.undoTimeout, context.DeadlineExceeded))
	defer cancel()
	// The driver first, since the memory comes back through its calls.
	errs := each(limit, served(procs), "undo", s.driver.undoOne)
	todo := without(splitOf(procs), errs)
	lost := s.giveBack(limit, todo)
	settled := each(limit, without(todo, lost), "release", s.settle)
	return errors.Join(slices.Concat(errs, lost, settled)...)
}

// without leaves the processes out that the errors are about.
func without(procs []gpuplugin.Process, errs []error) []gpuplugin.Process {
	return slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return concerned(p, errs) })
}

// concerned tells whether any of the errors is about a process.
func concerned(p gpuplugin.Process, errs []error) bool {
	return slices.ContainsFunc(errs, func(err error) bool {
		e, ok := errors.AsType[*gpuplugin.ProcessError](err)
		return ok && e.PID == p.PID
	})
}

// giveBack gives those of the processes their memory that are without.
func (s *SplitEngine) giveBack(ctx context.Context, procs []gpuplugin.Process) []error {
	for tries := 1; ; {
		errs := s.giveBackOnce(ctx, s.parted(procs))
		if len(errs) == 0 || tries == undoUnavailable || ctx.Err() != nil {
			return errs
		}
		// What the helper is still busy with, a save to a slow disk for one, is
		// waited for: it has the memory.
		if !slices.ContainsFunc(errs, busy) {
			tries++
		}
		select {
		case <-time.After(undoPause):
		case <-ctx.Done():
		}
	}
}

// parted are those of the processes that are without their memory.
func (s *SplitEngine) parted(procs []gpuplugin.Process) []gpuplugin.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return !s.away[p.PID] })
}

// busy tells whether the helper is alive and may do later what it did not do.
func busy(err error) bool {
	return errors.Is(err, helperapi.ErrIllegalState) || errors.Is(err, helperapi.ErrNotReady)
}

// giveBackOnce tries each process, and asks about those that failed: an earlier
// try may have done it although its answer got lost, and what was to take the
// memory may not have. Its errors are all [gpuplugin.ErrLost].
//
// Nobody is asked about a process whose memory is not ready, since others have to
// get theirs first: while the helper is connected to it, it would answer nobody else.
func (s *SplitEngine) giveBackOnce(ctx context.Context, procs []gpuplugin.Process) []error {
	ask := sync.OnceValues(func() (map[int]Client, error) { return s.clients(ctx) })
	return each(ctx, procs, "unpark", func(ctx context.Context, p gpuplugin.Process) error {
		err := s.unpark(ctx, p)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, helperapi.ErrNotReady):
			return fmt.Errorf("%w: %w", gpuplugin.ErrLost, err)
		}
		clients, asked := ask()
		client, there := clients[p.PID]
		if _, gone := s.driver.stateOf(ctx, p.PID); there && client.State != ClientParked || errors.Is(gone, helperapi.ErrGone) {
			s.back(p)
			return nil
		}
		if errors.Is(err, helperapi.ErrNoState) || errors.Is(err, gpuplugin.ErrUnavailable) {
			err = fmt.Errorf("the device helper that held it has died: %w", err)
		}
		return fmt.Errorf("%w: %w", gpuplugin.ErrLost, errors.Join(err, asked))
	})
}
