// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// maxEntries is far more than any snapshot has.
	maxEntries = 1 << 18
	// copyBuffer is for contents of gigabytes.
	copyBuffer = 1 << 20
)

// unpack writes what a restore reads of an archive into a directory that it
// makes, flat, as files of root's. Nothing else of the archive becomes a path.
//
// An archive can't unpack to more than its own size: it is not compressed, and
// one with holes is refused.
func unpack(ctx context.Context, f *os.File, size int64, dir string) (*Saved, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unpack the archive: %w", err)
	}
	free, err := snapshot.FreeSpace(dir)
	if err != nil {
		return nil, err
	}
	if uint64(size) > free {
		return nil, fmt.Errorf("unpack the archive: it has %d bytes, and in %s are %d free: %w", size, dir, free, unix.ENOSPC)
	}
	u := &unpacking{dir: dir, left: size, buffer: make([]byte, copyBuffer)}
	if err := u.run(ctx, f); err != nil {
		return nil, fmt.Errorf("unpack the archive: %w", err)
	}
	return fromDirectory(dir)
}

type unpacking struct {
	dir    string
	left   int64
	buffer []byte
}

func (u *unpacking) run(ctx context.Context, in io.Reader) error {
	t := tar.NewReader(reader{ctx, in})
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: entry %d: %w", ErrArchive, n, err)
		case n == maxEntries:
			return fmt.Errorf("%w: more than %d entries", ErrArchive, maxEntries)
		}
		if err := u.entry(ctx, h, t); err != nil {
			return err
		}
	}
}

// entry writes one entry, if a restore reads it.
func (u *unpacking) entry(ctx context.Context, h *tar.Header, in io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	parent, name := path.Split(path.Clean("/" + h.Name))
	ofSnapshot := name == snapshot.ManifestName || snapshot.Belongs(name)
	to := u.dir
	switch {
	case parent == "/"+imagesDir+"/" && ofSnapshot:
		to = filepath.Join(u.dir, imagesDir)
		if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	case parent == "/" && (ofSnapshot || name == specName || name == layerName):
	default:
		return nil
	}
	switch {
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is no regular file", ErrArchive, h.Name)
	case h.Size > u.left:
		return fmt.Errorf("%w: its files have more bytes than it has itself", ErrArchive)
	}
	u.left -= h.Size
	// A name that is there twice is refused.
	out, err := os.OpenFile(filepath.Join(to, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %q is there twice", ErrArchive, h.Name)
	}
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, in, u.buffer)
	if err = errors.Join(err, out.Close()); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// reader ends with the context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
