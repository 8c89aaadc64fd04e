// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// previous is the snapshot before, as it was found.
type previous struct {
	dir  string
	info os.FileInfo
	// manifest is nil where CRIU alone leaves memory, which takes any directory.
	manifest *snapshot.Manifest
}

// parent is the snapshot in which device memory is left that has not changed, if
// it has some.
func (s *saving) parent() string {
	if s.previous == nil {
		return ""
	}
	if _, err := os.Lstat(filepath.Join(s.previous.dir, memfile.IndexName)); err != nil {
		return ""
	}
	return s.previous.dir
}

// findParent looks where the link will lead.
func (s *saving) findParent() error {
	relative := cmp.Or(s.MemoryParent, s.Parent)
	if relative == "" {
		return nil
	}
	dir, err := snapshot.Before(s.Dir, relative)
	if err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	s.previous = &previous{dir: dir, info: info}
	return nil
}

// checkParent fails if the snapshot before is none, or of anything else than this
// container on these devices. What a block is compared by is its digest, so
// another one would cost nothing but the time; it is no snapshot that was meant.
func (s *saving) checkParent() error {
	if err := s.findParent(); err != nil || s.MemoryParent == "" {
		return err
	}
	dir := s.previous.dir
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
	if _, err := whole(before); err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	s.previous.manifest = m
	return nil
}

// whole fails unless what a snapshot has left in those before is there: the directory
// before, where CRIU may have left pages, and all files with its device memory, with their
// sizes. So nothing is started, or stopped, for memory that would be missed at the end.
// Their contents are verified when they are read. The index is nil if there is none.
func whole(s *snapshot.Snapshot) (*memfile.Index, error) {
	index, err := s.ReadMemory()
	if err != nil {
		return nil, err
	}
	if err := leadsOn(s, index); err != nil || index == nil {
		return nil, err
	}
	files, err := index.OpenData(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", snapshot.ErrCorrupt, s.Dir, err)
	}
	memfile.CloseAll(files)
	return index, nil
}

// leadsOn fails if there is no snapshot before, and something may be left in it.
func leadsOn(s *snapshot.Snapshot, index *memfile.Index) error {
	o := s.Manifest.Options
	left := index != nil && slices.ContainsFunc(index.Files, func(f memfile.DataFile) bool { return f.Generation > 0 })
	if !o.Incremental || o.WholePages && !left {
		return nil
	}
	link := filepath.Join(s.Dir, memfile.ParentName)
	if info, err := os.Stat(link); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: it has only what had changed since the snapshot before, and %s leads to none: keep the two side by side, as they were (%w)",
			snapshot.ErrCorrupt, link, cmp.Or(err, error(unix.ENOTDIR)))
	}
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
	if s.previous == nil {
		return nil
	}
	if s.Parent == "" {
		if err := os.Symlink(s.MemoryParent, filepath.Join(s.Dir, memfile.ParentName)); err != nil {
			return err
		}
	}
	err := s.previous.same(filepath.Join(s.Dir, memfile.ParentName))
	if err == nil {
		err = s.leftThere()
	}
	return s.previous.changed(err)
}

// leftThere fails unless all files of device memory are there that a restore will look for.
func (s *saving) leftThere() error {
	index, err := memfile.ReadIndex(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	files, err := index.OpenData(s.Dir)
	memfile.CloseAll(files)
	return err
}

// stillThere looks at the snapshot before once more, before the container ends.
func (s *saving) stillThere() error {
	if s.previous == nil {
		return nil
	}
	dir, err := snapshot.Before(s.Dir, cmp.Or(s.MemoryParent, s.Parent))
	if err == nil {
		err = s.previous.same(dir)
	}
	return s.previous.changed(err)
}

// same fails unless a path leads to the snapshot, and that is as it was: it may have been
// moved or removed while the container stood still.
func (p *previous) same(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, p.info):
		return fmt.Errorf("%s leads to another directory", path)
	case p.manifest == nil:
		return nil
	}
	now, err := snapshot.Open(path)
	if err == nil {
		_, err = whole(now)
	}
	if err == nil && !now.Manifest.Created.Equal(p.manifest.Created) {
		err = errors.New("another snapshot is there")
	}
	return err
}

func (p *previous) changed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s is not what it was when the checkpoint began, and this one would need it: make one that is complete, or again, and leave that where it is: %w", ErrParent, p.dir, err)
}
