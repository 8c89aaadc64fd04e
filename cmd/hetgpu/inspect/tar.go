// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Limits of what is read of a tar. They bound the memory that is used for one;
// nothing is ever written.
const (
	maxEntries = 1 << 18
	// maxBytes needs 20 MB of digests.
	maxBytes = 16 << 40
	// maxWindow is what zstd's own command asks for at its highest levels.
	maxWindow = 128 << 20
	// maxTrees bounds the images of process trees, of which a snapshot has one.
	maxTrees = 16 << 20
)

func tarFile(ctx context.Context, name string, opts Options) (*Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := newReport(KindTar, name)
	if err := r.readTar(ctx, f, opts); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// folder is what was found below one directory of a tar. A snapshot may be at
// its top (containerd) or below "checkpoint" (the kubelet's), and beside a
// file system's changes.
type folder struct {
	manifest []byte
	files    []snapshot.File
	saved    saved
	others   []string
	problems []error
	parent   bool
	// stored are the files of a tar that is not packed, by their names.
	stored map[string]*io.SectionReader
}

// randomly can be read at any place: a tar that is not packed.
type randomly interface {
	io.ReaderAt
	io.Seeker
}

// readTar reads the one snapshot that is in a tar, packed or not.
func (r *Report) readTar(ctx context.Context, in io.ReadSeeker, opts Options) error {
	plain, release, err := unpacked(in)
	if err != nil {
		return err
	}
	defer release()
	folders, err := readFolders(ctx, plain, opts)
	if err != nil {
		return err
	}
	f, err := pick(folders)
	if err != nil {
		return err
	}
	return r.judge(ctx, f, opts)
}

// unpacked tells by the first bytes how the stream is packed. One that is not
// is returned as it is: it can be skipped in, which the reader of tars uses.
func unpacked(in io.ReadSeeker) (plain io.Reader, release func(), err error) {
	first := make([]byte, 4)
	if _, err := io.ReadFull(in, first); err != nil {
		return nil, nil, fmt.Errorf("not a tar: %w", err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bufio.NewReaderSize(in, 1<<20))
		return z, func() {}, err
	case bytes.Equal(first, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// readFolders reads a whole tar. Names are only compared: nothing of them ever
// becomes a path of this machine.
func readFolders(ctx context.Context, in io.Reader, opts Options) (map[string]*folder, error) {
	folders := map[string]*folder{}
	var total, trees int64
	raw, _ := in.(randomly) // nil for one that is packed
	t := tar.NewReader(in)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return folders, nil
		case err != nil:
			return nil, fmt.Errorf("not a readable tar: entry %d: %w", n, err)
		case n == maxEntries:
			return nil, fmt.Errorf("more than %d entries in the tar", maxEntries)
		case h.Size > maxBytes-total:
			return nil, fmt.Errorf("more than %d bytes in the tar", int64(maxBytes))
		}
		total += h.Size
		if h.Typeflag == tar.TypeDir {
			continue
		}
		dir, name := path.Split(path.Clean("/" + h.Name))
		if name == treeName {
			if trees += h.Size; trees > maxTrees {
				return nil, fmt.Errorf("more than %d bytes of process trees in the tar", maxTrees)
			}
		}
		f := folders[dir]
		if f == nil {
			f = &folder{stored: map[string]*io.SectionReader{}}
			folders[dir] = f
		}
		start := position(raw)
		if err := f.read(ctx, h, name, t, opts); err != nil {
			return nil, err
		}
		// One with holes has fewer bytes in the tar.
		if raw != nil && position(raw)-start == h.Size {
			f.stored[name] = io.NewSectionReader(raw, start, h.Size)
		}
	}
}

// position is where a tar is being read; -1 if that is not known.
func position(raw randomly) int64 {
	if raw == nil {
		return -1
	}
	at, err := raw.Seek(0, io.SeekCurrent)
	if err != nil {
		return -1
	}
	return at
}

// read reads one entry. It fails only where the tar can't be read on.
func (f *folder) read(ctx context.Context, h *tar.Header, name string, in io.Reader, opts Options) error {
	isManifest := name == snapshot.ManifestName
	switch {
	case name == "parent":
		f.parent = true
		return nil
	case !isManifest && !snapshot.Belongs(name):
		f.others = append(f.others, name)
		return nil
	case h.Typeflag != tar.TypeReg:
		f.problems = append(f.problems, fmt.Errorf("%w: %s is no regular file", snapshot.ErrCorrupt, name))
		return nil
	case isManifest && f.manifest != nil:
		f.problems = append(f.problems, fmt.Errorf("%w: %s is there twice", snapshot.ErrCorrupt, name))
		return nil
	case isManifest:
		data, err := io.ReadAll(io.LimitReader(in, snapshot.MaxManifestSize+1))
		f.manifest = data
		return err
	}
	in, err := f.readSaved(name, h.Size, in)
	if err != nil {
		return err
	}
	if opts.NoVerify {
		f.files = append(f.files, snapshot.File{Name: name, Size: h.Size})
		return nil
	}
	file, err := snapshot.ReadFile(ctx, name, in)
	if err != nil {
		return err
	}
	f.files = append(f.files, file)
	return nil
}

// readSaved decodes an image that is about processes, and returns a reader
// from which the file can be read once more. It fails only where read does.
func (f *folder) readSaved(name string, size int64, in io.Reader) (io.Reader, error) {
	switch {
	case !isSaved(name):
		return in, nil
	case size > maxImage:
		f.saved.add(name, nil, fmt.Errorf("it has %d bytes, more than %d", size, maxImage))
		return in, nil
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.saved.add(name, data, nil)
	return bytes.NewReader(data), nil
}

// has tells whether a file of that name was found.
func (f *folder) has(name string) bool {
	return slices.ContainsFunc(f.files, func(file snapshot.File) bool { return file.Name == name })
}

// pick returns the folder that holds the snapshot.
func pick(folders map[string]*folder) (*folder, error) {
	var found []*folder
	for _, is := range []func(*folder) bool{
		func(f *folder) bool { return f.manifest != nil },
		func(f *folder) bool { return f.has(inventoryName) },
	} {
		for _, f := range folders {
			if is(f) {
				found = append(found, f)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return nil, fmt.Errorf("%d snapshots in one tar", len(found))
	}
	return nil, fmt.Errorf("%w: neither %s nor %s in the tar", ErrNoSnapshot, snapshot.ManifestName, inventoryName)
}

// judge compares what was found with the manifest, if there is one. It fails only if
// the context ended.
func (r *Report) judge(ctx context.Context, f *folder, opts Options) error {
	seen := make(map[string]bool, len(f.files))
	for _, file := range f.files {
		r.Content.count(file.Size)
		// With a manifest the comparison finds it.
		if f.manifest == nil && seen[file.Name] {
			r.problem(fmt.Errorf("%w: %s is there twice", snapshot.ErrCorrupt, file.Name))
		}
		seen[file.Name] = true
	}
	r.Content.Others = append(r.Content.Others, f.others...)
	for _, err := range f.problems {
		r.problem(err)
	}
	var err error
	if f.manifest != nil {
		err = r.compare(ctx, f, opts)
	}
	r.setProcesses(&f.saved)
	return err
}

func (r *Report) compare(ctx context.Context, f *folder, opts Options) error {
	m, err := snapshot.Decode(f.manifest)
	if err != nil {
		r.problem(fmt.Errorf("%s: %w", snapshot.ManifestName, err))
		return nil
	}
	key := r.setManifest(m, opts)
	if f.parent != m.Options.Incremental {
		r.problem(fmt.Errorf("%w: incremental is %t in the manifest, and there is a parent: %t", snapshot.ErrCorrupt, m.Options.Incremental, f.parent))
	}
	if err := m.Compare(f.files); err != nil {
		r.problem(err)
	}
	switch {
	case opts.NoVerify:
		r.Digests = DigestsNotRead
	case len(r.Problems) > 0:
		r.Digests = DigestsDiffer
	case m.Memory != nil:
		return r.verifyMemory(ctx, f, key)
	default:
		r.Digests = DigestsMatch
	}
	return nil
}

// verifyMemory compares device memory with its index. It fails only if the context
// ended.
func (r *Report) verifyMemory(ctx context.Context, f *folder, key *memfile.Key) error {
	err := f.verifyMemory(ctx, key)
	switch {
	case err == nil:
		r.Digests = DigestsMatch
	case errors.Is(err, errPacked):
		r.Digests = DigestsPartly
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		r.Digests = DigestsDiffer
		r.problem(fmt.Errorf("%w: %w", snapshot.ErrCorrupt, err))
	}
	return nil
}

// errPacked means that there is more than what can be read at any place.
var errPacked = errors.New("the tar is packed, or other snapshots have a part of it")

func (f *folder) verifyMemory(ctx context.Context, key *memfile.Key) error {
	index := f.stored[memfile.IndexName]
	if index == nil {
		return errPacked
	}
	if index.Size() > memfile.MaxIndexSize {
		return fmt.Errorf("%w: %s: more than %d bytes", memfile.ErrDamaged, memfile.IndexName, memfile.MaxIndexSize)
	}
	data := make([]byte, index.Size())
	if _, err := io.ReadFull(index, data); err != nil {
		return err
	}
	x, err := memfile.Decode(data)
	if err == nil && key != nil {
		err = x.Unlock(key)
	}
	if err != nil {
		return err
	}
	files := make([]io.ReaderAt, len(x.Files))
	for i, want := range x.Files {
		stored := f.stored[want.Path()]
		switch {
		case stored == nil:
			return errPacked
		case uint64(stored.Size()) != want.Size:
			return fmt.Errorf("%w: %s has %d bytes, and the index says %d", memfile.ErrDamaged, want.Path(), stored.Size(), want.Size)
		}
		files[i] = stored
	}
	return x.Verify(ctx, files, key)
}
