// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// What the engines do with parcels, whoever has taken the memory out of the
// processes.

// parcelName is the name of a process's memory while it is not the process's.
func parcelName(container string, p gpuplugin.Process) string { return container + "/" + p.Key }

// parcelNames are those of the processes that are split.
func parcelNames(container string, procs []gpuplugin.Process) []string {
	var names []string
	for _, p := range splitOf(procs) {
		names = append(names, parcelName(container, p))
	}
	return names
}

// duplicate copies parcels within the devices, and tells whether there was room.
func duplicate(ctx context.Context, m Mover, parcels []string) (bool, error) {
	done, err := m.Duplicate(ctx, parcels)
	if err != nil {
		return false, fmt.Errorf("copy device memory on the device: %w", explained(err))
	}
	return done, nil
}

// save writes parcels, or the copies of them, to files, and returns when they
// are on disk. On error it has left none.
func save(ctx context.Context, m Mover, req SaveRequest) (gpuplugin.Stored, error) {
	saved, err := m.Save(ctx, req)
	if err != nil {
		return gpuplugin.Stored{}, fmt.Errorf("save device memory: %w", explained(err))
	}
	trace(ctx, saved.Phases)
	return gpuplugin.Stored{Bytes: saved.Bytes, Zero: saved.Zero, Reused: saved.Reused, Written: saved.Stored, KeyID: saved.KeyID}, nil
}

// drop forgets parcels. A helper that has died has none.
func drop(ctx context.Context, m Mover, parcels []string) error {
	if len(parcels) == 0 {
		return nil
	}
	if err := m.Drop(ctx, parcels); err != nil && !errors.Is(err, gpuplugin.ErrUnavailable) {
		return fmt.Errorf("free the device memory of the snapshot: %w", err)
	}
	return nil
}

// explained puts an error of the mover into the words that callers tell apart.
func explained(err error) error {
	for theirs, ours := range map[error]error{
		helperapi.ErrNoSpace:        unix.ENOSPC,
		helperapi.ErrNoDeviceMemory: gpuplugin.ErrIncompatible,
		helperapi.ErrDamaged:        gpuplugin.ErrDamaged,
	} {
		if errors.Is(err, theirs) {
			return fmt.Errorf("%w: %w", ours, err)
		}
	}
	return err
}

func trace(ctx context.Context, phases []MovePhase) {
	for _, p := range phases {
		log.G(ctx).Debugf("device memory: %s took %v", p.Name, p.Duration)
	}
}
