// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package keepertest runs keepers within a test.
package keepertest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
)

// Label is what keepers are given.
var Label = keeper.Label{Container: "job", Dir: "/srv/snap"}

// Keeper is one, and who has started it.
type Keeper struct {
	Home  keeper.Home
	ID    string
	Owner *keeper.Conn
	// Stop is the signal that ends it, and Over is closed when it has ended.
	Stop context.CancelFunc
	Over chan struct{}
}

// Start starts one, which ends with the test.
func Start(tb testing.TB) *Keeper {
	tb.Helper()
	// Not the test's directory, whose name may be too long for a socket.
	dir, err := os.MkdirTemp("", "kept") //nolint:usetesting // for that reason
	if err != nil {
		tb.Fatal(err)
	}
	k := &Keeper{Home: keeper.Home(filepath.Join(dir, "run", "kept")), ID: keeper.NewID(), Over: make(chan struct{})}
	ours, theirs := Pair(tb)
	ctx, cancel := context.WithCancel(context.Background())
	k.Stop = cancel
	go func() {
		defer close(k.Over)
		if err := keeper.Serve(ctx, k.Home, k.ID, Label, theirs); err != nil {
			tb.Error(err)
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-k.Over
		_ = os.RemoveAll(dir)
	})
	if k.Owner, err = keeper.Started(tb.Context(), ours, k.ID); err != nil {
		tb.Fatal(err)
	}
	return k
}

// Pair is two connected sockets as a keeper and its owner have them.
func Pair(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		conns[i], err = net.FileConn(f)
		_ = f.Close() // it was duplicated
		if err != nil {
			tb.Fatal(err)
		}
	}
	return conns[0], conns[1]
}
