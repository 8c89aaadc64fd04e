// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

const (
	// muslLoader is where programs for musl ask for their linker, which is musl
	// itself.
	muslLoader = "/lib/ld-musl-x86_64.so.1"
	// inMusl is where the container finds programs of testdata, and inMuslStandIn
	// the stand-in's, with its libcuda.
	inMusl        = "/musl"
	inMuslStandIn = "/musl-standin"
	// driverLibrary is where NVIDIA's tools mount it.
	driverLibrary = "/usr/lib/libcuda.so.580.159.04"
)

// withMusl lets a container run programs that are built for musl: those named of
// testdata, and the stand-in's.
func withMusl(ctx context.Context, t *testing.T, names ...string) oci.SpecOpts {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		out, err := exec.CommandContext(ctx, "musl-gcc", "-O2", "-o", filepath.Join(dir, name), filepath.Join("testdata", name+".c")).CombinedOutput()
		if err != nil {
			t.Fatalf("build %s for musl, run 'make setup': %v\n%s", name, err, out)
		}
	}
	loader, err := filepath.EvalSymlinks(muslLoader)
	if err != nil {
		t.Fatal(err)
	}
	return withBinds(map[string]string{inMusl: dir, inMuslStandIn: muslStandIn(t), muslLoader: loader})
}

// muslStandIn is the directory of the stand-in for musl.
func muslStandIn(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "bin", "standin-musl"))
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "libcuda.so.1"))
	}
	if err != nil {
		t.Fatalf("the stand-in for musl is missing, run 'make standin-musl': %v", err)
	}
	return dir
}

// withBinds mounts files and directories of the host, by where the container has
// them.
func withBinds(sources map[string]string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		for destination, source := range sources {
			s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: source, Destination: destination, Options: []string{"bind", "ro"}})
		}
		return nil
	}
}

// A program for musl, with a driver that musl can load, runs the same libhetcuda
// as others, and is saved and restored with its memory.
func TestGPUSplitMusl(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	// Room for two of what comes back at once.
	d.change(t, standin.H200s(2, 1).WithMemory(128<<20))
	s := spec{args: []string{inMuslStandIn + "/vmmtoy", "-i", "10", "-a", "-b", "12000000"}, opts: []oci.SpecOpts{
		d.withProgram, withMusl(ctx, t), withBinds(map[string]string{driverLibrary: filepath.Join(muslStandIn(t), "libcuda.so.1")}),
		d.withGPUs(0), annotated("io.hetgpu.engine", "split"),
	}}
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 1)
	_, maps := c.execOutput(t, d, "cat", "/proc/1/maps")
	for library, want := range map[string]bool{muslLoader: true, "/run/hetgpu/lib/libcuda.so.1": true, driverLibrary: true, "libc.so.6": false} {
		if strings.Contains(maps, library) != want {
			t.Errorf("%s is in the process's memory: %v, want %v\n%s", library, !want, want, maps)
		}
	}
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	if m := expectSplit(t, dir); m.Split() != 1 || m.Memory.Bytes < 12000000 {
		t.Errorf("%d processes are split, memory %+v", m.Split(), m.Memory)
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	if first := r.firstTick(); first <= before[0] {
		t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
	}
	// And is saved once more.
	expectSplit(t, r.mustCheckpoint(ctx, false))
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// A driver that needs glibc, as NVIDIA's does, in a container with musl: programs
// that need no GPU run as they would without us, those that do are told why there is
// none, and programs for glibc in the same container have it.
func TestGPUSplitMuslWithoutDriver(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{inMusl + "/counter", "-m", "4", "-c", "2"}, opts: []oci.SpecOpts{withMusl(ctx, t, "counter", "loads")}})
	c := d.run(ctx, t, s)
	c.stdout.waitMore(ctx, t, 3)
	for _, program := range []struct {
		args   []string
		status uint32
		says   []string
	}{
		{[]string{inMusl + "/loads", "libc.so"}, 0, []string{"loaded\n"}},
		// What can use a GPU and needs none.
		{[]string{inMusl + "/loads", "libcuda.so.1"}, 0, []string{"loaded\n", "gcompat"}},
		{[]string{inMuslStandIn + "/toy"}, 1, []string{"error: cuInit", "can't be loaded, so every call fails", driverLibrary, "gcompat"}},
	} {
		status, out := c.execOutput(t, d, program.args...)
		if status != program.status {
			t.Errorf("%v: exit status %d, want %d: %s", program.args, status, program.status, out)
		}
		for _, want := range program.says {
			if !strings.Contains(out, want) {
				t.Errorf("%v says %q, want %q in it", program.args, out, want)
			}
		}
	}
	toy := fmt.Sprintf("HETGPU_STANDIN=%s %s/toy -i 10 </dev/null >/dev/null 2>&1 &", d.gpu.Dir, inContainer)
	if status, out := c.execOutput(t, d, "sh", "-c", toy); status != 0 {
		t.Fatal(out)
	}
	c.expectListeners(ctx, t, d, 1)
	after := c.stdout.last(t)
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	if m := expectSplit(t, dir); m.Split() != 1 {
		t.Errorf("%d processes are split", m.Split())
	}
	r := d.restore(ctx, t, s, dir)
	expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
	r.expectStates(ctx, 1, "running")
	r.stop(ctx)
}
