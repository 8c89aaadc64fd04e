// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuplugin holds the words in which the runtime and a vendor's code
// talk about GPUs: processes that hold GPU state, devices, and the few errors
// that a caller has to tell apart.
//
// The interface that a plugin satisfies is owned by its user,
// runtime/checkpoint. This package must not know of containers, runc, CRIU or
// any one vendor, and the vendors' packages below it must not import one
// another.
package gpuplugin

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknownState means that it could not be told whether a process holds
	// GPU state. It is never to be read as "it holds none".
	ErrUnknownState = errors.New("cannot tell whether the process holds GPU state")
	// ErrUnsupported means that the driver can't save what a process uses
	// (managed memory, legacy IPC, MIG, ...), now or at a later try.
	ErrUnsupported = errors.New("not supported by the GPU driver")
	// ErrUnavailable means that the vendor's driver or the device helper could
	// not be reached at all.
	ErrUnavailable = errors.New("GPU driver unavailable")
	// ErrIncompatible means that the devices at hand can't take a snapshot.
	ErrIncompatible = errors.New("GPU devices do not fit the snapshot")
	// ErrLost means that device memory that had been taken out of a process can't
	// be given back: the process must not go on.
	ErrLost = errors.New("device memory is lost")
	// ErrNotKept means that device memory which was left on the devices for a
	// restore is not there any more.
	ErrNotKept = errors.New("the snapshot's device memory is not kept on this host any more")
	// ErrDamaged means that device memory in a snapshot is not what was saved.
	ErrDamaged = errors.New("saved device memory is damaged")
)

// State is what the driver says of the GPU state of a process.
type State string

// The states of a process, named as the CUDA driver names them (cuda.h,
// CUprocessState, driver 570; the last two driver 615).
const (
	// StateRunning: the process may use its GPUs.
	StateRunning State = "running"
	// StateLocked: calls that would change GPU state wait; work has finished.
	StateLocked State = "locked"
	// StateCheckpointed: the GPU state is in the process's host memory, and it
	// holds no device.
	StateCheckpointed State = "checkpointed"
	// StateFailed: the driver gave up on the process.
	StateFailed State = "failed"
	// StateCheckpointing and StateRestoring (driver 615): somebody copies its
	// device memory, and has not said yet that this is done.
	StateCheckpointing State = "checkpointing"
	StateRestoring     State = "restoring"
)

// Process is one process that holds GPU state.
type Process struct {
	// PID is the process in the PID namespace of the host.
	PID int
	// State is the state in which the process was found. Undoing an operation
	// returns the process to it.
	State State
	// Split says that its device memory is taken out of it before its other
	// state is saved, and moved apart from it; else the driver moves both. The
	// engine that parks may find that it can't be, and take it back.
	Split bool
	// Reason is why it is not split, where the engine would have split it.
	Reason string
	// Key names the process within its container, before a restore and after,
	// when its PID is another.
	Key string
}

// Stored is device memory in files of a snapshot, in bytes.
type Stored struct {
	// Bytes is all of it: Zero of it were zeros and are not stored, Reused are in
	// the snapshots before, and Written in this one.
	Bytes, Zero, Reused, Written uint64
	// KeyID names the key with which the files are encrypted; "" if they are not.
	KeyID string
}

// Kept says where device memory is that was left on its devices for a restore.
type Kept struct {
	// Boot is the boot of the host, Keeper the name of the process that has the
	// memory, and Digest which memory that is.
	Boot, Keeper, Digest string
	// Bytes is all of it.
	Bytes uint64
}

// Device is one GPU as a snapshot remembers it and a host offers it.
type Device struct {
	// UUID is the vendor's name of this one device ("GPU-...").
	UUID string `json:"uuid"`
	// Vendor is "nvidia", "amd" or "intel".
	Vendor string `json:"vendor"`
	// Model is the product's name, as the vendor's library prints it.
	Model string `json:"model"`
	// MemoryBytes is all the memory of the device.
	MemoryBytes uint64 `json:"memory_bytes"`
	// UsedBytes is, in a snapshot, what the container's processes used of it;
	// in an inventory, what everybody uses.
	UsedBytes uint64 `json:"used_bytes"`
	// Minor is the number in the name of the device node (/dev/nvidia<Minor>).
	Minor int `json:"minor"`
	// PCI is the bus address ("0000:81:00.0").
	PCI string `json:"pci,omitempty"`
	// MIG says that the device is split into instances.
	MIG bool `json:"mig,omitempty"`
}

// Inventory is what a host offers.
type Inventory struct {
	// Driver is the version of the kernel driver ("580.159.04").
	Driver string `json:"driver"`
	// API is the version of the vendor's user library, as it counts it
	// (13000 is CUDA 13.0).
	API int `json:"api"`
	// Devices are all GPUs, in the order of the vendor's library.
	Devices []Device `json:"devices"`
}

// DeviceMap says, for each device of a snapshot, which device takes its
// place: old UUID to new UUID. A map that is empty changes nothing.
type DeviceMap map[string]string

// ProcessError says which process an error is about.
type ProcessError struct {
	// PID is the process in the PID namespace of the host.
	PID int
	// Op is what was tried ("lock", "checkpoint", "restore", "unlock").
	Op string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *ProcessError) Error() string {
	return fmt.Sprintf("GPU %s of process %d: %v", e.Op, e.PID, e.Err)
}

// Unwrap returns the cause.
func (e *ProcessError) Unwrap() error { return e.Err }
