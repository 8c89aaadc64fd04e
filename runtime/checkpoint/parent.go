// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// parent is the snapshot in which device memory is left that has not changed, if
// it has some.
func (s *saving) parent() string {
	relative := cmp.Or(s.MemoryParent, s.Parent)
	if relative == "" {
		return ""
	}
	dir := filepath.Join(s.Dir, relative)
	if _, err := os.Lstat(filepath.Join(dir, memfile.IndexName)); err != nil {
		return ""
	}
	return dir
}

// checkParent fails if the snapshot before is none, or of anything else than this
// container on these devices. What a block is compared by is its digest, so
// another one would cost nothing but the time; it is no snapshot that was meant.
func (s *saving) checkParent() error {
	if s.MemoryParent == "" {
		return nil
	}
	dir := filepath.Join(s.Dir, s.MemoryParent)
	before, err := snapshot.Open(dir)
	if err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	m := before.Manifest
	was, is := uuids(m.Devices), uuids(s.Manifest.Devices)
	switch {
	case m.Container.ID != s.Manifest.Container.ID || m.Container.Namespace != s.Manifest.Container.Namespace:
		return fmt.Errorf("%w: %s is of container %s (namespace %s)", ErrParent, dir, m.Container.ID, m.Container.Namespace)
	case !slices.Equal(was, is):
		return fmt.Errorf("%w: %s is of the devices %s, and the container has %s", ErrParent, dir, strings.Join(was, ", "), strings.Join(is, ", "))
	case (m.Memory == nil || m.Kept() != nil) && s.Parent == "":
		return fmt.Errorf("%w: %s has no device memory in files of its own (engine %s), and the kernel does not track which other memory is written: nothing could be left there",
			ErrParent, dir, m.Engine)
	}
	if err := present(before); err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	return nil
}

// present fails unless all files with a snapshot's device memory are there, those
// of the snapshots before among them, with their sizes: nothing is started, or
// stopped, for memory that would be missed at the end. Their contents are verified
// when they are read.
func present(s *snapshot.Snapshot) error {
	index, err := s.ReadMemory()
	if err != nil || index == nil {
		return err
	}
	files, err := index.OpenData(s.Dir)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", snapshot.ErrCorrupt, s.Dir, err)
	}
	memfile.CloseAll(files)
	return nil
}

func uuids(devices []gpuplugin.Device) []string {
	names := make([]string, 0, len(devices))
	for _, d := range devices {
		names = append(names, d.UUID)
	}
	slices.Sort(names)
	return names
}

// linkParent makes the link by which a restore finds the snapshot before, unless
// CRIU has made it. CRIU has to be done: it would look there for memory too.
func (s *saving) linkParent() error {
	if s.MemoryParent == "" || s.Parent != "" {
		return nil
	}
	return os.Symlink(s.MemoryParent, filepath.Join(s.Dir, memfile.ParentName))
}
