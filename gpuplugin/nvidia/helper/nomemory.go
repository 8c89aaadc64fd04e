// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"fmt"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// NoMemory is for a helper that moves no memory.
type NoMemory struct{}

var _ nvidia.Mover = NoMemory{}

var errNoMemory = fmt.Errorf("this device helper moves no memory: %w", gpuplugin.ErrUnsupported)

// Clients implements nvidia.Mover.
func (NoMemory) Clients(context.Context, string) ([]nvidia.Client, error) { return nil, errNoMemory }

// Hold implements nvidia.Mover.
func (NoMemory) Hold(context.Context, string, int, time.Duration) error { return errNoMemory }

// Release implements nvidia.Mover.
func (NoMemory) Release(context.Context, string, int) error { return errNoMemory }

// Park implements nvidia.Mover.
func (NoMemory) Park(context.Context, string, int, string) (nvidia.Parked, error) {
	return nvidia.Parked{}, errNoMemory
}

// Duplicate implements nvidia.Mover.
func (NoMemory) Duplicate(context.Context, []string) (bool, error) { return false, errNoMemory }

// Unpark implements nvidia.Mover.
func (NoMemory) Unpark(context.Context, string, int, string) error { return errNoMemory }

// Save implements nvidia.Mover.
func (NoMemory) Save(context.Context, nvidia.SaveRequest) (nvidia.Saved, error) {
	return nvidia.Saved{}, errNoMemory
}

// Load implements nvidia.Mover.
func (NoMemory) Load(context.Context, nvidia.LoadRequest) (nvidia.Loaded, error) {
	return nvidia.Loaded{}, errNoMemory
}

// Drop implements nvidia.Mover.
func (NoMemory) Drop(context.Context, []string) error { return errNoMemory }

// Progress implements nvidia.Mover.
func (NoMemory) Progress(context.Context, string) (nvidia.Progress, error) {
	return nvidia.Progress{}, nil
}
