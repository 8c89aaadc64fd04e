// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import "errors"

var (
	// ErrEnding is the cause with which an operation is canceled because its
	// container is being ended: nothing has to be saved of it.
	ErrEnding = errors.New("the container is being ended")
	// ErrExists means that a snapshot would be written over another.
	ErrExists = errors.New("holds a snapshot already, or a part of one")
	// ErrNoSpace means that the snapshot would not fit.
	ErrNoSpace = errors.New("no space for the snapshot")
	// ErrEntered means that GPU state is where CRIU does not look.
	ErrEntered = errors.New("was started in the container by exec: only the first process and its descendants can be saved")
	// ErrStopped means that CRIU would wait for a process until the time-out.
	ErrStopped = errors.New("is stopped (SIGSTOP, or by its terminal), and with cgroups of version 1 such a process can't be saved: continue it first (SIGCONT)")
	// ErrArchitecture means that the snapshot's programs can't run here.
	ErrArchitecture = errors.New("the snapshot is another architecture's")
	// ErrLibrary means that the snapshot's processes need another library in
	// front of the GPU driver's than there is.
	ErrLibrary = errors.New("the snapshot needs another libhetcuda")
	// ErrParent means that the snapshot to add to is not an earlier one of this
	// container.
	ErrParent = errors.New("nothing can be left in that snapshot")
	// ErrNameless means that a file would be missed at the restore: it is used under
	// a name that it has no more.
	ErrNameless = errors.New("is used by the container under a name that it has lost")
	// ErrPlain means that device memory would be in the snapshot as it is, and has
	// to be encrypted.
	ErrPlain = errors.New("device memory would not be encrypted")
	// ErrProcesses means that the driver knows of other processes than those
	// of the snapshot, or knows them otherwise.
	ErrProcesses = errors.New("the restored processes are not as they were saved")
)
