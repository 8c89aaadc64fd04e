// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// muslLoader is where programs for musl ask for their linker, which is musl
	// itself.
	muslLoader = "/lib/ld-musl-x86_64.so.1"
	// inMusl is where the container finds them.
	inMusl = "/musl"
)

// withMusl lets a container run programs of testdata that are built for musl.
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
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		for source, destination := range map[string]string{dir: inMusl, loader: muslLoader} {
			s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: source, Destination: destination, Options: []string{"bind", "ro"}})
		}
		return nil
	}
}

// What is injected does not disturb programs for musl, with which libhetcuda does
// not work, as NVIDIA's driver doesn't. Programs for glibc in the same container run
// it.
func TestGPUSplitMusl(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{inMusl + "/counter", "-m", "4", "-c", "2"}, opts: []oci.SpecOpts{withMusl(ctx, t, "counter", "loads")}})
	c := d.run(ctx, t, s)
	c.stdout.waitMore(ctx, t, 3)
	status, out := c.execOutput(t, d, inMusl+"/loads", "libcuda.so.1")
	if status != 0 || !strings.Contains(out, "/run/hetgpu/lib/libcuda.so.1") || strings.Contains(out, "loaded") {
		t.Errorf("exit status %d: %s", status, out)
	}
	// One that would be there without us is.
	if status, out := c.execOutput(t, d, inMusl+"/loads", "libc.so"); status != 0 || out != "loaded\n" {
		t.Errorf("exit status %d: %s", status, out)
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
