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

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// Engine is the driver engine: the vendor's own process checkpoint, called
// from outside the container by PID. It satisfies runtime/checkpoint.GPU.
//
// The processes must not be frozen: the driver works through a thread in each
// of them, and waits without end for one that is stopped.
type Engine struct {
	driver Driver
	cfg    config
}

type config struct {
	procfs       string
	lockTimeout  time.Duration
	stepTimeout  time.Duration
	undoTimeout  time.Duration
	grace        time.Duration
	stateTimeout time.Duration
	pause        func() time.Duration
	sharing      Sharing
}

// Option changes one thing of an [Engine].
type Option func(*config)

// WithProcRoot reads another tree than /proc.
func WithProcRoot(dir string) Option { return func(c *config) { c.procfs = dir } }

// WithLockTimeout bounds all tries to lock a container's processes together
// (30 s if not given). The context's deadline holds too.
func WithLockTimeout(d time.Duration) Option { return func(c *config) { c.lockTimeout = d } }

// WithStepTimeout bounds one checkpoint or restore of a process by the driver
// (10 minutes if not given: the driver moves about 2 GB/s).
func WithStepTimeout(d time.Duration) Option { return func(c *config) { c.stepTimeout = d } }

// WithUndoTimeout bounds the way back after a failure (10 minutes if not
// given), which goes on when the operation's context has ended.
func WithUndoTimeout(d time.Duration) Option { return func(c *config) { c.undoTimeout = d } }

// Sharing knows of processes that share device memory in a way that the driver
// checkpoints and can't restore (legacy CUDA IPC). ipcwatch.Guard does.
type Sharing interface {
	// Check fails with [gpuplugin.ErrUnsupported] if processes share memory so,
	// or if it can't tell.
	Check(ctx context.Context, procs []gpuplugin.Process) error
}

// WithSharing has Prepare ask, and Suspend once more when all are locked;
// without it, nobody looks for shared memory.
func WithSharing(s Sharing) Option { return func(c *config) { c.sharing = s } }

// unwatched is for an engine that was given no [Sharing].
type unwatched struct{}

func (unwatched) Check(context.Context, []gpuplugin.Process) error { return nil }

// NewEngine returns an engine on a driver.
func NewEngine(d Driver, opts ...Option) *Engine {
	e := &Engine{driver: d, cfg: config{
		procfs:       "/proc",
		lockTimeout:  30 * time.Second,
		stepTimeout:  10 * time.Minute,
		undoTimeout:  10 * time.Minute,
		grace:        5 * time.Second,
		stateTimeout: stateTimeout,
		pause:        lockPause,
		sharing:      unwatched{},
	}}
	for _, opt := range opts {
		opt(&e.cfg)
	}
	return e
}

// Engine is the manifest's word for it.
func (e *Engine) Engine() string { return "driver" }

// Inventory lists driver and devices of the host.
func (e *Engine) Inventory(ctx context.Context) (gpuplugin.Inventory, error) {
	inv, err := e.driver.Inventory(ctx)
	if err != nil {
		return inv, fmt.Errorf("list GPUs: %w", err)
	}
	return inv, nil
}

// Match asks for the host's devices as they are now and fits the snapshot's to
// them, as the function [Match] says.
func (e *Engine) Match(ctx context.Context, saved gpuplugin.Inventory, minors []int) (gpuplugin.DeviceMap, error) {
	if len(saved.Devices) == 0 {
		return nil, nil
	}
	host, err := e.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return Match(saved, host, minors)
}

// Usage is the device memory that the processes use, by device UUID. A process
// that is checkpointed uses none any more, so it's asked before Suspend.
func (e *Engine) Usage(ctx context.Context, procs []gpuplugin.Process) (map[string]uint64, error) {
	if len(procs) == 0 {
		return nil, nil
	}
	used, err := e.driver.Usage(ctx, pidsOf(procs))
	if err != nil {
		return nil, fmt.Errorf("ask for the device memory in use: %w", err)
	}
	return used, nil
}

// Suspend locks the processes and takes the GPU state of all of them into host
// memory at the same time. On any failure each goes back to the state in which
// it was found.
func (e *Engine) Suspend(ctx context.Context, procs []gpuplugin.Process) error {
	if err := e.Lock(ctx, procs); err != nil {
		return err
	}
	// Prepare has asked when calls could still be made.
	err := e.checkSharing(ctx, procs)
	if err == nil {
		err = errors.Join(each(ctx, procs, "checkpoint", e.suspendOne)...)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, e.Undo(ctx, procs))
}

func (e *Engine) suspendOne(ctx context.Context, p gpuplugin.Process) error {
	if p.State == gpuplugin.StateCheckpointed {
		return nil
	}
	ctx, cancel := e.outlive(ctx, e.cfg.stepTimeout)
	defer cancel()
	start := time.Now()
	err := e.driver.Checkpoint(ctx, p.PID)
	e.trace(ctx, p.PID, "checkpoint", start)
	switch {
	case err == nil, errors.Is(err, helperapi.ErrGone): // its GPU state has gone with it
		return nil
	case errors.Is(err, gpuplugin.ErrUnavailable):
		return err
	}
	return e.explain(p.PID, err)
}

// Resume restores the processes to their devices or those of the map, all at
// the same time, and then lets those go on that are to be running. After a
// failure none goes on; the caller decides what then.
func (e *Engine) Resume(ctx context.Context, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	if len(devices) > 0 {
		if err := refuseParked(procs); err != nil {
			return err
		}
	}
	errs := each(ctx, procs, "restore", func(ctx context.Context, p gpuplugin.Process) error {
		if p.State == gpuplugin.StateCheckpointed {
			return nil
		}
		return e.restoreOne(ctx, p, devices)
	})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return errors.Join(each(ctx, running(procs), "unlock", func(ctx context.Context, p gpuplugin.Process) error {
		ctx, cancel := e.outlive(ctx, e.cfg.stepTimeout)
		defer cancel()
		return e.driver.Unlock(ctx, p.PID)
	})...)
}

func (e *Engine) restoreOne(ctx context.Context, p gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	ctx, cancel := e.outlive(ctx, e.cfg.stepTimeout)
	defer cancel()
	start := time.Now()
	err := e.driver.Restore(ctx, p.PID, devices)
	e.trace(ctx, p.PID, "restore", start)
	return err
}

// refuseParked fails for processes that somebody else had checkpointed before
// us: when they restore them, nobody tells the driver of the other devices.
func refuseParked(procs []gpuplugin.Process) error {
	var errs []error
	for _, p := range procs {
		if p.State == gpuplugin.StateCheckpointed {
			errs = append(errs, &gpuplugin.ProcessError{PID: p.PID, Op: "restore", Err: fmt.Errorf(
				"it had been suspended by another tool before the checkpoint and can't move to other devices: %w",
				gpuplugin.ErrIncompatible)})
		}
	}
	return errors.Join(errs...)
}

// outlive returns a context for a call that can't be taken back: when ctx ends,
// the call has a little time left to come to its own end. One that doesn't is
// left to Undo, whose question for the process's state waits in the driver
// until the call is done.
func (e *Engine) outlive(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-out.Done():
		case <-time.After(e.cfg.grace):
			cancel(context.Cause(ctx))
		}
	})
	limited, end := context.WithTimeout(out, timeout)
	return limited, func() {
		stop()
		end()
		cancel(context.Canceled)
	}
}

func (e *Engine) trace(ctx context.Context, pid int, op string, start time.Time) {
	log.G(ctx).WithField(logfields.PID, pid).WithField(logfields.Phase, op).
		Debugf("GPU %s took %v", op, time.Since(start))
}

// each runs f for all processes at the same time, waits for all, and returns
// the errors, each with its process.
func each(ctx context.Context, procs []gpuplugin.Process, op string, f func(context.Context, gpuplugin.Process) error) []error {
	results := make([]error, len(procs))
	var wg sync.WaitGroup
	for i, p := range procs {
		wg.Go(func() {
			if err := f(ctx, p); err != nil {
				results[i] = &gpuplugin.ProcessError{PID: p.PID, Op: op, Err: err}
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(results, func(err error) bool { return err == nil })
}

func pidsOf(procs []gpuplugin.Process) []int {
	pids := make([]int, 0, len(procs))
	for _, p := range procs {
		pids = append(pids, p.PID)
	}
	return pids
}
