// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/durable"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Drain makes an ordinary snapshot of one whose device memory is kept. save
// writes the memory to files named hetgpu-mem*.img in the directory, on disk, of
// which the manifest knows nothing until it is replaced: whenever this ends, the
// snapshot is one or the other.
func (s *Snapshot) Drain(ctx context.Context, save func(context.Context) (Memory, error)) error {
	if s.Manifest.Kept() == nil {
		return errors.New("its device memory is in files already, or it has none")
	}
	// Of a drain that was cut short.
	if err := s.removeMemory(); err != nil {
		return err
	}
	memory, err := save(ctx)
	if err == nil {
		err = s.add(ctx, memory)
	}
	if err != nil {
		return errors.Join(err, s.removeMemory())
	}
	if err := durable.SyncDir(s.Dir); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(s.Dir, ManifestName), err)
	}
	return nil
}

// add replaces the manifest by one that has the files of device memory.
func (s *Snapshot) add(ctx context.Context, memory Memory) error {
	m := *s.Manifest
	m.Memory = &memory
	names, err := s.memoryFiles()
	if err != nil {
		return err
	}
	f := &Follower{dir: s.Dir, slots: make(slots, processors())}
	m.Files = append([]File{}, m.Files...)
	for _, name := range names {
		file, err := f.seal(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(s.Dir, name), err)
		}
		m.Files = append(m.Files, file)
	}
	// What will be read again has to fit together.
	m.Version = m.version()
	if err := m.validate(); err != nil {
		return err
	}
	index, err := memfile.ReadIndex(s.Dir)
	if err == nil {
		err = m.compareMemory(index)
	}
	if err != nil {
		return err
	}
	if err := putManifest(ctx, s.Dir, &m); err != nil {
		return err
	}
	s.Manifest = &m
	return nil
}

// memoryFiles lists the files of device memory that there are.
func (s *Snapshot) memoryFiles() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	var names []string
	for _, e := range entries {
		if memfile.IsName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (s *Snapshot) removeMemory() error {
	names, err := s.memoryFiles()
	errs := []error{err}
	for _, name := range names {
		if err := os.Remove(filepath.Join(s.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
