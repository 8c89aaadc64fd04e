// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package depot finds the snapshots that containers name, in the directories
// that the host's configuration has, and unpacks those that are archives: of
// the kubelet, or of a snapshot's directory.
//
// A name comes from whoever may run a container, and the directories are root's.
// So a name is a plain file name, and what it stands for is taken only if nobody
// but root can have put it there, or can change it.
//
// It must not know of annotations or of containerd. It holds no lock.
package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

var (
	// ErrName means that a name can't be one of a snapshot.
	ErrName = errors.New("not the name of a snapshot")
	// ErrNotFound means that no directory has a snapshot of the name.
	ErrNotFound = errors.New("no such snapshot")
	// ErrUntrusted means that somebody other than root may have put something
	// there, or can change it.
	ErrUntrusted = errors.New("not root's alone")
	// ErrArchive means that an archive can't be unpacked.
	ErrArchive = errors.New("the archive is damaged")
	// ErrNoSpec means that nothing tells of what container the snapshot is.
	ErrNoSpec = errors.New("the snapshot does not say how its container was made")
)

// plainName is what the kubelet's archives and people's snapshots are called. It
// has no slash and begins with no dot.
var plainName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,254}$`)

// Saved is a snapshot that can be restored.
type Saved struct {
	// Dir is the snapshot's directory.
	Dir string
	// Layer is the container's writable layer, a tar as in an image, packed or
	// not; "" for none.
	Layer string
	spec  func() ([]byte, error)
}

// Spec returns the OCI spec with which the saved container was made.
func (s *Saved) Spec() ([]byte, error) { return s.spec() }

// Open finds the snapshot of a name in the first of the directories that has
// it. An archive is unpacked into a directory that Open makes, which is the
// caller's to remove, also on error.
func Open(ctx context.Context, dirs []string, name, unpackTo string) (*Saved, error) {
	path, err := find(dirs, name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the snapshot: %w", err)
	}
	if err := rootsAlone(path, info); err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return fromDirectory(path)
	case info.Mode().IsRegular():
		return unpack(ctx, f, info.Size(), unpackTo)
	}
	return nil, fmt.Errorf("%w: %s is neither a directory nor a file", ErrUntrusted, path)
}

// find returns the path of the snapshot.
func find(dirs []string, name string) (string, error) {
	if !plainName.MatchString(name) {
		return "", fmt.Errorf("%w: %q, want letters, digits and ._:@+- after a letter or a digit, at most 255", ErrName, name)
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%w: %s is no directory", ErrUntrusted, dir)
		}
		if err == nil {
			err = rootsAlone(dir, info)
		}
		if err != nil {
			return "", fmt.Errorf("look for the snapshot: %w", err)
		}
		path := filepath.Join(dir, name)
		switch info, err := os.Lstat(path); {
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			return "", fmt.Errorf("%w: %s is a link", ErrUntrusted, path)
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("look for the snapshot: %w", err)
		}
	}
	return "", fmt.Errorf("%w: %s in %s", ErrNotFound, name, strings.Join(dirs, ", "))
}

// rootsAlone fails if somebody else owns it, or may write to it.
func rootsAlone(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || st.Uid != 0:
		return fmt.Errorf("%w: %s does not belong to root", ErrUntrusted, path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others than root may write to %s (mode %#o)", ErrUntrusted, path, info.Mode().Perm())
	}
	return nil
}

// What a kubelet's archive has beside the snapshot (containerd 2.4,
// internal/cri/server/container_checkpoint_linux.go; the names are those of
// checkpointctl's library).
const (
	imagesDir = "checkpoint"
	specName  = "spec.dump"
	layerName = "rootfs-diff.tar"
)

// fromDirectory is what lies in a directory: a snapshot, or what was in a
// kubelet's archive.
func fromDirectory(dir string) (*Saved, error) {
	s, layer := &Saved{Dir: filepath.Join(dir, imagesDir)}, filepath.Join(dir, layerName)
	switch info, err := os.Lstat(s.Dir); {
	case errors.Is(err, fs.ErrNotExist):
		s.Dir, layer = dir, filepath.Join(dir, snapshot.LayerName)
		s.spec = func() ([]byte, error) { return recordedSpec(dir) }
	case err != nil:
		return nil, fmt.Errorf("open the snapshot: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s is no directory", ErrUntrusted, s.Dir)
	default:
		if err := rootsAlone(s.Dir, info); err != nil {
			return nil, err
		}
		s.spec = func() ([]byte, error) { return dumpedSpec(dir) }
	}
	if _, err := os.Lstat(layer); err == nil {
		s.Layer = layer
	}
	return s, nil
}

// mostSpec is the largest spec, or container's record, that is read.
const mostSpec = 4 << 20

// recordedSpec reads the spec from the container's record (cmd/hetgpu/record).
func recordedSpec(dir string) ([]byte, error) {
	data, err := snapshot.ReadSmall(dir, snapshot.RecordName, mostSpec)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it has no %s; make it by hetgpu checkpoint or by the kubelet", ErrNoSpec, snapshot.RecordName)
	}
	if err != nil {
		return nil, err
	}
	var record struct {
		Version int `json:"version"`
		Spec    struct {
			JSON json.RawMessage `json:"json"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("%s: %w", snapshot.RecordName, err)
	}
	if record.Version != 1 || record.Spec.JSON == nil {
		return nil, fmt.Errorf("%w: its %s has version %d, and this program reads 1", ErrNoSpec, snapshot.RecordName, record.Version)
	}
	return record.Spec.JSON, nil
}

// dumpedSpec reads the spec that the kubelet's archive has.
func dumpedSpec(dir string) ([]byte, error) {
	data, err := snapshot.ReadSmall(dir, specName, mostSpec)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the archive has no %s", ErrNoSpec, specName)
	}
	return data, err
}
