// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens a file past the page cache, where its file system can.
func openDirect(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		// O_CREAT has made it all the same.
		f, err = os.OpenFile(name, flags&^os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	}
	return f, err
}

// direct has a file that is open read past the page cache, if that can be.
func direct(f *os.File) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
}

// cached takes a file back to the page cache. It fails if that is where it is.
func cached(f *os.File) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_DIRECT == 0 {
		err = unix.EINVAL
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	return err
}

// writeAt writes all of b, whose length and place are multiples of 4096.
func writeAt(f *os.File, b []byte, at int64) error {
	return transfer(f, b, func(rest []byte, done int64) (int, error) { return unix.Pwrite(int(f.Fd()), rest, at+done) }, io.ErrShortWrite)
}

// readAt reads all of b.
func readAt(f *os.File, b []byte, at int64) error {
	return transfer(f, b, func(rest []byte, done int64) (int, error) { return unix.Pread(int(f.Fd()), rest, at+done) }, io.ErrUnexpectedEOF)
}

func transfer(f *os.File, b []byte, call func(rest []byte, done int64) (int, error), short error) error {
	done := 0
	for done < len(b) {
		n, err := call(b[done:], int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL) && cached(f) == nil:
			continue // a file system that only says so now
		case err == nil && n == 0:
			err = short
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		done += n
	}
	return nil
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
