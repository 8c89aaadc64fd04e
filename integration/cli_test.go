// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/inspect"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// cli runs the hetgpu command, which has to end with the given exit status,
// and returns all that it wrote.
func (d *daemon) cli(ctx context.Context, t *testing.T, status int, args ...string) string {
	t.Helper()
	cmd, err := d.Command(ctx, "hetgpu", args...)
	if err != nil {
		t.Fatal(err)
	}
	// An error to run it at all shows as the exit status -1.
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Fatalf("hetgpu %s: exit status %d (%v), not %d:\n%s", strings.Join(args, " "), got, err, status, out)
	}
	return string(out)
}

// cliJSON is cli for what is written as JSON, and nothing else.
func cliJSON[T any](ctx context.Context, t *testing.T, d *daemon, status int, args ...string) T {
	t.Helper()
	var report T
	out := d.cli(ctx, t, status, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return report
}

// expectText fails unless a text has all of the parts.
func expectText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// pack makes a tar of a directory, as a person does.
func pack(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", dir, "-cf", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return file
}

// damage changes one bit in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A snapshot tells the same of itself as a directory, as a tar, and as an image.
func TestInspect(t *testing.T) {
	skipOnStock(t, "it writes no manifest")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c, ref, _ := d.checkpointed(ctx, t, counting("-m", "8", "-c", "3"))
		dir := filepath.Join(t.TempDir(), "snapshot")
		d.ctr(ctx, t, "task", "checkpoint", "--image-path", dir, c.id)
		c.stop(ctx)
		c.remove()

		for kind, args := range map[string][]string{
			inspect.KindDirectory: {dir},
			inspect.KindTar:       {pack(ctx, t, dir)},
			inspect.KindImage:     {ref, "--address", d.Address(), "--namespace", d.Namespace},
		} {
			args = append([]string{"inspect"}, args...)
			expectText(t, d.cli(ctx, t, 0, args...), "engine     none\n", "digests    ok\n", "4 processes, 4 threads\n", c.id+" in namespace "+d.Namespace)
			r := cliJSON[inspect.Report](ctx, t, d, 0, args...)
			if r.Source.Kind != kind || r.Digests != inspect.DigestsMatch || len(r.Problems) > 0 || r.Content.Files != len(r.Manifest.Files) {
				t.Errorf("%s: %+v", kind, r)
			}
			if m := r.Manifest; m.Engine != snapshot.EngineNone || m.Container.ID != c.id || len(m.Processes) > 0 || len(m.Devices) > 0 {
				t.Errorf("%s: the manifest is %+v", kind, m)
			}
			expectCounters(t, r.Processes)
		}
		d.expectNothingLeft(t)
	})
}

// expectCounters fails unless the processes are a counter and its three
// children.
func expectCounters(t *testing.T, procs []inspect.Process) {
	t.Helper()
	if len(procs) != 4 || procs[0].PID != 1 || procs[0].PPID != 0 {
		t.Fatalf("processes %+v", procs)
	}
	for i, p := range procs {
		if p.Command != "counter" || p.Threads != 1 || p.GPU || i > 0 && (p.PPID != 1 || p.PID <= procs[i-1].PID) {
			t.Errorf("process %+v", p)
		}
	}
}

// The processes that held GPU state are marked, and no other.
func TestInspectGPU(t *testing.T) {
	skipOnStock(t, "it can't save GPU state")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.toy("-n", "2"))
		c.ticksOn(ctx, 2)
		dir := c.mustCheckpoint(ctx, false)
		c.stop(ctx)
		c.remove()

		r := cliJSON[inspect.Report](ctx, t, d, 0, "inspect", dir)
		marked := map[string]bool{}
		for _, p := range r.Processes {
			marked[p.Command] = p.GPU
		}
		if len(r.Processes) != 3 || len(marked) != 3 || !marked["toy0"] || !marked["toy1"] || marked["toy"] {
			t.Errorf("processes %+v", r.Processes)
		}
		if r.Manifest.Engine != snapshot.EngineDriver || len(r.Manifest.Devices) != 1 || r.Manifest.Devices[0].UUID != usual.GPUs[0].UUID {
			t.Errorf("the manifest is %+v", r.Manifest)
		}
		expectMadeWith(ctx, t, d, r.Manifest)
		expectText(t, d.cli(ctx, t, 0, "inspect", dir), usual.GPUs[0].UUID, " toy0, 2 threads, GPU state\n", " toy1, 2 threads, GPU state\n", "gpu-suspend", "driver "+usual.Driver)
		d.expectNothingLeft(t)
	})
}

// expectMadeWith fails unless the manifest says what the snapshot of a GPU's
// container was made with, and how long each step took.
func expectMadeWith(ctx context.Context, t *testing.T, d *daemon, m *snapshot.Manifest) {
	t.Helper()
	for program, got := range map[string]string{"runc": m.Host.Runc, "criu": m.Host.CRIU} {
		out, err := d.Exec(ctx, program, "--version")
		if err != nil {
			t.Fatal(err)
		}
		if got == "" || !strings.Contains(out, got) {
			t.Errorf("%s is %q in the manifest, and says %q", program, got, out)
		}
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if h := m.Host; h.Kernel != strings.TrimSpace(string(kernel)) || h.Driver != usual.Driver || h.API != usual.CUDA || h.Arch != runtime.GOARCH {
		t.Errorf("the manifest says %+v", h)
	}
	var steps []string
	for _, p := range m.Phases {
		steps = append(steps, p.Name)
		if p.Seconds < 0 {
			t.Errorf("%s took %v s", p.Name, p.Seconds)
		}
	}
	for _, step := range []string{"preflight", "gpu-lock", "gpu-suspend", "freeze", "dump", "gpu-resume", "seal"} {
		if !slices.Contains(steps, step) {
			t.Errorf("%q is not among the phases %q", step, steps)
		}
	}
}

// One bit is enough to refuse a snapshot, with the name of the file.
func TestInspectDamaged(t *testing.T) {
	skipOnStock(t, "it writes no manifest")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-m", "8"))
		c.stdout.waitMore(ctx, t, 3)
		dir := filepath.Join(t.TempDir(), "snapshot")
		d.ctr(ctx, t, "task", "checkpoint", "--exit", "--image-path", dir, c.id)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()

		const damaged = "pages-1.img"
		damage(t, filepath.Join(dir, damaged))
		for _, path := range []string{dir, pack(ctx, t, dir)} {
			expectText(t, d.cli(ctx, t, 1, "inspect", path), "PROBLEM ", damaged, "digests    failed\n")
			r := cliJSON[inspect.Report](ctx, t, d, 1, "inspect", path)
			if r.Digests != inspect.DigestsDiffer || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], damaged) {
				t.Errorf("%s: %s, %q", path, r.Digests, r.Problems)
			}
			// Its name and size are right.
			expectText(t, d.cli(ctx, t, 0, "inspect", "--no-verify", path), "digests    not verified\n")
		}
		d.expectNothingLeft(t)
	})
}

func TestInspectOfTheStockShim(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		t.Cleanup(func() {
			ctx, cancel := d.cleanupContext()
			defer cancel()
			if err := d.removeContainer(ctx, id); err != nil {
				t.Error(err)
			}
		})
		d.ctr(ctx, t, "run", "--detach", "--runtime", stockRuntime, "--snapshotter", d.Snapshotter, testbed.ImageName, id, "counter", "-c", "3")
		c := d.attach(ctx, t, id)
		c.stdout.waitMore(ctx, t, 3)
		dir := filepath.Join(t.TempDir(), "snapshot")
		d.ctr(ctx, t, "task", "checkpoint", "--image-path", dir, id)
		for _, path := range []string{dir, pack(ctx, t, dir)} {
			expectText(t, d.cli(ctx, t, 0, "inspect", path), "by the stock shim (no manifest)\n", "digests    none\n")
			r := cliJSON[inspect.Report](ctx, t, d, 0, "inspect", path)
			if r.Manifest != nil || r.Digests != inspect.DigestsAbsent {
				t.Errorf("%+v", r)
			}
			expectCounters(t, r.Processes)
		}
		c.stop(ctx)
		c.remove()
		d.expectNothingLeft(t)
	})
}

// What is no snapshot is said to be none, and where it was looked for.
func TestInspectNoSnapshot(t *testing.T) {
	d := daemons[0]
	ctx := d.testContext(t)
	daemon := []string{"--address", d.Address(), "--namespace", d.Namespace}
	for _, tc := range []struct {
		args  []string
		parts []string
	}{
		{append(daemon, testbed.ImageName), []string{testbed.ImageName, "no snapshot found"}},
		{append(daemon, "test.hetgpu.local/missing:1"), []string{"test.hetgpu.local/missing:1", d.Namespace, "not found"}},
		{[]string{"--address", filepath.Join(d.Dir, "none.sock"), "test.hetgpu.local/missing:1"}, []string{"none.sock", "containerd can't be asked"}},
		{[]string{d.Dir}, []string{d.Dir, "no snapshot found"}},
	} {
		expectText(t, d.cli(ctx, t, 1, append([]string{"inspect"}, tc.args...)...), tc.parts...)
	}
}

// results returns the results of one check.
func results(t *testing.T, r doctor.Report, name string) []doctor.Result {
	t.Helper()
	list := slices.DeleteFunc(slices.Clone(r.Checks), func(c doctor.Result) bool { return c.Name != name })
	if len(list) == 0 {
		t.Fatalf("no result of %s in %+v", name, r)
	}
	return list
}

// "make setup" and "make build" leave nothing to do, and the driver that
// stands in is found as a real one is.
func TestDoctor(t *testing.T) {
	d := daemons[0]
	ctx := d.testContext(t)
	expectText(t, d.cli(ctx, t, 0, "doctor", "--address", d.Address()), "criu check passed", usual.GPUs[0].UUID)
	r := cliJSON[doctor.Report](ctx, t, d, 0, "doctor", "--address", d.Address())
	if !r.OK {
		t.Errorf("%+v", r)
	}
	for name, part := range map[string]string{
		"containerd": d.version, "containerd daemon": d.Address() + " " + d.version, "runc": "/runc ", "shim": "containerd-shim-hetgpu-v2",
		"device helper": "hetgpu-gpu", "kernel": "Linux ", "CRIU": "/criu ", "cgroups": "freezer", "config": d.configFile(), "privileges": "root",
		// What the driver can do is told by its functions.
		"GPU driver": "NVIDIA " + usual.Driver + ", CUDA 13.0; without cuCheckpoint",
	} {
		if c := results(t, r, name)[0]; c.Status != doctor.OK || !strings.Contains(c.Found, part) {
			t.Errorf("%+v; want ok, with %q", c, part)
		}
	}
	gpus := results(t, r, "GPU")
	for i, gpu := range usual.GPUs {
		if len(gpus) != len(usual.GPUs) || gpus[i].Status != doctor.OK || !strings.Contains(gpus[i].Found, gpu.UUID) {
			t.Fatalf("GPUs %+v, want %+v", gpus, usual.GPUs)
		}
	}
}

// A driver that is too old, or a GPU that is split, is told with what to do.
func TestDoctorOtherGPUs(t *testing.T) {
	d := daemons[0]
	ctx := d.testContext(t)
	d.change(t, standin.Spec{Driver: "565.57.01", CUDA: 12070, GPUs: usual.GPUs})
	r := cliJSON[doctor.Report](ctx, t, d, 1, "doctor", "--address", d.Address())
	c := results(t, r, "GPU driver")[0]
	if r.OK || c.Status != doctor.Fail || !strings.Contains(c.Found, "cuCheckpointProcessLock") || !strings.Contains(c.Advice, "570") {
		t.Errorf("%+v", c)
	}

	split := slices.Clone(usual.GPUs)
	split[1].MIG = true
	d.change(t, standin.Spec{Driver: usual.Driver, CUDA: usual.CUDA, GPUs: split})
	r = cliJSON[doctor.Report](ctx, t, d, 0, "doctor", "--address", d.Address())
	gpus := results(t, r, "GPU")
	if len(gpus) != 2 || gpus[0].Status != doctor.OK || gpus[1].Status != doctor.Warn || !strings.Contains(gpus[1].Advice, "MIG") {
		t.Errorf("%+v", gpus)
	}
}

// Without a CRIU that works there are no checkpoints: that is a failure, with
// what to install.
func TestDoctorWithoutCRIU(t *testing.T) {
	d := daemons[0]
	ctx := d.testContext(t)
	dir := t.TempDir()
	program := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct{ name, criu, found string }{
		{"missing", filepath.Join(dir, "no-criu"), "no-criu"},
		{"too old", program("old", `echo "Version: 3.17.1"`), "3.17.1"},
		{"unfit", program("unfit", `[ "$1" = --version ] && echo "Version: 4.2.1" && exit; echo "Error: no such feature"; exit 1`), "no such feature"},
		{"broken", program("broken", "exit 127"), "127"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte("[criu]\npath = \""+tc.criu+"\"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"doctor", "--config", file, "--address", d.Address()}
			expectText(t, d.cli(ctx, t, 1, args...), "\nfail ", tc.found, "-> install CRIU", "make setup")
			r := cliJSON[doctor.Report](ctx, t, d, 1, args...)
			for _, c := range r.Checks {
				isCRIU := c.Name == "CRIU"
				if (c.Status == doctor.Fail) != isCRIU || isCRIU && (!strings.Contains(c.Found, tc.found) || !strings.Contains(c.Advice, "install")) {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}
