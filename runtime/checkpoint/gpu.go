// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// GPU captures the GPU state of processes. A container without a GPU has one
// too ([gpuplugin.None]), so that no step asks whether there is one.
//
// No method holds a lock while it waits for a driver, and each ends with its
// context: then, the method undoes what it did and returns.
type GPU interface {
	// Engine is the value of the manifest's "engine": "driver", "split" or "none".
	Engine() string
	// Inventory lists the host's driver and devices.
	Inventory(ctx context.Context) (gpuplugin.Inventory, error)
	// Match tells which of the devices with these minor numbers (all if there
	// are none) take the place of the saved ones. It fails with
	// [gpuplugin.ErrIncompatible] and every reason. An empty map changes nothing.
	Match(ctx context.Context, saved gpuplugin.Inventory, minors []int) (gpuplugin.DeviceMap, error)
	// Processes tells which of the processes hold GPU state. An empty answer
	// means that none does. If it can't tell for one of them, it fails with
	// [gpuplugin.ErrUnknownState] and names it.
	Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error)
	// Usage returns the device memory in bytes that the processes use, by
	// device UUID. A device that they do not use may be missing.
	Usage(ctx context.Context, procs []gpuplugin.Process) (map[string]uint64, error)
	// Prepare proves, as far as can be told from outside, that all GPU state
	// of the processes can be saved. It changes nothing, and its error has
	// every reason, not only the first (errors.Join).
	Prepare(ctx context.Context, procs []gpuplugin.Process) error
	// Lock makes the processes' GPUs idle and keeps them so: all of them or,
	// on error, none (each is back in the state in which it was found).
	Lock(ctx context.Context, procs []gpuplugin.Process) error
	// Suspend takes the GPU state out of the devices into host memory;
	// afterwards no process holds a device file. All of them or, on error,
	// none. It locks what is not locked.
	Suspend(ctx context.Context, procs []gpuplugin.Process) error
	// Resume puts suspended processes back on their devices, or on those that
	// the map names, and each into the state that its Process.State says.
	// None goes on before all are back; after an error the caller decides.
	Resume(ctx context.Context, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error
	// Undo returns every process to the state in which it was found
	// (Process.State), whatever it is in now. It goes on after an error and
	// returns all of them. Processes that have exited are no error. With
	// [gpuplugin.ErrLost] the container has to be ended.
	Undo(ctx context.Context, procs []gpuplugin.Process) error
}

// Streamer is what a [GPU] does besides that moves the device memory of some
// processes (Process.Split) itself, apart from them: it stays where it is while
// they are saved, and goes to files of its own.
type Streamer interface {
	// Park, between Lock and Suspend, takes the device memory of the split
	// processes out of them: of all or, on error, of none (each is back in the
	// state in which it was found). Resume and Undo give it back. What a process
	// says to have on other devices than the container's is an error. One that
	// proves to be none to split is marked so, with the reason.
	Park(ctx context.Context, procs []gpuplugin.Process, devices []gpuplugin.Device) error
	// Bound says that Suspend ends what Park has shown: before it, the memory has
	// to be copied or saved.
	Bound() bool
	// Loads fails with [gpuplugin.ErrIncompatible] if what Save wrote can't be
	// loaded here, whatever it is.
	Loads(ctx context.Context) error
	// Copy copies what is parked within the devices, and tells whether there was
	// room for it: then Save saves the copy, and the processes can have theirs
	// back meanwhile.
	Copy(ctx context.Context, procs []gpuplugin.Process) (bool, error)
	// Save writes what was parked, or the copy, to files in dir that are named
	// hetgpu-mem*.img (docs/formats.md), and returns when they are on disk. What
	// is in the files of parent, a snapshot's directory or "", is left there.
	Save(ctx context.Context, dir, parent string, procs []gpuplugin.Process) (gpuplugin.Stored, error)
	// Load reads what Save wrote, onto the devices of the map, and verifies it.
	// The processes are those that were saved, in their order, and are known by
	// their Key alone: their restore goes on meanwhile. Resume gives them what
	// was loaded.
	Load(ctx context.Context, dir string, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error
	// Drop forgets all that it holds of the container's device memory.
	Drop(ctx context.Context) error
}

// Keeper is a [Streamer] that can leave device memory on its devices when the
// container ends, for a restore on the same host until its next boot.
type Keeper interface {
	// Keep leaves what is parked to somebody who outlives this process, for the
	// snapshot in dir. Until Confirm that ends with this process, and by Drop;
	// Undo and Resume give the memory back as before.
	Keep(ctx context.Context, dir string, procs []gpuplugin.Process) (gpuplugin.Kept, error)
	// Confirm says that the snapshot is complete. On error it is not kept.
	Confirm(ctx context.Context) error
	// Forget undoes Keep and Confirm.
	Forget(ctx context.Context) error
	// Fetch takes back what is kept, and returns how many bytes there are on each
	// device, by UUID. The processes are those that were saved, in their order,
	// known by their Key alone. Resume gives it to them, and ends the keeping
	// before they can change it; without Resume, or if that fails before, it is
	// kept as it was after Drop. What is not kept any more is
	// [gpuplugin.ErrNotKept].
	Fetch(ctx context.Context, kept gpuplugin.Kept, procs []gpuplugin.Process) (map[string]uint64, error)
}

// keeper returns the [Keeper] of an engine that is one.
func keeper(g GPU) (Keeper, error) {
	if k, ok := g.(Keeper); ok {
		return k, nil
	}
	return nil, fmt.Errorf("engine %q can't keep device memory on the GPUs, only %q can: %w", g.Engine(), snapshot.EngineSplit, gpuplugin.ErrUnsupported)
}

// resident is the [Streamer] of an engine that leaves device memory to the
// driver, so that it has no process to stream.
type resident struct{}

func (resident) Park(context.Context, []gpuplugin.Process, []gpuplugin.Device) error { return nil }
func (resident) Bound() bool                                                         { return false }

func (resident) Loads(context.Context) error {
	return fmt.Errorf("%w: its device memory is in files, and the container's engine reads none", gpuplugin.ErrIncompatible)
}
func (resident) Copy(context.Context, []gpuplugin.Process) (bool, error) { return true, nil }
func (resident) Save(context.Context, string, string, []gpuplugin.Process) (gpuplugin.Stored, error) {
	return gpuplugin.Stored{}, nil
}

func (resident) Load(context.Context, string, []gpuplugin.Process, gpuplugin.DeviceMap) error {
	return nil
}
func (resident) Drop(context.Context) error { return nil }

func streamer(g GPU) Streamer {
	if s, ok := g.(Streamer); ok {
		return s
	}
	return resident{}
}
