// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gpuengine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// What a process says of the descriptors that it sends is compared with what the
// driver says.
func TestMoverRefusesForgedMemory(t *testing.T) {
	b := newMoverBench(t)
	y := b.start(t, 2)
	// Memory of the first device, as a process sends it.
	conn, err := hetcuda.ConnectTo(t.Context(), b.control, y.pids[1], hetcuda.Socket{})
	if err != nil || conn == nil {
		t.Fatal(conn, err)
	}
	defer conn.Close()
	if err := conn.Hold(t.Context(), timeout); err != nil {
		t.Fatal(err)
	}
	chunks, fds, err := conn.Park(t.Context(), func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer hetcuda.Discard(fds)
	inventory, err := b.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var other [16]byte
	for _, d := range inventory.Devices {
		uuid, err := memfile.ParseUUID(d.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if uuid != chunks[0].Device {
			other = uuid
		}
	}
	plain, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(int64(chunks[0].Size)); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hetcuda.Discard(pair[:])
	for name, test := range map[string]struct {
		fd     int
		device [16]byte
		text   string
	}{
		"on another device": {fds[0], other, "a descriptor of memory that is not on " + memfile.UUID(other).String()},
		"a device file":     {int(null.Fd()), chunks[0].Device, "of a file with type 020000"},
		"a socket":          {pair[0], chunks[0].Device, "of a file with type 0140000"},
		// The stand-in's memory is files too; what is one of the same file system
		// only the driver can tell.
		"a file":  {int(plain.Fd()), chunks[0].Device, "cuMemImportFromShareableHandle"},
		"its own": {fds[0], chunks[0].Device, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.FcntlInt(uintptr(test.fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			p := hetcudatest.Start(t, dir, hetcudatest.Chunk{ID: 1, Address: 1 << 40, Size: chunks[0].Size, Device: test.device, FD: fd})
			if err := b.mover.Hold(t.Context(), dir, os.Getpid(), timeout); err != nil {
				t.Fatal(err)
			}
			req := b.request(t, os.Getpid(), "forged")
			req.Dir = dir
			if _, err := b.mover.Park(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if err := b.mover.Commit(t.Context(), []string{"forged"}); err != nil {
				t.Fatal(err)
			}
			done, err := b.mover.Duplicate(t.Context(), []string{"forged"})
			if done != (test.text == "") || test.text != "" && (err == nil || !strings.Contains(err.Error(), test.text)) {
				t.Errorf("%t, %v", done, err)
			}
			if err := b.mover.Unpark(t.Context(), dir, os.Getpid(), "forged"); err != nil || p.State() != hetcudatest.Held {
				t.Errorf("state %d, %v", p.State(), err)
			}
			if err := b.mover.Release(t.Context(), dir, os.Getpid()); err != nil {
				t.Error(err)
			}
			if err := b.mover.Drop(t.Context(), []string{"forged"}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := conn.Release(t.Context()); err != nil {
		t.Error(err)
	}
	y.goesOn(t)
}
