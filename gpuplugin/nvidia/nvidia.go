// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package nvidia is the shim's side of the driver engine on NVIDIA GPUs: it
// finds the processes that hold CUDA state, and takes them through the
// driver's lock, checkpoint, restore and unlock, all of them or none.
//
// [Engine] is the sequence, [Helper] the connection to the device helper, which
// alone loads the driver; [Match] fits a snapshot's devices to a host's. The
// package must not know of containers, runc or CRIU, and must not import what
// loads a driver.
//
// Engine holds no lock. Helper.mu guards only which helper process is the
// current one and is never held during a call.
package nvidia

import (
	"context"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// Driver is what [Engine] needs of the driver. Errors are told apart with
// errors.Is by the sentinels of gpuplugin and helperapi. A call that has been
// begun can't be taken back: when its context ends, what it did is unknown.
type Driver interface {
	// Inventory lists driver and devices.
	Inventory(ctx context.Context) (gpuplugin.Inventory, error)
	// Usage is the device memory that the processes use, by device UUID.
	Usage(ctx context.Context, pids []int) (map[string]uint64, error)
	// State fails with helperapi.ErrNoState if the driver knows no CUDA state
	// of the process and with helperapi.ErrGone if there is no such process.
	State(ctx context.Context, pid int) (gpuplugin.State, error)
	// Lock takes a process from running to locked; if its GPU work doesn't
	// come to rest within timeout it fails with helperapi.ErrNotReady and the
	// process is running.
	Lock(ctx context.Context, pid int, timeout time.Duration) error
	// Checkpoint takes a process from locked to checkpointed. If it fails the
	// process is locked.
	Checkpoint(ctx context.Context, pid int) error
	// Restore takes a process from checkpointed to locked. The map has each
	// device that the process can see, and no other: the driver refuses fewer
	// and more (seen on 580, in a container with one of two GPUs).
	Restore(ctx context.Context, pid int, devices gpuplugin.DeviceMap) error
	// Unlock takes a process from locked to running.
	Unlock(ctx context.Context, pid int) error
}
