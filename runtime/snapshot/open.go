// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Snapshot is a snapshot directory whose manifest has been read. Its files are
// what the manifest says once [Snapshot.Verify] has returned nil.
type Snapshot struct {
	// Dir is the directory.
	Dir      string
	Manifest *Manifest
	// Extras are the names of what is there and does not belong to the
	// snapshot. No restore reads it.
	Extras []string
	// Key is that of the device memory, for whoever sets it: what is read of it has
	// to be what was encrypted then, and not only what its digests say.
	Key *memfile.Key
}

// Open reads the manifest of a directory and compares the directory with it:
// every file is there, is a regular file and has its size, and there is no
// image besides. It reads no other file; [Snapshot.Verify] does.
//
// Its error is [ErrNoManifest], [ErrNewerVersion], [ErrCorrupt], or one of the
// file system.
func Open(dir string) (*Snapshot, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Dir: dir, Manifest: m}
	if err := s.compare(); err != nil {
		return nil, err
	}
	return s, nil
}

// ReadManifest reads the manifest of a directory alone. Its errors are those
// of [Open].
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestName)
	data, err := readManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A directory that can't be read is no snapshot without a manifest.
		if _, err := os.ReadDir(dir); err != nil {
			return nil, fmt.Errorf("open the snapshot: %w", err)
		}
		return nil, fmt.Errorf("%s: %w", dir, ErrNoManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	m, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func readManifest(dir string) (_ []byte, err error) {
	f, _, err := openRegular(dir, ManifestName)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// One byte more than is allowed, which Decode then refuses.
	return io.ReadAll(io.LimitReader(f, MaxManifestSize+1))
}

// ReadSmall reads one file of a snapshot, which has to be a regular file of at
// most so many bytes. It compares nothing with the manifest.
func ReadSmall(dir, name string, most int64) (_ []byte, err error) {
	f, _, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Join(dir, name), most)
	}
	return data, err
}

// compare checks names, kinds and sizes.
func (s *Snapshot) compare() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("open the snapshot: %w", err)
	}
	there := make(map[string]fs.DirEntry, len(entries))
	for _, e := range entries {
		there[e.Name()] = e
	}
	for _, f := range s.Manifest.Files {
		e := there[f.Name]
		delete(there, f.Name)
		if err := s.compareFile(f, e); err != nil {
			return err
		}
	}
	delete(there, ManifestName)
	_, parent := there[parentName]
	delete(there, parentName)
	if parent != s.Manifest.Options.Incremental {
		return fmt.Errorf("%w: %s: incremental is %t in the manifest, and there is a parent: %t", ErrCorrupt, s.Dir, s.Manifest.Options.Incremental, parent)
	}
	for name := range there {
		// While memory is kept its files are those of a drain that was cut short.
		if belongs(name) && (s.Manifest.Kept() == nil || !memfile.IsName(name)) {
			return fmt.Errorf("%w: %s is not in the manifest", ErrCorrupt, filepath.Join(s.Dir, name))
		}
		s.Extras = append(s.Extras, name)
	}
	slices.Sort(s.Extras)
	return nil
}

func (s *Snapshot) compareFile(f File, e fs.DirEntry) error {
	path := filepath.Join(s.Dir, f.Name)
	if e == nil {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, path)
	}
	info, err := e.Info()
	switch {
	case err != nil:
		return fmt.Errorf("open the snapshot: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %w", ErrCorrupt, notRegular(path, info.Mode()))
	case info.Size() != f.Size:
		return fmt.Errorf("%w: %s has %d bytes, and the manifest says %d", ErrCorrupt, path, info.Size(), f.Size)
	}
	return nil
}

// Verify reads the files that which selects ([IsMetadata], [IsPages], nil for
// all) and compares their digests. The first difference ends it, and its
// error is [ErrCorrupt]. Device memory is read only if all is: whoever loads it
// verifies it ([Snapshot.ReadMemory]).
func (s *Snapshot) Verify(ctx context.Context, which func(File) bool) error {
	slots := make(slots, processors())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, f := range s.Manifest.Files {
		if f.CoveredBy == "" && (which == nil || which(f)) {
			g.Go(func() error { return s.verify(ctx, f, slots) })
		}
	}
	if which == nil {
		g.Go(func() error { return s.verifyMemory(ctx) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("verify the snapshot: %w", err)
	}
	return nil
}

func (s *Snapshot) verify(ctx context.Context, want File, slots slots) (err error) {
	path := filepath.Join(s.Dir, want.Name)
	f, size, err := openRegular(s.Dir, want.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size != want.Size {
		return fmt.Errorf("%w: %s has %d bytes, and the manifest says %d", ErrCorrupt, path, size, want.Size)
	}
	return eachChunk(ctx, f, size, slots,
		func(int) bool { return true },
		func(i int, digest string) error {
			if digest != want.Digests[i] {
				return fmt.Errorf("%w: %s", ErrCorrupt, mismatch(path, i, want.Digests[i], digest))
			}
			return nil
		})
}

func mismatch(path string, i int, want, got string) string {
	return fmt.Sprintf("%s: chunk %d (from byte %d) has digest %s, and the manifest says %s", path, i, int64(i)*ChunkSize, got, want)
}
