// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// descriptorsName is runc's: what the container's standard streams were.
const descriptorsName = "descriptors.json"

// Files of a snapshot that are about the container and not about its processes.
const (
	// LayerName is the container's writable layer, a tar as in an image.
	LayerName = "hetgpu-rw.tar"
	// RecordName is the container's record (cmd/hetgpu/record).
	RecordName = "hetgpu-container.json"
)

// parentName is a link that CRIU makes to the snapshot before, if the memory
// images hold only what changed since.
const parentName = "parent"

// belongs tells whether a restore reads a file of that name: CRIU, runc or we
// ourselves. Logs and statistics, and what a user puts beside, do not belong:
// nothing reads them, and they have no digest.
func belongs(name string) bool {
	return name == descriptorsName || strings.HasSuffix(name, ".img") || strings.HasPrefix(name, "hetgpu-")
}

// largeFile is where a file counts as pages whatever its name is (ghost files,
// the contents of a tmpfs).
const largeFile = 16 << 20

// IsPages tells of the files that hold contents (of memory, of devices) rather
// than structure, and of all that are large. Verifying them takes so long that
// it is done while CRIU restores. The index of device memory is structure: what
// it says is needed before.
func IsPages(f File) bool {
	return f.Name != memfile.IndexName && (followable(f.Name) || strings.HasPrefix(f.Name, "hetgpu-") || f.Size > largeFile)
}

// IsMetadata tells of the other files: the structure of what is restored,
// verified before CRIU reads it.
func IsMetadata(f File) bool { return !IsPages(f) }

// followable tells of the files that hold the bulk of a dump and that CRIU
// only appends to: memory pages, spliced from pipes. (Of its other images it
// goes back to fill in a header.)
func followable(name string) bool {
	return strings.HasPrefix(name, "pages-") && strings.HasSuffix(name, ".img")
}

// FreeSpace is the number of bytes that can still be written where dir is, or
// will be made.
func FreeSpace(dir string) (uint64, error) {
	existing, _, err := nearest(dir)
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(existing, &st); err != nil {
		return 0, fmt.Errorf("free space: statfs %s: %w", existing, err)
	}
	size := uint64(st.Bsize)
	if st.Bavail > math.MaxUint64/max(size, 1) {
		return math.MaxUint64, nil
	}
	return st.Bavail * size, nil
}

// nearest returns the closest directory to dir, itself or above, that exists,
// and those that are missing, deepest first.
func nearest(dir string) (existing string, missing []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	for {
		_, err := os.Lstat(dir)
		if err == nil {
			return dir, missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", nil, err
		}
		missing = append(missing, dir)
		dir = filepath.Dir(dir)
	}
}

// Listing is what a directory held at one time.
type Listing struct {
	dir     string
	names   map[string]bool
	missing []string
}

// List notes what is in dir, which may be missing, for [Remove].
func List(dir string) (*Listing, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshot directory: %w", err)
	}
	_, missing, err := nearest(dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshot directory: %w", err)
	}
	l := &Listing{dir: dir, names: map[string]bool{}, missing: missing}
	if len(missing) > 0 {
		return l, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the snapshot directory: %w", err)
	}
	for _, e := range entries {
		l.names[e.Name()] = true
	}
	return l, nil
}

// Make makes the directory if it was missing. One that was there and has been
// removed since is its owner's, who wants no snapshot any more.
func (l *Listing) Make() error {
	if len(l.missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("make the snapshot directory: %w", err)
	}
	return nil
}

// Empty tells whether there was nothing in the directory.
func (l *Listing) Empty() bool { return len(l.names) == 0 }

// HasSnapshot tells whether there was a snapshot, or part of one.
func (l *Listing) HasSnapshot() bool {
	for name := range l.names {
		if name == ManifestName || Belongs(name) {
			return true
		}
	}
	return false
}

// Remove removes what was not there when the listing was made: files, links
// (never what they point to), the directory itself and its parents, if they
// were missing then and hold nothing else now. It goes on after an error.
// What was there and has been overwritten since stays as it is.
func Remove(before *Listing) error {
	entries, err := os.ReadDir(before.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return removeEmpty(before.missing)
		}
		return fmt.Errorf("remove the failed snapshot: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if before.names[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(before.dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("remove the failed snapshot: %w", err))
		}
	}
	return errors.Join(append(errs, removeEmpty(before.missing))...)
}

// removeEmpty removes directories, deepest first, up to the first that
// somebody else uses too.
func removeEmpty(dirs []string) error {
	for _, dir := range dirs {
		err := os.Remove(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY):
			return nil
		default:
			return fmt.Errorf("remove the failed snapshot: %w", err)
		}
	}
	return nil
}
