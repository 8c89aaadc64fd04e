// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcudatest

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Deaf makes a socket in a directory whose owner accepts nothing, and whose queue
// is full.
func Deaf(tb testing.TB, dir, name string) (path string) {
	tb.Helper()
	path = filepath.Join(dir, name)
	address := &unix.SockaddrUnix{Name: path}
	open := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	listener := open()
	if err := unix.Bind(listener, address); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Listen(listener, 0); err != nil {
		tb.Fatal(err)
	}
	for unix.Connect(open(), address) == nil {
	}
	return path
}
