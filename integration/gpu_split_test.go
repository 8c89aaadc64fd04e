// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

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
