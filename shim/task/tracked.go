// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// With a parent CRIU dumps the pages that were written since its last dump with a
// parent, which begins the count anew (runc 1.5, criu_linux.go: TrackMem), and takes
// all others from whatever parent it is given. So that has to be the snapshot of that
// last dump; before the first one any will do. trackedName has, in the bundle, the
// digest of its manifest, or nothing while it isn't complete.
const trackedName = "criu-parent"

// leavesIn tells whether CRIU can leave pages of the container in a snapshot before,
// which is told by its path from the new one's directory.
func (c *container) leavesIn(ctx context.Context, dir, before string) bool {
	last, err := os.ReadFile(filepath.Join(c.bundle, trackedName))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	if err == nil {
		var id, parent string
		if parent, err = snapshot.Before(dir, before); err == nil {
			id, err = manifestDigest(parent)
		}
		if err == nil && id == string(last) {
			return true
		}
	}
	log.G(ctx).WithError(err).WithField(logfields.ID, c.id).WithField(logfields.Path, before).
		Warn("the last incremental dump was into another snapshot, or failed: all memory of the processors is dumped")
	return false
}

// tracked notes that a dump with a parent is complete, in dir, or with "" that one
// begins.
func (c *container) tracked(dir string) (err error) {
	id := ""
	if dir != "" {
		if id, err = manifestDigest(dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(c.bundle, trackedName), []byte(id), 0o600)
}

func manifestDigest(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, snapshot.ManifestName))
	if err != nil {
		return "", err
	}
	return digest.FromBytes(text).String(), nil
}
