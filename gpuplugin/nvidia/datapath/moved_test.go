// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
)

// loaded saves the process and loads what it had to other devices, to which the driver
// has moved the process.
func (b *bench) loaded(t *testing.T) {
	t.Helper()
	b.park(t)
	_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	check(t, b.Drop(t.Context(), []string{"p"}))
	devices := gpuplugin.DeviceMap{uuid0.String(): uuid2.String(), uuid1.String(): uuid0.String()}
	_, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}, Devices: devices})
	check(t, err)
	b.process.SetMoved(true)
}

// A process that was moved makes its memory itself, one chunk after the other, and nothing of it
// is mapped here meanwhile.
func TestMoved(t *testing.T) {
	b := newBench(t)
	b.loaded(t)
	asked := 0
	b.process.Before(hetcudatest.Make, func(*net.UnixConn) bool {
		if asked++; asked > 1 { // the first time it says that it was moved
			for uuid, g := range b.machine.gpus {
				if left := g.left(); left != "0 handles, 0 ranges, 0 streams" {
					t.Errorf("on %s there are %s", uuid, left)
				}
			}
		}
		return true
	})
	b.runs(t, "q")
	if asked != 1+4 || len(b.process.Borrowed()) > 0 {
		t.Errorf("asked %d times; %v are not its own", asked, b.process.Borrowed())
	}
	b.clean(t, true)
	b.process.Before(hetcudatest.Make, func(*net.UnixConn) bool { return true })
	// And as often as it is saved, also with a copy.
	for _, copied := range []bool{false, true} {
		check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
		_, err := b.take(t.Context(), b.request())
		check(t, err)
		if copied {
			done, err := b.Duplicate(t.Context(), []string{"p"})
			if err != nil || !done {
				t.Fatal(done, err)
			}
		}
		b.runs(t, "p")
		if copied {
			b.dir = t.TempDir()
			_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
			check(t, err)
			check(t, b.Drop(t.Context(), []string{"p"}))
		}
	}
	b.clean(t, true)
}

// Whatever fails while a process makes its memory, it is parked then, and the next try finds
// all of it.
func TestMovedFails(t *testing.T) {
	broken := errors.New("broken")
	// making has the process do something else than to make the second of its chunks.
	making := func(b *bench, f func(c *net.UnixConn) bool) {
		asked := 0
		b.process.Before(hetcudatest.Make, func(c *net.UnixConn) bool {
			if asked++; asked == 3 {
				return f(c)
			}
			return true
		})
	}
	gpu := func(b *bench) *gpu { return b.machine.gpus[uuid2.String()] }
	for name, tc := range map[string]struct {
		fail func(b *bench)
		is   error
	}{
		"import":    {func(b *bench) { gpu(b).set("Import", broken) }, broken},
		"stream":    {func(b *bench) { gpu(b).set("NewStream", broken) }, broken},
		"copy":      {func(b *bench) { gpu(b).set("Copy", broken) }, broken},
		"wait":      {func(b *bench) { gpu(b).set("Wait", broken) }, broken},
		"no answer": {func(b *bench) { making(b, func(*net.UnixConn) bool { return false }) }, helperapi.ErrNotReady},
		"no memory": {func(b *bench) {
			making(b, func(c *net.UnixConn) bool {
				hetcudatest.Reply(c, hetcudatest.Make, 2, 0, "no room", nil)
				return false
			})
		}, nil},
		"another file": {func(b *bench) {
			null, err := os.Open(os.DevNull)
			if err != nil {
				b.process.Before(hetcudatest.Make, nil)
				return
			}
			making(b, func(c *net.UnixConn) bool {
				hetcudatest.Reply(c, hetcudatest.Make, 0, 1, "", nil)
				hetcudatest.SendChunks(c, []hetcudatest.Chunk{{ID: 2, Size: 8 * mib}}, int(null.Fd()))
				_ = null.Close()
				return false
			})
		}, nil},
		"it does not take what it has made": {func(b *bench) { b.process.Refuse(1) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.loaded(t)
			tc.fail(b)
			if err := b.Unpark(t.Context(), b.control, os.Getpid(), "q"); err == nil || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("err = %v", err)
			}
			if b.process.State() != hetcudatest.Parked {
				t.Errorf("state %d", b.process.State())
			}
			for call := range gpu(b).fail {
				gpu(b).set(call, nil)
			}
			b.process.Before(hetcudatest.Make, func(*net.UnixConn) bool { return true })
			b.runs(t, "q")
			b.clean(t, true)
		})
	}
}

// A caller whose time is over while the process makes its memory does not wait for it.
func TestMovedTooLate(t *testing.T) {
	b := newBench(t)
	b.loaded(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	b.process.Before(hetcudatest.Make, func(c *net.UnixConn) bool {
		cancel()
		_, _ = c.Read(make([]byte, 1))
		close(left)
		return false
	})
	if err := b.Unpark(ctx, b.control, os.Getpid(), "q"); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("err = %v", err)
	}
	<-left
	b.process.Before(hetcudatest.Make, func(*net.UnixConn) bool { return true })
	b.runs(t, "q")
	b.clean(t, true)
}

// A library that can't be asked to make its memory gets none on another device.
func TestMovedTooOld(t *testing.T) {
	b := newBench(t)
	b.loaded(t)
	b.process.SetProtocol(4)
	if err := b.Unpark(t.Context(), b.control, os.Getpid(), "q"); err == nil || !strings.Contains(err.Error(), "too old to go from "+uuid0.String()) {
		t.Errorf("err = %v", err)
	}
	if b.process.State() != hetcudatest.Parked {
		t.Errorf("state %d", b.process.State())
	}
	check(t, b.Drop(t.Context(), []string{"q"}))
	b.clean(t, true)
}

// Where the driver lets moved processes share memory (all of them see all of the devices), they
// share again what its maker has made anew.
func TestMovedAndShared(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	for _, p := range s.processes {
		p.SetMoved(true)
	}
	s.run(t, 1, 0, 2)
	s.shares(t, 0, 1, 2)
	s.clean(t, false)
}
