// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

type unixStat = syscall.Stat_t

const (
	// blockSize is what offsets of clones are a multiple of, on every file
	// system with blocks of at most 64 KiB.
	blockSize = 64 << 10
	// step is copied between two looks at the context.
	step = 16 << 20
)

// copier puts files into one file.
type copier struct {
	to *os.File
	// clone says that blocks can be shared.
	clone bool
	// cloned bytes share them.
	cloned int64
}

// canClone tells whether a file can share blocks with files below dir.
func canClone(dir string, to *os.File) bool {
	probe, err := nameless(dir)
	if err != nil {
		return false
	}
	defer probe.Close()
	if _, err := probe.Write(make([]byte, 1)); err != nil {
		return false
	}
	if err := unix.IoctlFileClone(int(to.Fd()), int(probe.Fd())); err != nil {
		return false
	}
	return to.Truncate(0) == nil
}

// copy puts a file of that size at an offset.
func (c *copier) copy(ctx context.Context, name string, at, size int64) error {
	if size == 0 {
		return nil
	}
	// No link, and no pipe that somebody has put there.
	from, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	if c.clone {
		err := unix.IoctlFileCloneRange(int(c.to.Fd()), &unix.FileCloneRange{
			Src_fd: int64(from.Fd()), Src_length: 0, Dest_offset: uint64(at),
		})
		if err == nil {
			c.cloned += size
			return nil
		}
		// A file that must not be shared (a swap file, another subvolume's).
	}
	return c.copySegments(ctx, from, at, size)
}

// copySegments copies what is not a hole.
func (c *copier) copySegments(ctx context.Context, from *os.File, at, size int64) error {
	fd := int(from.Fd())
	for off := int64(0); off < size; {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			data = off
		}
		end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			end = size
		}
		end = min(end, size)
		if err := c.copyRange(ctx, from, data, end, at); err != nil {
			return err
		}
		off = max(end, off+1)
	}
	// What is a hole at the end is read too.
	info, err := c.to.Stat()
	if err != nil || info.Size() >= at+size {
		return err
	}
	return c.to.Truncate(at + size)
}

func (c *copier) copyRange(ctx context.Context, from *os.File, off, end, at int64) error {
	for off < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		to := at + off
		in := off
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(c.to.Fd()), &to, int(min(step, end-off)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			// Between file systems that can't, and from some that say nothing.
			m, err := io.Copy(io.NewOffsetWriter(c.to, at+off), io.NewSectionReader(from, off, min(step, end-off)))
			if err != nil {
				return err
			}
			if m == 0 {
				return fmt.Errorf("it ends at %d, before its size", off)
			}
			n = int(m)
		}
		off += int64(n)
	}
	return nil
}
