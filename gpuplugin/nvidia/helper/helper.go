// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package helper is the device helper's server: it answers the calls of
// helperapi by a driver, on a connection that it inherited from the shim, and
// ends with that connection.
//
// It keeps no state of its own but for the operations that can be canceled, and
// holds no lock during a call, so one that the driver never answers (of a process
// that is frozen, say) blocks no other. It must not know of containers.
package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Driver is what the server needs of a driver; [driver.Driver] is the one.
//
// [driver.Driver]: https://pkg.go.dev/github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/driver#Driver
type Driver interface {
	Inventory() (gpuplugin.Inventory, error)
	Symbols() ([]*helperapi.Symbol, error)
	Usage(pids []int) (map[string]uint64, error)
	State(pid int) (gpuplugin.State, error)
	Lock(pid int, timeout time.Duration) error
	Checkpoint(pid int) error
	Restore(pid int, devices gpuplugin.DeviceMap) error
	Unlock(pid int) error
}

// Serve answers calls on the connected unix socket fd until the other end is
// closed. It refuses a peer that is neither root nor of the helper's own user.
// Calls that are still with the driver then are not waited for: the caller
// ends the process. Without memory, calls about it must not come.
func Serve(ctx context.Context, fd uintptr, d Driver, memory nvidia.Mover) error {
	conn, err := inherited(fd)
	if err != nil {
		return fmt.Errorf("take over socket %d: %w", fd, err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return fmt.Errorf("set up ttrpc: %w", err)
	}
	helperapi.RegisterGPUService(server, newService(d, memory))
	if err := server.Serve(ctx, newOneConn(conn)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func inherited(fd uintptr) (*net.UnixConn, error) {
	cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	if int(cred.Uid) != 0 && int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("the peer is user %d, not root", cred.Uid)
	}
	f := os.NewFile(fd, "shim")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is not a unix socket", conn.LocalAddr().Network()), conn.Close())
	}
	return uc, nil
}

// oneConn is a listener with one connection: the second Accept waits for the
// first one's end and returns io.EOF.
type oneConn struct {
	conn   net.Conn
	first  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newOneConn(conn net.Conn) *oneConn {
	l := &oneConn{conn: conn, first: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.first <- &watchedConn{Conn: conn, listener: l}
	return l
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.first:
		return c, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

// Close implements net.Listener.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// watchedConn tells the listener when the connection is of no use any more.
type watchedConn struct {
	net.Conn
	listener *oneConn
}

// Read implements net.Conn. The end shows here first, whatever the calls that
// are still being answered do.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		_ = c.listener.Close()
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	_ = c.listener.Close()
	return c.Conn.Close()
}
