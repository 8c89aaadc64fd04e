// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// splitToy is a container with libhetcuda in front of the stand-in, and a
// program that uses device memory in every way.
func (d *daemon) splitToy(args ...string) spec {
	return d.split(spec{args: append([]string{inContainer + "/vmmtoy", "-i", "10"}, args...)})
}

// split gives a container a GPU and the split engine.
func (d *daemon) split(s spec) spec {
	s.opts = append(slices.Clone(s.opts), d.withProgram, d.withRealLibrary, d.withGPUs(0), annotated("io.hetgpu.engine", "split"))
	return s
}

// withRealLibrary has the driver's library where NVIDIA's tools mount it.
func (d *daemon) withRealLibrary(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Mounts = append(s.Mounts, specs.Mount{
		Type: "bind", Source: filepath.Join(d.programs, "libcuda.so.1"), Destination: "/usr/lib/libcuda.so.580.159.04", Options: []string{"bind", "ro"},
	})
	return nil
}

// A container with the split engine goes on after its checkpoint, and is restored
// beside itself.
func TestGPUSplitLeaveRunning(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.splitToy())
		before := c.ticksOn(ctx, 1)
		dir := c.mustCheckpoint(ctx, false)
		c.expectGoesOn(ctx, 1)
		expectSplit(t, dir)
		restored := d.restore(ctx, t, d.splitToy(), dir)
		restored.expectGoesOn(ctx, 1)
		if first := restored.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
		}
		c.expectGoesOn(ctx, 1)
		restored.stop(ctx)
		c.stop(ctx)
	})
}

// expectSplit checks that device memory is in files.
func expectSplit(t *testing.T, dir string) *snapshot.Manifest {
	t.Helper()
	s, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	m := s.Manifest
	if m.Engine != snapshot.EngineSplit || m.EngineReason != "" || m.Memory == nil || m.Memory.Bytes == 0 {
		t.Errorf("engine %q (%s), memory %+v", m.Engine, m.EngineReason, m.Memory)
	}
	return m
}

// Several processes that end, and come back under another id with their memory.
func TestGPUSplitExit(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "3000000"}})
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 2)
	dir := c.mustCheckpoint(ctx, true)
	if status := c.waitExit(ctx); status != 137 {
		t.Errorf("exit status %d, not 137", status)
	}
	c.delete(ctx)
	c.remove()
	d.expectNothingLeft(t)
	expectNoControlDir(t)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
	if m := expectSplit(t, dir); m.Split() != 2 || m.Memory.Bytes < 2*3000000 {
		t.Errorf("%d processes are split, memory %+v", m.Split(), m.Memory)
	}
	for range 2 {
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 2)
		if first := r.firstTick(); first <= min(before[0], before[1]) {
			t.Errorf("it went on at tick %d, and was saved after %v", first, before)
		}
		// And is saved once more.
		r.mustCheckpoint(ctx, false)
		r.expectGoesOn(ctx, 2)
		r.stop(ctx)
		r.remove()
	}
	d.expectNothingLeft(t)
	expectNoControlDir(t)
}

// expectNoControlDir fails if a container's control directory is still mounted.
func expectNoControlDir(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// Other runs of these tests have theirs.
		ours := slices.ContainsFunc(daemons, func(d *daemon) bool { return strings.Contains(line, d.Dir+"/") })
		if ours && strings.Contains(line, "hetgpu-control") {
			t.Errorf("it is left: %s", line)
		}
	}
}

// Stream-ordered memory is in the files like any other, and nothing of it is left to
// the driver.
func TestGPUSplitStreamOrdered(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	// Room for two of what comes back at once.
	d.change(t, standin.H200s(2, 1).WithMemory(128<<20))
	s := d.splitToy("-a", "-b", "12000000")
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, true)
	if m := expectSplit(t, dir); m.Memory != nil && m.Memory.Bytes < 12000000 {
		t.Errorf("%d bytes of device memory", m.Memory.Bytes)
	}
	c.waitExit(ctx)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	if first := r.firstTick(); first <= before[0] {
		t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
	}
	r.mustCheckpoint(ctx, false)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// Memory of a program's own mappings, and no room on the device for a copy: then
// all is saved before the container goes on.
func TestGPUSplitNoRoom(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	d.change(t, standin.H200s(2, 1).WithMemory(40<<20))
	s := d.splitToy("-v", "-b", "12000000")
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 1)
	m := expectSplit(t, dir)
	resumed := slices.IndexFunc(m.Phases, func(p snapshot.Phase) bool { return p.Name == checkpoint.PhaseResume })
	if resumed < 0 {
		t.Errorf("phases are %+v", m.Phases)
	}
	c.stop(ctx)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// A device with memory for a tenth more than the program has: it is saved and goes on, is
// restored, and saved again, and what its processes share stays shared. There is never
// room for two of everything.
func TestGPUSplitCrowded(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks, pieces int
		args          []string
	}{
		"one process":           {1, 15, nil},
		"memory that is shared": {2, 7, []string{"-p", "keep"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			const program = 64 << 20
			d.change(t, standin.H200s(2, 1).WithMemory(program+program/10))
			s := d.split(spec{args: append([]string{
				inContainer + "/toy", "-i", "10", "-g", "0", "-b", "4194304", "-n", strconv.Itoa(tc.ranks), "-k", strconv.Itoa(tc.pieces),
			}, tc.args...)})
			c := d.run(ctx, t, s)
			c.ticksOn(ctx, tc.ranks)
			d.expectUsed(t, usual.GPUs[0], program)
			for range 2 {
				if m := expectSplit(t, c.mustCheckpoint(ctx, false)); m.Memory.Bytes != program {
					t.Errorf("memory %+v", m.Memory)
				}
				c.expectGoesOn(ctx, tc.ranks)
			}
			c.expectKept(ctx, tc.ranks, tc.pieces)
			dir := c.mustCheckpoint(ctx, true)
			c.waitExit(ctx)
			c.delete(ctx)
			c.remove()
			for range 2 {
				r := d.restore(ctx, t, s, dir)
				r.expectGoesOn(ctx, tc.ranks)
				dir = r.mustCheckpoint(ctx, false)
				expectSplit(t, dir)
				r.expectKept(ctx, tc.ranks, tc.pieces)
				d.expectUsed(t, usual.GPUs[0], program)
				r.stop(ctx)
				r.remove()
			}
		})
	}
}

// A paused container is saved as it is, and goes on when it is resumed.
func TestGPUSplitPause(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.splitToy())
	c.ticksOn(ctx, 1)
	if err := c.task.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectPaused(ctx, 1)
	p := &patient{container: c, dir: filepath.Join(t.TempDir(), "snapshot")}
	for range 2 {
		if err := p.checkpointDirectly(ctx, false); err != nil {
			t.Fatal(err)
		}
		expectSplit(t, p.dir)
		p.startOver()
		c.expectPaused(ctx, 1)
	}
	if err := c.task.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
}

// A process that goes to the driver past the library is saved by the driver,
// beside one that is split.
func TestGPUSplitBeside(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{"/bin/sh", "-c", "LD_LIBRARY_PATH= " + inContainer + "/toy -i 10 -n 2 >/dev/null & exec " + inContainer + "/vmmtoy -i 10"}})
	c := d.run(ctx, t, s)
	err := testbed.Eventually(ctx, "three processes use a GPU", func() error {
		if n := len(c.gpuProcesses(ctx)); n != 3 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	m := readManifest(t, dir)
	if m.Engine != snapshot.EngineSplit || m.Split() != 1 || len(m.Processes) != 3 || !strings.Contains(m.EngineReason, "it does not run libhetcuda") {
		t.Errorf("engine %s (%s), processes %+v", m.Engine, m.EngineReason, m.Processes)
	}
	r := d.restore(ctx, t, s, dir)
	r.expectStates(ctx, 3, "running")
	r.ticksOn(ctx, 1)
	r.stop(ctx)
}

// Where the library can't be asked the driver saves all, and the manifest and
// inspect say why.
func TestGPUSplitFallsBack(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	c := d.run(ctx, t, d.splitToy())
	c.ticksOn(ctx, 1)
	stranger := speakNonsense(t, fmt.Sprintf("/proc/%d/root/run/hetgpu/control/hetcuda.99", c.task.Pid()))
	dir := c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 1)
	m := readManifest(t, dir)
	if m.Engine != snapshot.EngineDriver || m.Memory != nil || m.Library == nil || !strings.Contains(m.EngineReason, "not the protocol of libhetcuda") {
		t.Errorf("engine %s (%s), library %v", m.Engine, m.EngineReason, m.Library)
	}
	if err := stranger.Close(); err != nil {
		t.Error(err)
	}
	c.stop(ctx)
	// By itself it takes the library, which the processes have mapped.
	r := d.restore(ctx, t, d.withoutEngine(d.splitToy()), dir)
	r.expectGoesOn(ctx, 1)
	// Where nobody is in the way it is split.
	expectSplit(t, r.mustCheckpoint(ctx, false))
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// speakNonsense listens in a container's control directory, for who asks to be
// answered by something else than libhetcuda.
func speakNonsense(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 64))
			_, _ = conn.Write([]byte("nonsense"))
			_ = conn.Close()
		}
	}()
	return listener
}

// withoutEngine leaves the choice of the engine to the shim.
func (d *daemon) withoutEngine(s spec) spec {
	s.opts = append(slices.Clone(s.opts), func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
		delete(spec.Annotations, "io.hetgpu.engine")
		return nil
	})
	return s
}

// Processes have the library in their memory: no other one will do.
func TestGPUSplitLibraryReplaced(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy()
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, false)
	file := filepath.Join(d.hetgpu, "libhetcuda", "libcuda.so.1")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(readManifest(t, dir).Library.BuildID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replace(file, whole); err != nil {
			t.Error(err)
		}
	})
	other := slices.Clone(id)
	other[0] ^= 1
	if err := replace(file, bytes.Replace(whole, id, other, 1)); err != nil {
		t.Fatal(err)
	}
	expectError(t, c.checkpointTo(ctx, filepath.Join(t.TempDir(), "snapshot"), false), "another one is installed now")
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
	c.remove()
	d.expectRestoreFails(ctx, t, s, dir, "build "+hex.EncodeToString(id), hex.EncodeToString(other))
	plain := d.withoutEngine(s)
	plain.opts = append(plain.opts, annotated("io.hetgpu.engine", "driver"))
	d.expectRestoreFails(ctx, t, plain, dir, "libhetcuda", "the container has none")
	if err := replace(file, whole); err != nil {
		t.Fatal(err)
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// replace puts another file into the place of one that may be in use.
func replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o755); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Programs that the driver's own checkpoint refuses, or that wait for one another.
func TestGPUSplitPrograms(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		ranks int
	}{
		"managed memory":                  {[]string{"-m"}, 1},
		"managed memory, by system calls": {[]string{"-m", "-s"}, 1},
		"managed variables":               {[]string{"-v", "plain"}, 1},
		"collective":                      {[]string{"-n", "2", "-c"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/userfaultfd"); err != nil && slices.Contains(tc.args, "-s") {
				t.Skipf("system calls can't use managed memory here: %v", err)
			}
			d := onGPUs(t)
			ctx := d.testContext(t)
			s := d.split(spec{args: append([]string{inContainer + "/toy", "-i", "10"}, tc.args...)})
			c := d.run(ctx, t, s)
			c.ticksOn(ctx, tc.ranks)
			dir := c.mustCheckpoint(ctx, false)
			expectSplit(t, dir)
			c.expectGoesOn(ctx, tc.ranks)
			r := d.restore(ctx, t, s, dir)
			r.expectGoesOn(ctx, tc.ranks)
			c.expectGoesOn(ctx, tc.ranks)
			r.stop(ctx)
			c.stop(ctx)
		})
	}
}

// A managed variable that stays the driver's, since its image can't be read, is what a
// checkpoint is refused for, by its name; the container goes on.
func TestGPUSplitVariablesRefused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-v", "compressed"}}), 1)
	expectError(t, p.checkpoint(ctx), "1 __managed__ variables", "checkpoint: managed")
	p.expectUnharmed(ctx)
}

// Processes that share device memory and events by legacy IPC are saved as a
// whole: memory is stored once, and both are shared again.
func TestGPUSplitLegacyIPC(t *testing.T) {
	for _, what := range []string{"keep", "event"} {
		t.Run(what, func(t *testing.T) { testGPUSplitLegacyIPC(t, what) })
	}
}

func testGPUSplitLegacyIPC(t *testing.T, what string) {
	t.Helper()
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "3000000", "-p", what}})
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 2)
	dir := c.mustCheckpoint(ctx, false)
	c.expectGoesOn(ctx, 2)
	const once = 4 << 20 // of each rank, in chunks of 2 MiB
	if m := expectSplit(t, dir); m.Split() != 2 || m.Memory.Bytes != 2*once {
		t.Errorf("%d processes are split, memory %+v", m.Split(), m.Memory)
	}
	for range 2 {
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 2)
		// And is saved once more, and goes on from there.
		dir = r.mustCheckpoint(ctx, true)
		r.waitExit(ctx)
		r.delete(ctx)
		r.remove()
	}
	c.expectGoesOn(ctx, 2)
	c.stop(ctx)
}
