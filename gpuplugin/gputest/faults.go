// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package gputest

import (
	"context"
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Fault makes calls of the driver fail.
type Fault struct {
	// Op is the call.
	Op Op
	// PID is the process, 0 for every one.
	PID int
	// Skip is how many calls go well before the first that fails.
	Skip int
	// Times is how many calls fail; 0 stands for all.
	Times int
	// Err is what they fail with. nil with Hang: what a client says that gave
	// up waiting.
	Err error
	// Hang has them wait until the context ends or, if it is given, until
	// Release is closed; the call goes well then.
	Hang    bool
	Release <-chan struct{}
	// After has the call do its work first and fail then, as one does whose
	// answer got lost.
	After bool
	// Do is called when it strikes.
	Do func()
}

// The errors that the driver and its helper have for a test to choose from.
var (
	// ErrNotReady is what Lock says where GPU work doesn't come to rest.
	ErrNotReady = driverError(OpLock, helperapi.Class_CLASS_NOT_READY, 600, "CUDA_ERROR_NOT_READY")
	// ErrNotSupported is what Checkpoint says of managed memory.
	ErrNotSupported = driverError(OpCheckpoint, helperapi.Class_CLASS_UNSUPPORTED, 801, "CUDA_ERROR_NOT_SUPPORTED")
	// ErrUnknown is what it says of managed memory the next times.
	ErrUnknown = driverError(OpCheckpoint, helperapi.Class_CLASS_OTHER, 999, "CUDA_ERROR_UNKNOWN")
	// ErrInvalidValue is what Restore says of legacy IPC.
	ErrInvalidValue = driverError(OpRestore, helperapi.Class_CLASS_OTHER, 1, "CUDA_ERROR_INVALID_VALUE")
	// ErrHelperDied is what a call says whose helper died.
	ErrHelperDied = fmt.Errorf("device helper died (exit status 137): %w", gpuplugin.ErrUnavailable)
)

// Fail adds a fault. The first one that fits a call strikes.
func (m *Machine) Fail(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Heal takes all faults back.
func (m *Machine) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// begin records a call and lets a fault strike.
func (m *Machine) begin(ctx context.Context, op Op, pid int) error {
	f := m.fault(op, pid)
	return f.strike(ctx)
}

// fault records a call and returns what is to happen to it.
func (m *Machine) fault(op Op, pid int) Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if op != OpState && op != OpInventory && op != OpUsage && op != OpClients {
		m.calls = append(m.calls, call(op, pid))
		close(m.changed)
		m.changed = make(chan struct{})
	}
	for _, f := range m.faults {
		if f.Op != op || f.PID != 0 && f.PID != pid || f.Times < 0 {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		struck := *f
		if f.Times == 1 {
			f.Times = -1
		} else if f.Times > 1 {
			f.Times--
		}
		return struck
	}
	return Fault{}
}

// strike is the fault itself.
func (f *Fault) strike(ctx context.Context) error {
	if f.Do != nil {
		f.Do()
	}
	if !f.Hang {
		return f.Err
	}
	select {
	case <-f.Release:
		return f.Err
	case <-ctx.Done():
	}
	if f.Err != nil {
		return f.Err
	}
	return fmt.Errorf("device helper gave no answer: %w: %w", gpuplugin.ErrUnavailable, context.Cause(ctx))
}
