// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// classes says which status an error of ours becomes; the first that fits.
var classes = []struct{ err, class error }{
	{gpuplugin.ErrUnsupported, errdefs.ErrFailedPrecondition},
	{gpuplugin.ErrIncompatible, errdefs.ErrFailedPrecondition},
	{gpuplugin.ErrUnknownState, errdefs.ErrFailedPrecondition},
	{gpuplugin.ErrUnavailable, errdefs.ErrUnavailable},
	{snapshot.ErrCorrupt, errdefs.ErrDataLoss},
	{snapshot.ErrNewerVersion, errdefs.ErrFailedPrecondition},
	{snapshot.ErrNoManifest, errdefs.ErrFailedPrecondition},
	{criu.ErrNotFound, errdefs.ErrFailedPrecondition},
	{criu.ErrTooOld, errdefs.ErrFailedPrecondition},
	{criu.ErrCheck, errdefs.ErrFailedPrecondition},
}

// status makes an error what a client understands; nil stays nil.
func status(err error) error {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return errgrpc.ToGRPC(fmt.Errorf("%w: %w", err, c.class))
		}
	}
	return errgrpc.ToGRPC(err)
}
