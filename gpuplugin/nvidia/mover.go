// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// Mover takes device memory out of processes that run libhetcuda, keeps it,
// moves it to a snapshot's files and back, and gives it back. [Helper] is the
// one.
//
// A process is spoken to through its control directory, as a path of the host,
// and named by its PID on the host. Memory that was taken is a parcel, which has
// a name that the caller makes up (one for each process of a container that is
// the same before and after a restore, when the PID is another one). A parcel
// lives in the device helper until it is given back or dropped, and dies with
// the helper: so a Mover has a helper of its own, beside the one that calls the
// driver, which may be killed when the driver hangs.
//
// The order is Hold or HoldTogether, Park for each process; Commit for all; Duplicate or Save for all; Unpark,
// Release; Save if it was duplicated; Drop. A restore is Load beside CRIU, then
// Unpark and Release.
// Whatever failed, Release and Drop return to a running process and an empty
// helper, as long as the process is not parked; what is parked goes on only
// after Unpark.
//
// Errors are told apart by the sentinels of helperapi: ErrNotReady, ErrNoState
// (no such client, no such parcel), ErrGone, ErrIllegalState, ErrNoSpace,
// ErrNoDeviceMemory, ErrDamaged; and gpuplugin.ErrUnavailable if the helper died
// and every parcel with it. A context that ends stops Save and Load in the
// helper too, before they return.
type Mover interface {
	// Clients lists the processes that listen in a control directory. An error
	// means that it could not be told; none is an empty list. A socket that
	// nobody listens on any more counts as none.
	Clients(ctx context.Context, dir string) ([]Client, error)
	// Hold makes every CUDA call of the process wait. If that takes longer than
	// timeout it fails with helperapi.ErrNotReady, and the process runs. It ends
	// with Release, or with the helper. One that is held already stays so.
	Hold(ctx context.Context, dir string, pid int, timeout time.Duration) error
	// HoldTogether does the same to processes whose kernels may wait for one
	// another, all of which can be let on step by step: none waits for one that
	// is held. After an error all run. Those that have gone are left out.
	HoldTogether(ctx context.Context, dir string, pids []int, timeout time.Duration) error
	// Release lets a process go on that is held and not parked. Of one that is
	// not held, or gone, it does nothing. helperapi.ErrDamaged means that it stays held:
	// its memory is not where its program looks for it.
	Release(ctx context.Context, dir string, pid int) error
	// Park finds out what device memory a process has that is held, and makes a
	// parcel of it. The process has it still, until Commit; Unpark and Release are
	// the way back. After an error there is no parcel, and the process is held, or
	// runs if it gave no answer that can be understood. A process that cannot say
	// (it died) is helperapi.ErrGone.
	Park(ctx context.Context, req ParkRequest) (Parked, error)
	// Commit has the processes of parcels let go of their memory: of all that share
	// some. When it returns without an error they have none, and no connection to
	// the helper. After an error each has all of it or none, as Clients tells.
	// A process that is gone is left out.
	Commit(ctx context.Context, parcels []string) error
	// Duplicate copies parcels within their devices, all of them or none, so
	// that they can be given back before they are saved. False says that there
	// is not enough device memory; nothing has changed then.
	Duplicate(ctx context.Context, parcels []string) (bool, error)
	// Unpark gives a parcel to a process that is parked, which is held then. The
	// parcel ends, unless it was duplicated: then its copy stays, for Save.
	// After an error the process is parked and the parcel is there, unless it has its
	// memory and was not heard to have made it its own: Clients tells. What other
	// processes have made comes when they have theirs: until then it is
	// helperapi.ErrNotReady.
	Unpark(ctx context.Context, dir string, pid int, parcel string) error
	// Save writes parcels, which stay, to a directory's hetgpu-mem*.img. The
	// order of the parcels is that of the processes in the snapshot. After an
	// error it has left no file.
	Save(ctx context.Context, req SaveRequest) (Saved, error)
	// Load makes parcels of the memory in a directory, on the devices of the
	// map. After an error there are none of them.
	Load(ctx context.Context, req LoadRequest) (Loaded, error)
	// Drop forgets parcels, and the device memory of those that nobody else
	// holds. One that there is not is no error. Not while they are saved.
	Drop(ctx context.Context, parcels []string) error
	// Progress tells how far the Save or Load is in which a parcel takes part.
	Progress(ctx context.Context, parcel string) (Progress, error)

	Keeping
}

// Preparer is a [Mover] that can make the stop of a process shorter.
type Preparer interface {
	// Prepare opens devices, by UUID, and pins the memory that copies go through,
	// which takes from 0.3 s to seconds. They stay open for a while.
	Prepare(ctx context.Context, devices []string) error
}

// Keeping leaves parcels to a keeper (package keeper), which lives on when the
// device helper ends, and takes them back.
type Keeping interface {
	// Keep gives descriptors of parcels, which stay, to a keeper that has nothing
	// yet. The order of the parcels is that of the processes in the snapshot.
	Keep(ctx context.Context, req KeepRequest) (Kept, error)
	// Fetch makes parcels of what a keeper has; nothing is copied. After an error
	// there are none of them. The keeper has it still, and lends it to nobody else
	// until Drop of one of these names, or Spend.
	Fetch(ctx context.Context, req FetchRequest) (Kept, error)
	// Spend has the keeper let go of what was fetched from it, because the
	// processes are about to use it. One that died in between is no error.
	Spend(ctx context.Context, keeper, by string) error
}

// KeepRequest says what is kept, and by whom.
type KeepRequest struct {
	// Home is the directory in which keepers listen, and Keeper the name.
	Home, Keeper string
	Parcels      []string
}

// FetchRequest says what is fetched.
type FetchRequest struct {
	KeepRequest
	// Digest is what Keep returned.
	Digest string
	// By says who it is, for people.
	By string
}

// Kept is what a keeper keeps.
type Kept struct {
	// Digest names exactly this memory.
	Digest string
	// Bytes are by device UUID ("GPU-...").
	Bytes map[string]uint64
}

// Client is a process that runs libhetcuda.
type Client struct {
	// PID is on the host.
	PID int
	// State is how it was found.
	State ClientState
	// Version and Build name the library.
	Version, Build string
	// Driver is the version of CUDA that its driver offers (13000).
	Driver int
	// Chunks and Bytes are of device memory.
	Chunks int
	Bytes  uint64
	// Steps says that it can be let on step by step.
	Steps bool
	// Detail is what the library says beside, for people; may be empty.
	Detail string
}

// ClientState says whether a process's CUDA calls wait.
type ClientState string

// The states of a client.
const (
	ClientRunning ClientState = "running"
	ClientHeld    ClientState = "held"
	// ClientParked: held, and its device memory is elsewhere.
	ClientParked ClientState = "parked"
)

// ParkRequest says whose memory is taken, and where it may be.
type ParkRequest struct {
	// Dir and PID name the process, and Parcel what is taken out of it.
	Dir    string
	PID    int
	Parcel string
	// Devices are those on which the process may have memory, by UUID
	// ("GPU-..."), and how much memory each has, in bytes: what is on another, or
	// more than there is, is refused before anything of it is touched.
	Devices map[string]uint64
}

// Parked is what was taken out of a process.
type Parked struct {
	Chunks int
	// Bytes are by device UUID ("GPU-...").
	Bytes map[string]uint64
}

// SaveRequest says what is saved, and where.
type SaveRequest struct {
	// Dir is the snapshot's directory. It has no hetgpu-mem*.img.
	Dir string
	// Parcels are the processes of the snapshot, in its order.
	Parcels []string
	// Parent is the directory of a snapshot before, or empty. What is in its
	// files is not written again.
	Parent string
}

// Saved is what Save wrote.
type Saved struct {
	// Files are all of them, the index (hetgpu-mem.img) last. They are on disk.
	Files []SavedFile
	// Bytes is the memory: Stored in these files, Zero not written, and Reused
	// from the parent's.
	Bytes, Stored, Zero, Reused uint64
	// KeyID names the key with which the files are encrypted; "" if they are not.
	KeyID string
	// Phases are in their order; some run beside one another.
	Phases []MovePhase
}

// SavedFile is a file that Save wrote.
type SavedFile struct {
	Name string
	Size int64
}

// LoadRequest says what is loaded.
type LoadRequest struct {
	// Dir is the snapshot's directory.
	Dir string
	// Parcels are the names that the snapshot's processes get, in its order.
	Parcels []string
	// Devices says which device takes another's place; empty changes nothing.
	Devices gpuplugin.DeviceMap
}

// Loaded is what Load read.
type Loaded struct {
	// Bytes is the memory, of which Read came from files.
	Bytes, Read uint64
	Phases      []MovePhase
}

// MovePhase is a step of a Save or Load and how long it took.
type MovePhase struct {
	Name     string
	Duration time.Duration
}

// Progress is how far a Save or Load is.
type Progress struct {
	// Phase is the step, empty if nothing is under way.
	Phase string
	// Done and Total are bytes of device memory.
	Done, Total uint64
}
