// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// Storer is a [Mover] that also reaches the device memory of processes without
// libhetcuda, through the driver's custom storage (CUDA 13.4, driver 615). Their
// memory is a parcel too, which Duplicate, Save and Drop know as any other.
//
// The order is Map for each process; Duplicate or Save for all; Settle for each;
// CRIU; Fill for each; Save if it was duplicated; Drop. A restore is Fill alone,
// of parcels that only a directory has. Fill is the way back too, wherever it
// went wrong.
//
// An operation of the driver that has begun can only be completed. So nothing is
// settled of which there is no copy, and nothing completed that is not filled;
// and if the helper dies between, the process can't be brought back.
type Storer interface {
	// Map has the driver begin the checkpoint of a locked process, whose memory is
	// the parcel then. After an error the driver's state of the process says what
	// has become of it: locked, nothing has. gpuplugin.ErrUnsupported means that
	// the driver doesn't do it, for this process or for any.
	Map(ctx context.Context, req MapRequest) (Parked, error)
	// Settle completes the checkpoint of a parcel that was duplicated or saved:
	// the process is checkpointed, and has no device memory any more. It fails with
	// helperapi.ErrIllegalState for any other parcel.
	Settle(ctx context.Context, parcel string) error
	// Fill has the driver restore the process and gives it back its memory: the
	// copy, or what is in files. The process is locked then, and the parcel ended,
	// unless it was duplicated: its copy stays, for Save. If the checkpoint is yet
	// to be completed, it is, once its memory is copied. After an error it can be
	// tried again.
	Fill(ctx context.Context, req FillRequest) error
}

// MapRequest says whose memory is mapped.
type MapRequest struct {
	PID    int
	Parcel string
	// Devices are all that the process uses, by UUID, or more.
	Devices []string
}

// FillRequest says which process is restored, and of what.
type FillRequest struct {
	PID    int
	Parcel string
	// Dir is the directory that has the memory of a parcel that the helper does
	// not know, as that of the Process-th process in its index; or empty.
	Dir     string
	Process int
	// Map says which device takes another's place; empty changes nothing.
	Map gpuplugin.DeviceMap
	// Devices are all that the process will use, by UUID, or more.
	Devices []string
}
