// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// forwarded is a bench whose programs find libhetcuda as libcuda.so.1, with the
// stand-in behind it, and the control directory.
func forwarded(t *testing.T, b *bench) (f *bench, control string) {
	t.Helper()
	out, err := filepath.Abs(filepath.Join("..", "..", "bin", "libhetcuda", "plain"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("make", "-s", "-j2", "-C", filepath.Join("..", "..", "libhetcuda"), "OUT="+out, "VERSION=test").CombinedOutput(); err != nil {
		t.Fatalf("build libhetcuda: %v\n%s", err, text)
	}
	control, err = os.MkdirTemp("", "hetcuda") //nolint:usetesting // its names are too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(control) })
	return &bench{Machine: b.Machine, bin: b.bin, env: []string{
		"LD_LIBRARY_PATH=" + out,
		"HETCUDA_REAL=" + filepath.Join(b.bin, "libcuda.so.1"),
		"HETCUDA_CONTROL=" + control,
	}}, control
}

// connect connects to the only process that listens.
func connect(t *testing.T, control string) *hetcuda.Conn {
	t.Helper()
	conns, err := hetcuda.Connect(t.Context(), control)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		t.Cleanup(c.Close)
	}
	if len(conns) != 1 {
		t.Fatalf("%d processes listen in %s", len(conns), control)
	}
	return conns[0]
}

// parked is what was taken out of a process.
type parked struct {
	chunks []hetcuda.Chunk
	fds    []int
}

// park takes a process's memory; the connection is closed, as before a dump.
func park(t *testing.T, control string) parked {
	t.Helper()
	c := connect(t, control)
	defer c.Close()
	if err := c.Hold(t.Context(), timeout); err != nil {
		t.Fatal(err)
	}
	chunks, fds, err := c.Park(t.Context(), func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	if _, err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(chunks) == 0 {
		t.Fatal("no memory was parked")
	}
	return parked{chunks, fds}
}

// unpark gives it back and lets the process go on.
func unpark(t *testing.T, control string, p parked) {
	t.Helper()
	c := connect(t, control)
	defer c.Close()
	hello, err := c.Hello(t.Context())
	if err != nil || hello.State != hetcuda.Parked || hello.Chunks != len(p.chunks) {
		t.Fatalf("%+v, %v; want %d chunks, parked", hello, err, len(p.chunks))
	}
	if missing, err := c.Unpark(t.Context(), p.chunks, p.fds); err != nil || missing != 0 {
		t.Fatal(err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A process is parked, checkpointed by the driver, dumped and killed, while its
// memory stays with us, and goes on with the same sums.
func TestParkDumpRestore(t *testing.T) {
	for name, args := range map[string][]string{
		"device": {"-i", "10"},
		// The CPU has the newest of it when it is parked.
		"managed": {"-i", "10", "-m"},
	} {
		t.Run(name, func(t *testing.T) { parkDumpRestore(t, args) })
	}
}

func parkDumpRestore(t *testing.T, args []string) {
	t.Helper()
	spec := standin.H200s(1, 1)
	// Not with sanitizers: CRIU can't dump their shadow memory.
	b := newBench(t, "plain", spec)
	i := newImages(t)
	f, control := forwarded(t, b)
	y := f.start(t, nil, args...)
	y.reaches(t, 0, 3)

	p := park(t, control)
	y.rests(t, 0)
	b.must(t, "lc", y.pid())
	var bytes uint64
	for _, c := range p.chunks {
		bytes += c.Size
	}
	b.used(t, spec.GPUs[0], bytes)
	// What says that the memory is in use is a lock that bears the name of the
	// process that exported it.
	i.dump(t, y, "--file-locks")
	// It is dead, and its memory is where it was.
	b.used(t, spec.GPUs[0], bytes)
	i.restore(t)
	b.state(t, y.pid(), "checkpointed")
	// The control thread answers while the driver does not.
	c := connect(t, control)
	if hello, err := c.Hello(t.Context()); err != nil || hello.State != hetcuda.Parked {
		t.Fatalf("%+v, %v; want it parked", hello, err)
	}
	c.Close()
	b.must(t, "ru", y.pid())
	y.rests(t, 0)
	unpark(t, control, p)
	y.goesOn(t, 0)

	// Once more: what was restored can be held, parked and checkpointed.
	p = park(t, control)
	b.must(t, "lcru", y.pid())
	unpark(t, control, p)
	y.goesOn(t, 0)
}

// Parked and back without the driver or CRIU, many times.
func TestPark(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	f, control := forwarded(t, b)
	y := f.start(t, nil, "-i", "1")
	y.reaches(t, 0, 3)
	for range 20 {
		unpark(t, control, park(t, control))
		y.goesOn(t, 0)
	}
}

// A peer that goes after HOLD, and one that goes after PARK, leave a program
// that runs.
func TestParkAbandoned(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	f, control := forwarded(t, b)
	y := f.start(t, nil, "-i", "1")
	y.reaches(t, 0, 3)
	for _, parks := range []bool{false, true} {
		c := connect(t, control)
		if err := c.Hold(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if parks {
			_, fds, err := c.Park(t.Context(), func(int) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
		y.rests(t, 0)
		c.Close()
		y.goesOn(t, 0)
	}
}
