// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// applyLayer gives the container's root what the saved one had written to its own:
// a layer as in an image, packed or not.
func applyLayer(ctx context.Context, s *specs.State) (err error) {
	name := s.Annotations[oci.AnnotationLayer]
	if name == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the writable layer: %w", err)
		}
	}()
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	layer, err := compression.DecompressStream(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layer.Close()) }()
	// Links of the root are followed in it and never out of it.
	if _, err := archive.Apply(ctx, filepath.Join(s.Bundle, "rootfs"), layer); err != nil {
		return err
	}
	// What follows the tar has to be read, or the unpacking would not end well.
	_, err = io.Copy(io.Discard, layer)
	return err
}
