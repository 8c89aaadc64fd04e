// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads, writes and verifies the directory that a checkpoint
// fills: CRIU's images, data files named hetgpu-*.img, and the manifest
// hetgpu.json, which is written last. docs/formats.md is the specification.
//
// The package must not know of containerd, runc, CRIU's formats or a GPU
// driver; a snapshot is hostile input to it.
package snapshot

import (
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

const (
	// ManifestName is the name of the manifest in the snapshot directory.
	ManifestName = "hetgpu.json"
	// Version is the newest format that this package writes and reads. It writes
	// the oldest that can say what there is to say ([Manifest.version]).
	Version = 6
	// ChunkSize is the number of bytes that one digest covers.
	ChunkSize = 64 << 20
)

// Manifest describes a snapshot.
type Manifest struct {
	// Version is set by [Encode].
	Version int    `json:"version"`
	Engine  string `json:"engine"`
	// EngineReason is why the engine that was asked for saved less than all.
	// Since version 2.
	EngineReason string    `json:"engine_reason,omitempty"`
	Created      time.Time `json:"created"`
	Container    Container `json:"container"`
	// Library is libhetcuda as the container has it, nil without. Since version 2.
	Library *Library `json:"library,omitempty"`
	Host    Host     `json:"host"`
	Options Options  `json:"options"`
	// Devices are the GPUs that the container could see.
	Devices []gpuplugin.Device `json:"devices"`
	// Processes are those that held GPU state.
	Processes []Process `json:"processes"`
	// Memory is the device memory that is apart from the processes, nil if there is
	// none. Since version 2.
	Memory *Memory `json:"memory,omitempty"`
	// StopSeconds is how long processes of the container had to wait, from the
	// first that had to until all went on; 0 if it did not go on, or had been
	// stopped by somebody else. Since version 2.
	StopSeconds float64 `json:"stop_seconds,omitempty"`
	Files       []File  `json:"files"`
	Phases      []Phase `json:"phases"`
}

// Library is the library that stands in front of the GPU driver's in a
// container. Its processes map it, so a restore needs the same file.
type Library struct {
	// BuildID is its linker's name for it, in hexadecimal.
	BuildID string `json:"build_id"`
}

// Memory is device memory that was saved apart from the processes.
type Memory struct {
	// Bytes is all of it: ZeroBytes are not stored, ReusedBytes are in the
	// snapshots before, StoredBytes in this one, and KeptBytes in no file.
	Bytes       uint64 `json:"bytes"`
	ZeroBytes   uint64 `json:"zero_bytes"`
	StoredBytes uint64 `json:"stored_bytes"`
	ReusedBytes uint64 `json:"reused_bytes,omitempty"`
	// KeptBytes is all of it or 0. Since version 4.
	KeptBytes uint64 `json:"kept_bytes,omitempty"`
	// KeyID names the key with which the memory is encrypted in its files; "" if it
	// is not. Since version 5.
	KeyID string `json:"key_id,omitempty"`
	// Keeper has what is kept; nil if the memory is in files. Since version 4.
	Keeper *Keeper `json:"keeper,omitempty"`
}

// Keeper is a process of the host on which the snapshot was made. It has the
// device memory, which is where it was.
type Keeper struct {
	// BootID is the kernel's name for the boot of that host.
	BootID string `json:"boot_id"`
	// ID is the keeper's name, which is random.
	ID string `json:"id"`
	// Digest says which memory it is: every chunk, its size and its device.
	Digest string `json:"digest"`
}

// Container is the container that was saved.
type Container struct {
	ID          string `json:"id"`
	Namespace   string `json:"namespace"`
	Hostname    string `json:"hostname,omitempty"`
	CgroupsPath string `json:"cgroups_path,omitempty"`
}

// Host is what the snapshot was made with. Versions are as the programs print
// them; one that could not be found out is empty.
type Host struct {
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Runc   string `json:"runc"`
	CRIU   string `json:"criu"`
	// Driver and API are the GPU driver's, empty and 0 without a GPU.
	Driver string `json:"driver,omitempty"`
	API    int    `json:"api,omitempty"`
}

// Options are the choices of the dump that the restore has to repeat.
type Options struct {
	TCPEstablished      bool `json:"tcp_established,omitempty"`
	ExternalUnixSockets bool `json:"external_unix_sockets,omitempty"`
	FileLocks           bool `json:"file_locks,omitempty"`
	Terminal            bool `json:"terminal,omitempty"`
	// Incremental says that there is a parent snapshot, in which memory was left.
	Incremental bool `json:"incremental,omitempty"`
	// WholePages says that it was device memory alone, and that CRIU's images are
	// complete. Since version 6.
	WholePages bool `json:"whole_pages,omitempty"`
}

// Process is a process that held GPU state.
type Process struct {
	// NSPIDs is the process's PID in each PID namespace below the host's,
	// outermost first; where the container shares the host's, the host PID.
	NSPIDs []int `json:"ns_pids"`
	// Command is the process's name (/proc/PID/comm), for people.
	Command string `json:"command"`
	// State is the one in which the process was found, to which a restore
	// returns it ("running" for a locked one: see docs/formats.md).
	State gpuplugin.State `json:"state"`
	// Memory says with what its device memory was saved: [MemorySplit] or
	// [MemoryDriver] with engine "split", [MemoryStorage] or [MemoryDriver] with
	// engine "driver" and memory in files, and nothing else. Since version 2, the
	// second since version 3.
	Memory string `json:"memory,omitempty"`
}

// The values of [Process.Memory].
const (
	// MemorySplit: it is in the snapshot's files of device memory, or with its
	// keeper, and was taken there by libhetcuda.
	MemorySplit = "split"
	// MemoryStorage: it is there too, and was shown by the driver (custom storage).
	MemoryStorage = "storage"
	// MemoryDriver: it is in the process's host memory.
	MemoryDriver = "driver"
)

// File is one file of the snapshot beside the manifest.
type File struct {
	// Name is a plain file name, without a separator.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Digests has a "sha256:..." for each ChunkSize bytes, the last one
	// shorter; an empty file has none, and neither has one that is covered.
	Digests []string `json:"digests"`
	// CoveredBy is the file of the snapshot that has this one's digests. Since
	// version 2.
	CoveredBy string `json:"covered_by,omitempty"`
}

// Phase is one step of the checkpoint and the time it took.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}
