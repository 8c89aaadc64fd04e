// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcudatest

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Reluctant makes a descriptor that only who does not mind to wait can close before
// relent was called: a socket with data for a peer that does not read. relent
// returns when all descriptors of it are closed.
func Reluctant(tb testing.TB) (fd int, relent func()) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	// For ever, as tests go.
	if err := c.(*net.TCPConn).SetLinger(3600); err != nil {
		tb.Fatal(err)
	}
	full := make([]byte, 1<<20)
	if err := c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		tb.Fatal(err)
	}
	for err == nil {
		_, err = c.Write(full)
	}
	raw, rawErr := c.(*net.TCPConn).SyscallConn()
	if rawErr != nil {
		tb.Fatal(rawErr)
	}
	rawErr = raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(rawErr, err); err != nil {
		tb.Fatal(err)
	}
	// Not the last one yet, so it waits for nobody.
	if err := c.Close(); err != nil {
		tb.Fatal(err)
	}
	relent = func() { _, _ = io.Copy(io.Discard, peer) }
	tb.Cleanup(func() { _ = peer.Close() })
	return fd, relent
}
