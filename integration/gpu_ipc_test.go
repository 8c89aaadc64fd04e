// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// watched skips the test where calls can't be counted.
func watched(t *testing.T) *daemon {
	t.Helper()
	if err := ipcwatch.Supported(); err != nil {
		t.Skipf("legacy CUDA IPC can't be watched here: %v", err)
	}
	return onGPUs(t)
}

// A process that has opened another's memory by a legacy handle could not be
// restored. Nothing is asked of the driver that would change anything.
func TestGPULegacyIPC(t *testing.T) {
	d := watched(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.toy("-n", "2", "-p", "keep"), 2)
	seen := len(d.callsSoFar(t))
	for _, exit := range []bool{false, true} {
		expectError(t, p.checkpointDirectly(ctx, exit), "GPU prepare of process", "1 legacy CUDA IPC handles are open", "not supported by the GPU driver")
		p.expectUnharmed(ctx)
	}
	for _, c := range d.callsSoFar(t)[seen:] {
		if c.Op != "state" && c.Op != "tid" {
			t.Errorf("the driver was asked to %s process %d", c.Op, c.PID)
		}
	}
	p.expectStates(ctx, 2, "running")
	// Another container that uses the same library is none the worse.
	q := d.patient(ctx, t, d.toy("-n", "2"), 2)
	for range 2 {
		q.mustCheckpoint(ctx, false)
	}
	q.expectRunsOn(ctx)
	q.stop(ctx)
	p.stop(ctx)
}

// Once the handle is closed nothing is in the way, also in a restored
// container, whose processes have the traces of probes.
func TestGPULegacyIPCClosed(t *testing.T) {
	d := watched(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.toy("-n", "2", "-p", "close"), 2)
	if err := p.checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	p.expectRunsOn(ctx)
	restored := d.restore(ctx, t, d.toy("-n", "2", "-p", "close"), p.dir)
	restored.expectGoesOn(ctx, 2)
	dir := restored.mustCheckpoint(ctx, true)
	restored.waitExit(ctx)
	restored.delete(ctx)
	again := d.restore(ctx, t, d.toy("-n", "2", "-p", "close"), dir)
	again.expectGoesOn(ctx, 2)
	// The kernel removes probes until the shims that set them are gone.
	shims := append(d.shims(t, again.id), d.shims(t, p.id)...)
	again.stop(ctx)
	p.stop(ctx)
	err := testbed.Eventually(ctx, "the shims have ended", func() error {
		for _, pid := range shims {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				return fmt.Errorf("shim %d has not", pid)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Where nobody watches then, there is nothing left of the probes.
	s := d.toy("-n", "2", "-p", "close")
	s.opts = append(s.opts, annotated("io.hetgpu.nvidia.ipc", "none"))
	unwatched := d.restore(ctx, t, s, dir)
	unwatched.expectGoesOn(ctx, 2)
	for _, pid := range unwatched.gpuProcesses(ctx) {
		if err := d.compareCode(pid); err != nil {
			t.Error(err)
		}
	}
	unwatched.stop(ctx)
}

// compareCode fails if a process's code of libcuda isn't that of the file.
func (d *daemon) compareCode(pid int) error {
	lib, err := os.ReadFile(filepath.Join(d.programs, "libcuda.so.1"))
	if err != nil {
		return err
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	defer memory.Close()
	compared := 0
	for line := range strings.Lines(string(maps)) {
		var start, end, offset int64
		if _, err := fmt.Sscanf(line, "%x-%x r-xp %x", &start, &end, &offset); err != nil || !strings.Contains(line, "/libcuda.so.1") {
			continue
		}
		code := make([]byte, min(end-start, int64(len(lib))-offset))
		if _, err := memory.ReadAt(code, start); err != nil {
			return err
		}
		for i, b := range code {
			if b != lib[offset+int64(i)] {
				return fmt.Errorf("process %d has %#x at %#x, and the file %#x", pid, b, offset+int64(i), lib[offset+int64(i)])
			}
		}
		compared += len(code)
	}
	if compared == 0 {
		return fmt.Errorf("process %d has no code of libcuda", pid)
	}
	return nil
}

// below lets a container see the stand-in's programs in a directory below the
// one that is mounted, where nobody looks for libraries.
func (d *daemon) below(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Mounts = append(s.Mounts,
		specs.Mount{Type: "bind", Source: filepath.Dir(d.programs), Destination: "/deep", Options: []string{"rbind", "ro"}},
		specs.Mount{Type: "bind", Source: d.gpu.Dir, Destination: d.gpu.Dir, Options: []string{"rbind", "rw"}},
	)
	s.Process.Env = append(s.Process.Env, "HETGPU_STANDIN="+d.gpu.Dir)
	return nil
}

// Where calls could be missed, a process alone can be saved, and several only
// with a promise.
func TestGPULegacyIPCUnwatched(t *testing.T) {
	d := watched(t)
	hidden := func(args ...string) spec {
		s := d.toy(args...)
		s.args[0] = path.Join("/deep", filepath.Base(d.programs), "toy")
		s.opts = []oci.SpecOpts{d.below, d.withGPUs(0)}
		return s
	}
	t.Run("several", func(t *testing.T) {
		ctx := d.testContext(t)
		p := d.patient(ctx, t, hidden("-n", "2"), 2)
		expectError(t, p.checkpoint(ctx), "cannot tell", "libcuda.so.1 was not there when the container was created", "io.hetgpu.nvidia.ipc=none")
		p.expectUnharmed(ctx)
		p.stop(ctx)
	})
	t.Run("alone", func(t *testing.T) {
		ctx := d.testContext(t)
		d.patient(ctx, t, hidden(), 1).expectRecovered(ctx)
	})
	t.Run("promised", func(t *testing.T) {
		ctx := d.testContext(t)
		s := hidden("-n", "2")
		s.opts = append(s.opts, annotated("io.hetgpu.nvidia.ipc", "none"))
		d.patient(ctx, t, s, 2).expectRecovered(ctx)
	})
}

// A shim watches containers with a GPU and no others, as long as they exist.
func TestGPULegacyIPCLeavesNothing(t *testing.T) {
	d := watched(t)
	ctx := d.testContext(t)
	together := oci.WithAnnotations(map[string]string{"io.containerd.runc.v2.group": newID(t)})
	plain := counting("-m", "8")
	plain.opts = append(plain.opts, together)
	companion := d.run(ctx, t, plain)
	if n := d.bpfFiles(t, companion); n > 0 {
		t.Errorf("a container without a GPU is watched with %d files", n)
	}
	s := d.toy()
	s.opts = append(s.opts, together)
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	if d.bpfFiles(t, companion) == 0 {
		t.Error("nobody watches the container with a GPU")
	}
	c.stop(ctx)
	err := testbed.Eventually(ctx, "the probes are gone", func() error {
		if n := d.bpfFiles(t, companion); n > 0 {
			return fmt.Errorf("the shim has %d files", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	companion.stop(ctx)
}

// bpfFiles counts the files by which the container's shim holds BPF objects and
// probes.
func (d *daemon) bpfFiles(t *testing.T, c *container) (n int) {
	t.Helper()
	for _, pid := range d.shims(t, c.id) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			to, err := os.Readlink(f)
			if err == nil && (strings.HasPrefix(to, "anon_inode:bpf") || strings.Contains(to, "perf_event")) {
				n++
			}
		}
	}
	return n
}
