// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package gpuplugin

import (
	"context"
	"errors"
	"fmt"
)

// None is the engine of a container that has no GPU. It never looks at a
// process: the container's spec has said that there is nothing to find.
type None struct{}

// Engine is the manifest's word for it.
func (None) Engine() string { return "none" }

// Inventory is empty.
func (None) Inventory(context.Context) (Inventory, error) { return Inventory{}, nil }

// Match fits nothing to nothing.
func (None) Match(_ context.Context, saved Inventory, _ []int) (DeviceMap, error) {
	if len(saved.Devices) > 0 {
		return nil, fmt.Errorf("%w: the container has no GPU, the snapshot has %d", ErrIncompatible, len(saved.Devices))
	}
	return nil, nil
}

// Processes finds none.
func (None) Processes(context.Context, []int) ([]Process, error) { return nil, nil }

// Usage is empty.
func (None) Usage(context.Context, []Process) (map[string]uint64, error) { return nil, nil }

// Prepare accepts an empty list and nothing else.
func (None) Prepare(_ context.Context, procs []Process) error { return refuseAny("prepare", procs) }

// Lock accepts an empty list and nothing else.
func (None) Lock(_ context.Context, procs []Process) error { return refuseAny("lock", procs) }

// Suspend accepts an empty list and nothing else.
func (None) Suspend(_ context.Context, procs []Process) error { return refuseAny("checkpoint", procs) }

// Resume accepts an empty list and nothing else.
func (None) Resume(_ context.Context, procs []Process, _ DeviceMap) error {
	return refuseAny("restore", procs)
}

// Undo accepts an empty list and nothing else.
func (None) Undo(_ context.Context, procs []Process) error { return refuseAny("undo", procs) }

// refuseAny fails for each process: whoever asks about GPU state here has
// taken the wrong engine, and silence would lose that state.
func refuseAny(op string, procs []Process) error {
	errs := make([]error, 0, len(procs))
	for _, p := range procs {
		errs = append(errs, &ProcessError{PID: p.PID, Op: op, Err: fmt.Errorf("the container has no GPU engine: %w", ErrUnsupported)})
	}
	return errors.Join(errs...)
}
