// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// expectError fails unless there is an error with all of the words.
func expectError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one that says %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

// A machine with another driver than the usual one.
func withDriver(s standin.Spec, version string) standin.Spec {
	s.Driver = version
	return s
}

// withGPU changes the first GPU of a machine.
func withGPU(s standin.Spec, change func(*standin.GPU)) standin.Spec {
	s.GPUs = append([]standin.GPU{}, s.GPUs...)
	change(&s.GPUs[0])
	return s
}

// saved is a snapshot of a container that has ended: a toy on the first GPU.
func (d *daemon) saved(ctx context.Context, t *testing.T, s spec, ranks int) (dir string, last map[int]int) {
	t.Helper()
	c := d.run(ctx, t, s)
	last = c.ticksOn(ctx, ranks)
	dir = c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	c.remove()
	return dir, last
}

// Another GPU of the same model will do.
func TestGPUAnotherDevice(t *testing.T) {
	other := standin.H200s(2, 2)
	for name, tc := range map[string]struct {
		machine standin.Spec
		minor   int
		want    standin.GPU
	}{
		"another host":             {other, 0, other.GPUs[0]},
		"another GPU of this host": {usual, 1, usual.GPUs[1]},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			dir, last := d.saved(ctx, t, d.toy(), 1)
			d.change(t, tc.machine)
			s := d.toy()
			s.opts = []oci.SpecOpts{d.withProgram, d.withGPUs(tc.minor)}
			r := d.restore(ctx, t, s, dir)
			r.expectGoesOn(ctx, 1)
			if first := r.firstTick(); first <= last[0] {
				t.Errorf("it went on at tick %d after tick %d", first, last[0])
			}
			d.expectUsed(t, tc.want, mib)
			// And from there.
			dir = r.mustCheckpoint(ctx, false)
			r.stop(ctx)
			again := d.restore(ctx, t, s, dir)
			again.expectGoesOn(ctx, 1)
			d.expectUsed(t, tc.want, mib)
			again.stop(ctx)
		})
	}
}

// A machine or a container that can't take the snapshot is refused before
// anything starts, saying which device does not do and why.
func TestGPUOtherDevicesRefused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	one, two := []oci.SpecOpts{d.withProgram, d.withGPUs(0)}, []oci.SpecOpts{d.withProgram, d.withGPUs(0, 1)}
	onOne, _ := d.saved(ctx, t, d.toy("-b", "33554432"), 1)
	s := d.toy("-n", "2")
	s.opts = two
	onTwo, _ := d.saved(ctx, t, s, 2)
	uuid := usual.GPUs[0].UUID
	for name, tc := range map[string]struct {
		machine standin.Spec
		dir     string
		opts    []oci.SpecOpts
		says    []string
	}{
		"another model": {
			withGPU(standin.H200s(1, 2), func(g *standin.GPU) { g.Name = "NVIDIA H100" }), onOne, one,
			[]string{uuid, "NVIDIA H100", "another model"},
		},
		"less memory": {
			withGPU(standin.H200s(1, 2), func(g *standin.GPU) { g.Memory /= 2 }), onOne, one,
			[]string{uuid, "32 MiB of memory", "64 MiB"},
		},
		"memory in use": {
			withGPU(usual, func(g *standin.GPU) { g.Used = 48 * mib }), onOne, one,
			[]string{uuid, "16 MiB of memory free", "32 MiB"},
		},
		"older driver": {
			withDriver(usual, "570.86.15"), onOne, one,
			[]string{"570.86.15", "older", usual.Driver},
		},
		"MIG": {
			withGPU(usual, func(g *standin.GPU) { g.MIG = true }), onOne, one,
			[]string{uuid, "MIG"},
		},
		"device gone":              {withGPU(usual, func(g *standin.GPU) { g.Minor = 7 }), onOne, one, []string{uuid}},
		"no device in container":   {usual, onOne, []oci.SpecOpts{d.withProgram}, []string{`engine "driver"`, "give it the GPUs"}},
		"fewer devices":            {usual, onTwo, one, []string{usual.GPUs[1].UUID, "fewer GPUs"}},
		"engine none":              {usual, onOne, append([]oci.SpecOpts{annotated("io.hetgpu.engine", "none")}, one...), []string{`engine is "none"`}},
		"no driver":                {standin.Spec{Driver: "none"}, onOne, one, []string{"driver"}},
		"no snapshot of GPU state": {usual, d.withoutManifest(t, onOne), one, []string{"without GPU state", "io.hetgpu.engine=none"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			d.change(t, tc.machine)
			seen := len(d.callsSoFar(t))
			c, err := d.tryRestore(ctx, t, spec{args: []string{"toy"}, opts: tc.opts}, tc.dir)
			expectError(t, err, tc.says...)
			if c.task != nil {
				t.Error("a task was created")
			}
			if calls := d.callsSoFar(t)[seen:]; len(calls) != 0 {
				t.Errorf("the driver was asked for %v", calls)
			}
			c.remove()
			d.expectNothingLeft(t)
		})
	}
	// None of these harmed the snapshots.
	r := d.restore(ctx, t, s, onTwo)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
}

func annotated(key, value string) oci.SpecOpts {
	return oci.WithAnnotations(map[string]string{key: value})
}

// withoutManifest returns a copy of a snapshot as it would be without us.
func (d *daemon) withoutManifest(t *testing.T, dir string) string {
	t.Helper()
	dir = copySnapshot(t, dir)
	if err := os.Remove(filepath.Join(dir, snapshot.ManifestName)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copySnapshot makes a copy of a snapshot that may be damaged.
func copySnapshot(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A snapshot of the stock shim, which has no manifest, restores as the stock
// shim would restore it if the container has no GPU.
func TestSnapshotOfStockShim(t *testing.T) {
	skipOnStock(t, "it is about ours")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		// The stock shim has no other way where there is no iptables.
		conf := filepath.Join(t.TempDir(), "criu.conf")
		if err := os.WriteFile(conf, []byte("network-lock skip\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := counting()
		s.runtime = stockRuntime
		s.opts = []oci.SpecOpts{annotated("org.criu.config", conf)}
		c := d.run(ctx, t, s)
		before := c.stdout.waitMore(ctx, t, 3)
		dir := c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		if _, err := os.Stat(filepath.Join(dir, snapshot.ManifestName)); err == nil {
			t.Fatal("the stock shim wrote a manifest")
		}
		r := d.restore(ctx, t, counting(), dir)
		expectWentOn(t, r.stdout.waitMore(ctx, t, 3), before[len(before)-1])
		r.stop(ctx)
		for _, c := range []*container{c, r} {
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// What the driver can't save is refused, with the container running and its
// GPU usable right afterwards.
func TestGPUManagedMemory(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.toy("-m"), 1)
	expectError(t, p.checkpoint(ctx), "gpu-suspend", "managed memory", "not supported by the GPU driver")
	p.expectUnharmed(ctx)
	// The next time the driver itself does not say why.
	expectError(t, p.checkpoint(ctx), "gpu-suspend", "CUDA_ERROR_UNKNOWN")
	p.expectUnharmed(ctx)
}

// CRIU dumps the first process and its descendants; a process that entered by
// exec would be lost, and with it what it has on the GPU.
func TestGPUExecHoldsState(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.toy(), 1)
	toy := d.toy()
	process := &specs.Process{Args: toy.args, Cwd: "/", Env: []string{"HETGPU_STANDIN=" + d.gpu.Dir}}
	out := newOutput()
	e, err := p.task.Exec(ctx, "two", process, cio.NewCreator(cio.WithStreams(nil, out, out), cio.WithFIFODir(filepath.Join(d.Dir, "fifo"))))
	if err != nil {
		t.Fatal(err)
	}
	exit, err := e.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	out.waitFor(ctx, t, "tick 3 ")
	expectError(t, p.checkpoint(ctx), "started in the container by exec")
	p.expectStates(ctx, 2, "running")
	p.ticksOn(ctx, 1)
	if err := e.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	waitExit(ctx, t, exit)
	if strings.Contains(out.String(), "error") {
		t.Errorf("the process of the exec says %q", out)
	}
	if _, err := e.Delete(ctx); err != nil {
		t.Error(err)
	}
	p.expectRecovered(ctx)
}

// A container that says that it uses no GPU is not taken at its word: CRIU
// finds the device.
func TestGPUEngineNone(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy()
	s.opts = append(s.opts, annotated("io.hetgpu.engine", "none"))
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := filepath.Join(t.TempDir(), "snapshot")
	expectExplained(t, c.checkpointTo(ctx, dir, false), "Can't dump file")
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
}
