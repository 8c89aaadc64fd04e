// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// CheckOnce is [Check], once for each program and boot: that it succeeded is
// remembered in stateDir, which has to be on a file system that a boot clears.
// A failure is not remembered, since it may be mended meanwhile.
func CheckOnce(ctx context.Context, path, stateDir string) error {
	return once(ctx, path, stateDir, "check", func() error { return Check(ctx, path) })
}

// HasFeatureOnce tells whether CRIU and the kernel have what
// `criu check --feature` calls so. Like [CheckOnce] it remembers a yes.
func HasFeatureOnce(ctx context.Context, path, stateDir, feature string) bool {
	return once(ctx, path, stateDir, "feature-"+feature, func() error { return CheckFeature(ctx, path, feature) }) == nil
}

// once runs probe unless it succeeded before. Not being able to remember it is
// no failure.
func once(ctx context.Context, path, stateDir, what string, probe func() error) error {
	mark, err := markName(path, stateDir, what)
	if err != nil {
		return fmt.Errorf("%w: %w; %s", ErrNotFound, err, Advice)
	}
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := probe(); err != nil {
		return err
	}
	err = os.MkdirAll(stateDir, 0o700)
	if err == nil {
		err = os.WriteFile(mark, nil, 0o600)
	}
	if err != nil {
		log.G(ctx).WithError(err).WithField(logfields.Path, mark).Warn("that CRIU can be used could not be remembered")
	}
	return nil
}

// markName is a name that changes with the program.
func markName(path, stateDir, what string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", path, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(stateDir, fmt.Sprintf("criu-%s-%x", what, id[:8])), nil
}
