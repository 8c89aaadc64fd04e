// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"errors"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/depot"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// classes says which status an error of ours becomes; the first that fits.
func classes() []struct{ err, class error } {
	return []struct{ err, class error }{
		{gpuplugin.ErrLost, errdefs.ErrDataLoss},
		{gpuplugin.ErrUnsupported, errdefs.ErrFailedPrecondition},
		{gpuplugin.ErrIncompatible, errdefs.ErrFailedPrecondition},
		{gpuplugin.ErrUnknownState, errdefs.ErrFailedPrecondition},
		// Not errdefs.ErrUnavailable, which says that containerd is.
		{gpuplugin.ErrUnavailable, errdefs.ErrFailedPrecondition},
		{gpuplugin.ErrNotKept, errdefs.ErrFailedPrecondition},
		{gpuplugin.ErrDamaged, errdefs.ErrDataLoss},
		{checkpoint.ErrExists, errdefs.ErrAlreadyExists},
		{checkpoint.ErrNoSpace, errdefs.ErrResourceExhausted},
		{checkpoint.ErrEntered, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrStopped, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrArchitecture, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrNameless, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrLibrary, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrPlain, errdefs.ErrFailedPrecondition},
		{memfile.ErrKey, errdefs.ErrFailedPrecondition},
		{memfile.ErrKeyFile, errdefs.ErrFailedPrecondition},
		{checkpoint.ErrProcesses, errdefs.ErrFailedPrecondition},
		{snapshot.ErrCorrupt, errdefs.ErrDataLoss},
		{snapshot.ErrNewerVersion, errdefs.ErrFailedPrecondition},
		{snapshot.ErrNoManifest, errdefs.ErrFailedPrecondition},
		{depot.ErrName, errdefs.ErrInvalidArgument},
		{depot.ErrNotFound, errdefs.ErrFailedPrecondition},
		{depot.ErrUntrusted, errdefs.ErrFailedPrecondition},
		{depot.ErrArchive, errdefs.ErrDataLoss},
		{depot.ErrNoSpec, errdefs.ErrFailedPrecondition},
		{oci.ErrOther, errdefs.ErrFailedPrecondition},
		{criu.ErrNotFound, errdefs.ErrFailedPrecondition},
		{criu.ErrTooOld, errdefs.ErrFailedPrecondition},
		{criu.ErrCheck, errdefs.ErrFailedPrecondition},
		{unix.ENOSPC, errdefs.ErrResourceExhausted},
	}
}

// status makes an error what a client understands; nil stays nil. Only text and
// class cross the wire: of an error's tree the client would print every part
// again.
func status(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes() {
		if errors.Is(err, c.err) {
			return flat(err, c.class)
		}
	}
	return flat(err, errdefs.Resolve(err))
}

func flat(err, class error) error {
	text := plain(err.Error())
	if errors.Is(class, errdefs.ErrUnknown) || strings.HasSuffix(text, class.Error()) {
		return errgrpc.ToGRPC(&texted{text, class})
	}
	return errgrpc.ToGRPC(&texted{text + ": " + class.Error(), class})
}

// plain makes a text one line that a terminal shows as it is: the names of
// processes and files are the container's, and a manifest is anybody's.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
}

// texted is an error of a class with a text that is complete.
type texted struct {
	text  string
	class error
}

func (e *texted) Error() string { return e.text }

func (e *texted) Unwrap() error { return e.class }
