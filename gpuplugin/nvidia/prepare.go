// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

const (
	// driverCheckpoint is the first driver with the checkpoint API.
	driverCheckpoint = 570
	// driverPairs is the first driver that restores to another device.
	driverPairs = 580
)

// Prepare proves, as far as can be told from outside, that the driver can save
// all GPU state of the processes. It changes nothing and has every reason.
func (e *Engine) Prepare(ctx context.Context, procs []gpuplugin.Process) error {
	if len(procs) == 0 {
		return nil
	}
	inv, err := e.Inventory(ctx)
	if err != nil {
		return err
	}
	errs := []error{refuseDriver(inv.Driver)}
	for _, p := range procs {
		if err := e.prepareOne(inv, p); err != nil {
			errs = append(errs, &gpuplugin.ProcessError{PID: p.PID, Op: "prepare", Err: err})
		}
	}
	return errors.Join(append(errs, e.checkSharing(ctx, procs))...)
}

// checkSharing asks about the processes whose memory the driver saves. What split
// ones share the library knows: parking them shows it.
func (e *Engine) checkSharing(ctx context.Context, procs []gpuplugin.Process) error {
	procs = slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return p.Split })
	if len(procs) == 0 {
		return nil
	}
	return e.cfg.sharing.Check(ctx, procs)
}

func refuseDriver(version string) error {
	major, err := driverMajor(version)
	if err != nil {
		return err
	}
	if major < driverCheckpoint {
		return fmt.Errorf("driver %s can't checkpoint processes; %d or later is needed: %w",
			version, driverCheckpoint, gpuplugin.ErrUnsupported)
	}
	return nil
}

func (e *Engine) prepareOne(inv gpuplugin.Inventory, p gpuplugin.Process) error {
	switch p.State {
	case gpuplugin.StateRunning, gpuplugin.StateLocked, gpuplugin.StateCheckpointed:
	default:
		return fmt.Errorf("the driver says that its GPU state is %s: %w", p.State, gpuplugin.ErrUnsupported)
	}
	used, err := e.devicesOf(p.PID)
	if err != nil {
		return fmt.Errorf("find its devices: %w", err)
	}
	var errs []error
	for _, minor := range used {
		i := slices.IndexFunc(inv.Devices, func(d gpuplugin.Device) bool { return d.Minor == minor })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("the driver lists no device /dev/nvidia%d: %w", minor, gpuplugin.ErrUnknownState))
		case inv.Devices[i].MIG:
			errs = append(errs, fmt.Errorf("%s is split into instances (MIG), which the driver can't checkpoint: %w",
				describe(inv.Devices[i]), gpuplugin.ErrUnsupported))
		}
	}
	return errors.Join(errs...)
}

// driverMajor is the first number of a version like "580.159.04".
func driverMajor(version string) (int, error) {
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, fmt.Errorf("driver version %q is not understood: %w", version, gpuplugin.ErrUnavailable)
	}
	return major, nil
}

// describe names a device for people.
func describe(d gpuplugin.Device) string {
	return fmt.Sprintf("%s (%s, /dev/nvidia%d)", d.UUID, d.Model, d.Minor)
}
