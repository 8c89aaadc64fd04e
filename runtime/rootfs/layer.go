// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// whiteout is the prefix of a layer's entry for a file that is gone, and
	// opaque the name of one for a directory of which only the layer's is left.
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	// paxXattr is the prefix of a tar's record of an extended attribute.
	paxXattr = "SCHILY.xattr."
	// labelXattr is the host's policy, which gives a container its own.
	labelXattr = "security.selinux"
)

// Layer is what a container had changed in its root file system at one moment.
type Layer struct {
	entries []entry
	staged  *os.File
	// size is the length of what is staged.
	size  int64
	links map[uint64]string
	stats Stats
}

// Stats tells what was taken.
type Stats struct {
	// Files is the number of entries, whiteouts among them.
	Files int
	// Bytes are in regular files; of these Cloned share their blocks with them.
	Bytes, Cloned int64
}

// entry is an entry of the tar; the contents are at an offset of what is staged.
type entry struct {
	tar.Header
	at int64
}

// Capture takes the files below upper, the upper directory of an overlay that
// nobody writes to. Their contents are staged in a file without a name: in the
// first of the directories that can share blocks with upper, and where none can,
// in the first.
func Capture(ctx context.Context, upper string, staging ...string) (_ *Layer, err error) {
	l := &Layer{links: make(map[uint64]string)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	var shares bool
	if l.staged, shares, err = stage(upper, staging); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayer, err)
	}
	c := copier{to: l.staged, clone: shares}
	err = filepath.WalkDir(upper, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case file == upper:
			return nil
		}
		name, err := filepath.Rel(upper, file)
		if err != nil {
			return err
		}
		return l.add(ctx, &c, file, filepath.ToSlash(name), d)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayer, err)
	}
	l.stats.Cloned = c.cloned
	return l, nil
}

// stage makes the file for the contents.
func stage(upper string, dirs []string) (f *os.File, shares bool, err error) {
	for i, dir := range dirs {
		var file *os.File
		if file, err = nameless(dir); err != nil {
			if i == 0 {
				return nil, false, err
			}
			continue // it may be read-only
		}
		if canClone(upper, file) {
			if f != nil {
				_ = f.Close() // nothing is in it
			}
			return file, true, nil
		}
		if f == nil {
			f = file
			continue
		}
		_ = file.Close() // nothing is in it
	}
	return f, false, nil
}

// nameless makes a file that goes when it is closed.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "layer")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, &os.PathError{Op: "stage in", Path: dir, Err: err}
	}
	// NFS, for one.
	f, err := os.CreateTemp(dir, ".hetgpu-layer-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

// Close frees what is staged.
func (l *Layer) Close() error {
	if l.staged == nil {
		return nil
	}
	f := l.staged
	l.staged = nil
	return f.Close()
}

// Stats tells what was taken.
func (l *Layer) Stats() Stats { return l.stats }

// add takes one file.
func (l *Layer) add(ctx context.Context, c *copier, file, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	st := info.Sys().(*unixStat)
	attrs, err := xattrs(file)
	if err != nil {
		return err
	}
	over, err := overlayOf(name, attrs)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		return fmt.Errorf("%s: a name that begins with %s means a file that is gone", name, whiteout)
	}
	if over.gone || info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 {
		l.whiteout(path.Join(path.Dir(name), whiteout+path.Base(name)))
		return nil
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil // no tar has one, and CRIU makes those that were in use
	}
	e := entry{Header: header(name, info, st, attrs)}
	if !d.IsDir() && st.Nlink > 1 {
		if first, ok := l.links[st.Ino]; ok {
			e.Typeflag, e.Linkname, e.Size = tar.TypeLink, first, 0
		} else {
			l.links[st.Ino] = name
		}
	}
	switch e.Typeflag {
	case tar.TypeSymlink:
		if e.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
	case tar.TypeReg:
		e.at = l.size
		if err := c.copy(ctx, file, e.at, e.Size); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.size += (e.Size + blockSize - 1) / blockSize * blockSize
		l.stats.Bytes += e.Size
	}
	l.append(e)
	if over.opaque {
		l.whiteout(path.Join(name, opaque))
	}
	return nil
}

func (l *Layer) append(e entry) {
	l.entries = append(l.entries, e)
	l.stats.Files++
}

func (l *Layer) whiteout(name string) {
	l.append(entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatPAX}})
}

// header describes a file as containerd does, with all of its attributes.
func header(name string, info fs.FileInfo, st *unixStat, attrs map[string]string) tar.Header {
	h := tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: info.ModTime(), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
	case fs.ModeNamedPipe:
		h.Typeflag = tar.TypeFifo
	case fs.ModeDevice:
		h.Typeflag = tar.TypeBlock
	case fs.ModeDevice | fs.ModeCharDevice:
		h.Typeflag = tar.TypeChar
	default:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	}
	if h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeChar {
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	for key, value := range attrs {
		if key != labelXattr && !isOverlay(key) {
			h.PAXRecords[paxXattr+key] = value
		}
	}
	return h
}

// WriteTar writes the layer, uncompressed.
func (l *Layer) WriteTar(ctx context.Context, to io.Writer) error {
	buffered := bufio.NewWriterSize(to, 1<<20)
	out := tar.NewWriter(buffered)
	for i := range l.entries {
		e := &l.entries[i]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := out.WriteHeader(&e.Header); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrLayer, e.Name, err)
		}
		if e.Typeflag != tar.TypeReg || e.Size == 0 {
			continue
		}
		if _, err := io.Copy(out, &reader{ctx, io.NewSectionReader(l.staged, e.at, e.Size)}); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrLayer, e.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("%w: %w", ErrLayer, err)
	}
	return buffered.Flush()
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
