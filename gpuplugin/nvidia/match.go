// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// Match finds a place on the host for each device of a snapshot: the same
// device where the container may use it, else another of the same model with
// enough memory. The container may use the devices with these minor numbers;
// all, if none is given.
//
// The map is empty if nothing moves: without one the driver takes the first
// device that the processes can see for the first that they could, and so on. So
// it is empty only if they are the same, in the same order; otherwise it has
// every device of the snapshot, as the driver wants it, moved or not. The error wraps [gpuplugin.ErrIncompatible]
// and has every reason, each with its device. It is about what is free now: a
// device can still fill up before the restore, which fails then.
func Match(saved, host gpuplugin.Inventory, minors []int) (gpuplugin.DeviceMap, error) {
	if len(saved.Devices) == 0 {
		return nil, nil
	}
	seen := visible(host.Devices, minors)
	m := matcher{free: slices.Clone(seen), places: gpuplugin.DeviceMap{}}
	m.check(refuseOlder(saved.Driver, host.Driver))
	m.stay(saved.Devices)
	m.move(saved.Devices)
	same := inPlace(saved.Devices, seen)
	if !same {
		m.check(refuseMoves(host.Driver))
	}
	if len(m.errs) > 0 {
		return nil, fmt.Errorf("%w: %w", gpuplugin.ErrIncompatible, errors.Join(m.errs...))
	}
	if same {
		return nil, nil
	}
	return m.places, nil
}

// inPlace tells whether the saved devices are the first that can be seen now.
func inPlace(saved, seen []gpuplugin.Device) bool {
	for i, s := range saved {
		if i >= len(seen) || seen[i].UUID != s.UUID {
			return false
		}
	}
	return true
}

// matcher is one run of Match.
type matcher struct {
	// free are the devices that nothing has been placed on yet.
	free   []gpuplugin.Device
	places gpuplugin.DeviceMap
	errs   []error
}

func (m *matcher) check(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

// stay places each device that is still there on itself.
func (m *matcher) stay(saved []gpuplugin.Device) {
	for _, s := range saved {
		i := slices.IndexFunc(m.free, func(d gpuplugin.Device) bool { return d.UUID == s.UUID })
		if i < 0 {
			continue
		}
		m.check(refuse(s, m.free[i]))
		m.take(s, i)
	}
}

// move places the others. The fullest goes first, on the device with the most
// room: if that doesn't work, nothing does.
func (m *matcher) move(saved []gpuplugin.Device) {
	rest := slices.DeleteFunc(slices.Clone(saved), func(s gpuplugin.Device) bool { return m.places[s.UUID] != "" })
	slices.SortStableFunc(rest, func(a, b gpuplugin.Device) int { return cmp.Compare(b.UsedBytes, a.UsedBytes) })
	for _, s := range rest {
		best := -1
		for i, d := range m.free {
			if refuse(s, d) == nil && (best < 0 || room(d) > room(m.free[best])) {
				best = i
			}
		}
		if best < 0 {
			m.check(m.nowhere(s))
			continue
		}
		m.take(s, best)
	}
}

func (m *matcher) take(s gpuplugin.Device, i int) {
	m.places[s.UUID] = m.free[i].UUID
	m.free = slices.Delete(m.free, i, i+1)
}

// nowhere says for each device that is left why it doesn't do.
func (m *matcher) nowhere(s gpuplugin.Device) error {
	if len(m.free) == 0 {
		return fmt.Errorf("no device is left for %s, which used %d MiB: the container has fewer GPUs than the snapshot",
			describe(s), s.UsedBytes>>20)
	}
	errs := make([]error, 0, len(m.free))
	for _, d := range m.free {
		errs = append(errs, refuse(s, d))
	}
	return fmt.Errorf("no device takes %s: %w", describe(s), errors.Join(errs...))
}

// refuse says why a device can't take the place of a saved one.
func refuse(s, d gpuplugin.Device) error {
	switch {
	case d.MIG:
		return fmt.Errorf("%s is split into instances (MIG)", describe(d))
	case d.Model != s.Model:
		return fmt.Errorf("%s is another model than %s", describe(d), s.Model)
	case d.MemoryBytes < s.MemoryBytes:
		return fmt.Errorf("%s has %d MiB of memory, %s had %d MiB",
			describe(d), d.MemoryBytes>>20, s.UUID, s.MemoryBytes>>20)
	case room(d) < s.UsedBytes:
		return fmt.Errorf("%s has %d MiB of memory free, %d MiB are needed",
			describe(d), room(d)>>20, s.UsedBytes>>20)
	}
	return nil
}

func refuseOlder(saved, host string) error {
	was, err := driverMajor(saved)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	is, err := driverMajor(host)
	if err != nil {
		return err
	}
	if is < max(was, driverCheckpoint) {
		return fmt.Errorf("the host's driver %s is older than the snapshot's %s", host, saved)
	}
	return nil
}

// refuseMoves is only asked where a device moves.
func refuseMoves(host string) error {
	major, err := driverMajor(host)
	if err != nil {
		return err
	}
	if major < driverPairs {
		return fmt.Errorf("driver %s can restore only to the same devices in the same order; %d or later moves them", host, driverPairs)
	}
	return nil
}

func visible(devices []gpuplugin.Device, minors []int) []gpuplugin.Device {
	out := slices.Clone(devices)
	if len(minors) == 0 {
		return out
	}
	return slices.DeleteFunc(out, func(d gpuplugin.Device) bool { return !slices.Contains(minors, d.Minor) })
}

// room is the memory of a device that nobody uses.
func room(d gpuplugin.Device) uint64 {
	return d.MemoryBytes - min(d.UsedBytes, d.MemoryBytes)
}
