// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// stateTimeout bounds the question for a process's state: it takes less
	// than a millisecond, or for ever where the process is stopped.
	stateTimeout = 10 * time.Second
	// stateParallel is how many processes are asked about at a time.
	stateParallel = 16
)

var errStopped = errors.New("it is stopped (SIGSTOP or a debugger); continue it first")

// Processes tells which of the processes hold GPU state. The driver is asked
// about each, since one that is checkpointed holds no file, and the kernel too,
// since a file that the driver knows nothing of is state that would be lost.
func (e *Engine) Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error) {
	found := make([]*gpuplugin.Process, len(pids))
	errs := make([]error, len(pids))
	var group errgroup.Group
	group.SetLimit(stateParallel)
	for i, pid := range pids {
		group.Go(func() error {
			found[i], errs[i] = e.classify(ctx, pid)
			return nil // every process that can't be told is to be named
		})
	}
	_ = group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var procs []gpuplugin.Process
	for _, p := range found {
		if p != nil {
			procs = append(procs, *p)
		}
	}
	return procs, nil
}

// classify returns nil for a process without GPU state.
func (e *Engine) classify(ctx context.Context, pid int) (*gpuplugin.Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.stateTimeout,
		fmt.Errorf("no answer within %v; the process may be stopped: %w", e.cfg.stateTimeout, context.DeadlineExceeded))
	defer cancel()
	// The driver would wait for one that is stopped, and the helper, which serves
	// other containers too, for the driver. One without a device file, as any job
	// of a shell, is none of the driver's.
	if view, err := viewProcess(e.cfg.procfs, pid); err == nil && view.stopped && len(view.files) > 0 {
		return nil, unknown(pid, view, errStopped)
	}
	state, stateErr := e.driver.State(ctx, pid)
	if stateErr == nil {
		return &gpuplugin.Process{PID: pid, State: state}, nil
	}
	if ctx.Err() != nil {
		stateErr = errors.Join(stateErr, context.Cause(ctx))
	}
	view, viewErr := viewProcess(e.cfg.procfs, pid)
	stateless := errors.Is(stateErr, helperapi.ErrNoState) || errors.Is(stateErr, helperapi.ErrGone)
	gone := errors.Is(viewErr, os.ErrNotExist)
	if stateless && (gone || viewErr == nil && len(view.files) == 0) {
		return nil, nil
	}
	if !gone {
		stateErr = errors.Join(stateErr, viewErr)
	}
	return nil, unknown(pid, view, stateErr)
}

// unknown says what was seen of a process that could not be told.
func unknown(pid int, view procView, err error) error {
	hint := ""
	if len(view.files) > 0 {
		hint = " holds " + printable(strings.Join(view.files, ", "))
	}
	if len(view.files) > 0 && errors.Is(err, helperapi.ErrNoState) {
		hint += ", perhaps as a forked child of a CUDA program, or is only beginning to use it"
	}
	return fmt.Errorf("%w: process %d (%s)%s: %w", gpuplugin.ErrUnknownState, pid, printable(view.comm), hint, err)
}

// explain says what of the process the driver probably refused to checkpoint.
// It says NOT_SUPPORTED of managed memory the first time and UNKNOWN the next
// times (580), so what the kernel shows counts too.
func (e *Engine) explain(pid int, err error) error {
	view, viewErr := viewProcess(e.cfg.procfs, pid)
	switch {
	case viewErr == nil && view.managed > 0:
		return fmt.Errorf("the process uses about %d KiB of managed memory (cudaMallocManaged): %w: %w",
			view.managed>>10, gpuplugin.ErrUnsupported, err)
	case errors.Is(err, gpuplugin.ErrUnsupported):
		return fmt.Errorf("the process uses something that the driver can't checkpoint "+
			"(managed memory, exported memory handles, ...): %w", err)
	}
	return err
}

// devicesOf returns the minor numbers of the GPUs that the process holds.
func (e *Engine) devicesOf(pid int) ([]int, error) {
	view, err := viewProcess(e.cfg.procfs, pid)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return slices.Compact(minors(view.files)), err
}
