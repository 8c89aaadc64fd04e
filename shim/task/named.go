// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/depot"
)

// A container can name a snapshot that is to be restored in the place of its
// command's start (annotation io.hetgpu.restore). It is the way back where
// containerd's client has none: its CRI has no restore since 2.4.

// unpackedName is where an archive is unpacked, in the container's work
// directory: on the disk where containerd has its own data, and removed by
// containerd with the container, whatever becomes of the shim.
const unpackedName = "hetgpu-restore"

// named is the snapshot that a container names.
type named struct {
	*depot.Saved
	unpacked string
}

// findNamed makes the request one for a restore, if the container names a
// snapshot. On error nothing is left of what was unpacked.
func (s *service) findNamed(ctx context.Context, c *container) (err error) {
	name := c.policy.Restore
	if name == "" {
		return nil
	}
	if c.request.Checkpoint != "" {
		return fmt.Errorf("annotation %s is %q, and containerd's client restores a checkpoint of its own: %w", oci.AnnotationRestore, name, errdefs.ErrInvalidArgument)
	}
	if s.configErr != nil {
		return s.configErr
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not done within %s", c.timeout))
	defer cancel()
	n := &named{unpacked: filepath.Join(c.bundle, "work", unpackedName)}
	if n.Saved, err = depot.Open(ctx, s.config.Restore.Dirs, name, n.unpacked); err != nil {
		return errors.Join(fmt.Errorf("restore %s: %w", name, err), os.RemoveAll(n.unpacked))
	}
	c.named, c.request.Checkpoint = n, n.Dir
	return nil
}

// remove removes what was unpacked. A snapshot's own directory stays.
func (n *named) remove(ctx context.Context) {
	if n == nil {
		return
	}
	if err := os.RemoveAll(n.unpacked); err != nil {
		log.G(ctx).WithError(err).WithField(logfields.Path, n.unpacked).Warn("the unpacked snapshot could not be removed")
	}
}

// fits tells whether the snapshot is of a container of the same make.
func (n *named) fits(spec *oci.Spec) error {
	saved, err := n.Spec()
	if err != nil {
		return err
	}
	return spec.Takes(saved)
}

// layer is the file with what the saved container had written to its root; "" for
// none.
func (c *container) layer() (string, error) {
	if c.named == nil || c.named.Layer == "" {
		return "", nil
	}
	if len(c.request.Rootfs) == 0 {
		return "", fmt.Errorf("the snapshot has changes of the root file system, and the container's root is somebody's directory: %w", errdefs.ErrFailedPrecondition)
	}
	return c.named.Layer, nil
}
