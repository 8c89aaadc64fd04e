// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdispec "github.com/containerd/containerd/v2/pkg/cdi"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/hetgpu/containerd-shim-hetgpu/hooks/controldir"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// allGPUs is the device that is tested.
const allGPUs = "hetgpu.io/gpu=all"

// driverTree makes a file tree as a driver's installer does, of the stand-in, and
// device nodes as the kernel driver's.
func (d *daemon) driverTree(t *testing.T, version string) (driver, dev string) {
	t.Helper()
	driver, dev = t.TempDir(), t.TempDir()
	if err := standin.InstallDriver(filepath.Join(driver, libDir), d.programs, version); err != nil {
		t.Fatal(err)
	}
	smi := filepath.Join(driver, "usr", "bin", "nvidia-smi")
	if err := os.MkdirAll(filepath.Dir(smi), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(smi, []byte("#!/bin/sh\necho NVIDIA-SMI "+version+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dev, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"nvidia0": "nvidia0", "nvidia1": "nvidia1", "nvidiactl": "nvidiactl", "nvidia-uvm": "nvidiactl"} {
		if err := os.Symlink(filepath.Join(d.gpu.DevDir(), node), filepath.Join(dev, "dev", name)); err != nil {
			t.Fatal(err)
		}
	}
	return driver, dev
}

// generateCDI writes the CDI specification of the stand-in's machine into a
// directory.
func (d *daemon) generateCDI(ctx context.Context, t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	driver, dev := d.driverTree(t, usual.Driver)
	d.cli(ctx, t, 0, "cdi", "generate", "--driver-root", driver, "--dev-root", dev, "--output", filepath.Join(dir, "hetgpu.yaml"))
	return dir
}

// withCDI gives a container CDI devices as clients do.
func withCDI(t *testing.T, dir string, devices ...string) oci.SpecOpts {
	t.Helper()
	if err := cdi.Configure(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false)); err != nil {
		t.Fatal(err)
	}
	return cdispec.WithCDIDevices(devices...)
}

// What is written is what a reader takes, and says what is wrong if a host could
// not serve it.
func TestCDIGenerate(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	dir := d.generateCDI(ctx, t)
	file := filepath.Join(dir, "hetgpu.yaml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{allGPUs, "hetgpu.io/gpu=0", "hetgpu.io/gpu=1", "hetgpu.io/gpu=" + usual.GPUs[0].UUID, "hetgpu.io/gpu=" + usual.GPUs[1].UUID}
	slices.Sort(want)
	if got := cache.ListDevices(); !slices.Equal(got, want) || len(cache.GetErrors()) != 0 {
		t.Errorf("%q, %v", got, cache.GetErrors())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
	driver, dev := d.driverTree(t, usual.Driver)
	old, _ := d.driverTree(t, "570.86.10")
	noUVM := t.TempDir()
	if err := os.Mkdir(filepath.Join(noUVM, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dev, "dev", "nvidiactl"), filepath.Join(noUVM, "dev", "nvidiactl")); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		args []string
		says string
	}{
		"libraries of another driver": {[]string{"--driver-root", old, "--dev-root", dev}, "there is no libcuda.so." + usual.Driver},
		"no device nodes":             {[]string{"--driver-root", driver, "--dev-root", noUVM}, "nvidia-modprobe"},
		"no library":                  {[]string{"--driver-root", driver, "--dev-root", dev, "--library-dir", dev}, "make install"},
	} {
		expectText(t, d.cli(ctx, t, 1, append([]string{"cdi", "generate"}, tc.args...)...), tc.says)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	expectText(t, d.cli(ctx, t, 0, "cdi", "generate", "--driver-root", driver, "--dev-root", dev, "--library-path", "/opt/lib"),
		"kind: hetgpu.io/gpu", "LD_LIBRARY_PATH=/run/hetgpu/lib:/run/hetgpu/driver:/opt/lib")
}

// runcBundle is a bundle with a toy's root file system.
func (d *daemon) runcBundle(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle")
	rootfs := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		t.Fatal(err)
	}
	d.ctr(ctx, t, "images", "mount", "--rw", "--snapshotter", d.Snapshotter, d.image.Name(), rootfs)
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if _, err := d.Ctr(ctx, "images", "unmount", "--rm", "--snapshotter", d.Snapshotter, rootfs); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Exec(ctx, "runc", "spec", "--bundle", bundle); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(bundle, "config.json")
	var s oci.Spec
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Process.Terminal, s.Process.Args, s.Linux.CgroupsPath = false, args, "/"+d.Namespace+"/"+newID(t)
	s.Process.Env = append(s.Process.Env, "LD_LIBRARY_PATH=/opt/own")
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return m.Type == "cgroup" })
	if err := d.withProgram(ctx, nil, nil, &s); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(s); err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// A plain runc: the library is in front of the driver's, and listens where the
// host finds it; nothing is written into the image, and nothing is left.
func TestCDIPlainRunc(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	dir := d.generateCDI(ctx, t)
	bundle := d.runcBundle(ctx, t, inContainer+"/vmmtoy", "-i", "10")
	config := filepath.Join(bundle, "config.json")
	inject := func() []byte {
		d.cli(ctx, t, 0, "cdi", "inject", "--bundle", bundle, "--cdi-spec-dirs", dir, allGPUs)
		data, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if once, twice := inject(), inject(); !bytes.Equal(once, twice) {
		t.Errorf("it was edited twice:\n%s\n%s", once, twice)
	}
	d.cli(ctx, t, 1, "cdi", "inject", "--bundle", d.runcBundle(ctx, t), "--cdi-spec-dirs", dir, "hetgpu.io/gpu=7")

	r := d.runRunc(ctx, t, bundle)
	r.waitTicks(ctx)
	if found := controlSockets(t, bundle); len(found) == 0 {
		t.Error("no process listens in the control directory")
	}
	env := r.exec(ctx, "/bin/sh", "-c", "echo $LD_LIBRARY_PATH; /run/hetgpu/bin/nvidia-smi; echo $HETCUDA_REAL; ls /run/hetgpu/driver")
	expectText(t, env, "/run/hetgpu/lib:/run/hetgpu/driver:/opt/own\n", "NVIDIA-SMI "+usual.Driver,
		"/run/hetgpu/driver/libcuda.so."+usual.Driver, "libnvidia-ml.so.1\n", "libcuda.so\n")
	r.remove(ctx)
	if _, err := os.Lstat(controldir.Path(bundle)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the control directory is left: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(bundle, "rootfs", "run", "hetgpu")); err != nil || len(left) != 0 {
		t.Errorf("the image has %v, %v", left, err)
	}
	// And again from the same bundle.
	again := d.runRunc(ctx, t, bundle)
	again.waitTicks(ctx)
	again.remove(ctx)
	if _, err := os.Lstat(controldir.Path(bundle)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the control directory is left: %v", err)
	}
}

// A hook that fails stops the container from being made, and leaves nothing.
func TestCDIHookFails(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	dir := d.generateCDI(ctx, t)
	bundle := d.runcBundle(ctx, t, inContainer+"/vmmtoy")
	d.cli(ctx, t, 0, "cdi", "inject", "--bundle", bundle, "--cdi-spec-dirs", dir, allGPUs)
	inTheWay := filepath.Join(controldir.Path(bundle), "file")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	id := newID(t)
	_, err := d.Exec(ctx, "runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, id)
	expectError(t, err, "remove the control directory")
	if _, err := os.Stat(inTheWay); err != nil {
		t.Errorf("what was there is not: %v", err)
	}
	if list, err := d.Exec(ctx, "runc", "--root", filepath.Join(bundle, "state"), "list", "--quiet"); err != nil || list != "" {
		t.Errorf("runc has %q, %v", list, err)
	}
}

// controlSockets are where processes of a bundle's container listen.
func controlSockets(t *testing.T, bundle string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(controldir.Path(bundle), "hetcuda.*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// plainRunc is a container of runc, without containerd.
type plainRunc struct {
	t      *testing.T
	d      *daemon
	id     string
	root   string
	stdout *output
	done   chan struct{}
}

func (d *daemon) runRunc(ctx context.Context, t *testing.T, bundle string) *plainRunc {
	t.Helper()
	r := &plainRunc{t: t, d: d, id: newID(t), root: filepath.Join(bundle, "state"), stdout: newOutput(), done: make(chan struct{})}
	cmd, err := d.Command(ctx, "runc", "--root", r.root, "run", "--bundle", bundle, r.id)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = r.stdout, r.stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		_, _ = d.Exec(ctx, "runc", "--root", r.root, "delete", "--force", r.id) // it may have gone
	})
	return r
}

func (r *plainRunc) waitTicks(ctx context.Context) {
	r.t.Helper()
	err := r.stdout.wait(ctx, "three ticks", func(text string) bool { return strings.Count(text, "tick ") > 3 })
	if err != nil {
		r.t.Fatalf("%v: %s", err, r.stdout)
	}
}

func (r *plainRunc) exec(ctx context.Context, args ...string) string {
	r.t.Helper()
	out, err := r.d.Exec(ctx, "runc", append([]string{"--root", r.root, "exec", r.id}, args...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *plainRunc) remove(ctx context.Context) {
	r.t.Helper()
	if _, err := r.d.Exec(ctx, "runc", "--root", r.root, "kill", r.id, "KILL"); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.t.Fatal(context.Cause(ctx))
	}
	// `runc run` deletes what it ran.
	if _, err := r.d.Exec(ctx, "runc", "--root", r.root, "delete", "--force", r.id); err != nil {
		r.t.Fatal(err)
	}
}

// With our shim the CDI device alone, without an annotation, makes the engine the
// split engine; the hook has nothing to do, and both edits are one.
func TestGPUSplitByCDI(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := d.generateCDI(ctx, t)
		s := spec{
			args: []string{inContainer + "/vmmtoy", "-i", "10"},
			opts: []oci.SpecOpts{d.withProgram, withCDI(t, dir, "hetgpu.io/gpu=0")},
		}
		c := d.run(ctx, t, s)
		before := c.ticksOn(ctx, 1)
		snapshot := c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		expectSplit(t, snapshot)
		r := d.restore(ctx, t, s, snapshot)
		r.expectGoesOn(ctx, 1)
		if first := r.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
		}
		// By the annotation the driver's engine, with the library in front.
		s.opts = append(s.opts, annotated("io.hetgpu.engine", "driver"))
		other := d.run(ctx, t, s)
		other.ticksOn(ctx, 1)
		if m := readManifest(t, other.mustCheckpoint(ctx, false)); m.Engine != "driver" || m.Library == nil {
			t.Errorf("engine %s, library %v", m.Engine, m.Library)
		}
		other.stop(ctx)
		r.stop(ctx)
		r.remove()
		expectNoControlDir(t)
	})
}

// The recipe of docs/cdi.md for ctr, which looks in the usual directories only:
// here in a mount namespace, so that this machine's stay as they are.
func TestCDICtr(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := d.generateCDI(ctx, t)
		id, log := newID(t), filepath.Join(t.TempDir(), "log")
		t.Cleanup(func() {
			ctx, cancel := d.cleanupContext()
			defer cancel()
			if err := d.removeContainer(ctx, id); err != nil {
				t.Error(err)
			}
		})
		ctr, err := d.Lookup("ctr")
		if err != nil {
			t.Fatal(err)
		}
		args := append([]string{
			"--mount", "--propagation", "private", "sh", "-ec",
			`mount -t tmpfs cdi /run && mkdir /run/cdi && cp "$1"/* /run/cdi && shift && exec "$@"`, "sh", dir, ctr,
		}, d.CtrArgs("run", "--detach", "--log-uri", "file://"+log, "--snapshotter", d.Snapshotter, "--runtime", *runtimeName,
			"--device", allGPUs, "--env", "HETGPU_STANDIN="+d.gpu.Dir,
			"--mount", "type=bind,src="+d.programs+",dst="+inContainer+",options=rbind:ro",
			"--mount", "type=bind,src="+d.gpu.Dir+",dst="+d.gpu.Dir+",options=rbind:rw",
			d.image.Name(), id, inContainer+"/vmmtoy", "-i", "10")...)
		if out, err := exec.CommandContext(ctx, "unshare", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		waitTicksIn(ctx, t, log)
		if isStock() {
			return
		}
		saved := filepath.Join(t.TempDir(), "snapshot")
		d.ctr(ctx, t, "task", "checkpoint", "--image-path", saved, id)
		expectSplit(t, saved)
	})
}

// waitTicksIn waits until a toy's log has some ticks.
func waitTicksIn(ctx context.Context, t *testing.T, log string) {
	t.Helper()
	err := testbed.Eventually(ctx, "the toy goes on", func() error {
		text, err := os.ReadFile(log)
		if err == nil && strings.Count(string(text), "tick ") < 3 {
			err = fmt.Errorf("the log has %q", text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The recipe for nerdctl, with our shim and with the stock one, where the hook
// makes the control directory.
func TestCDINerdctl(t *testing.T) {
	for _, runtime := range []string{*runtimeName, stockRuntime} {
		t.Run(runtime, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			dir := d.generateCDI(ctx, t)
			id := strings.TrimSpace(d.nerdctl(ctx, t, "--cdi-spec-dirs", dir, "run", "--detach", "--net", "none", "--pull", "never",
				"--runtime", runtime, "--device", allGPUs, "--volume", d.programs+":"+inContainer+":ro", "--volume", d.gpu.Dir+":"+d.gpu.Dir,
				"--env", "HETGPU_STANDIN="+d.gpu.Dir, d.image.Name(), inContainer+"/vmmtoy", "-i", "10"))
			remove := func() {
				ctx, cancel := d.cleanupContext()
				defer cancel()
				if _, err := d.Nerdctl(ctx, "rm", "--force", id); err != nil {
					t.Error(err)
				}
			}
			t.Cleanup(remove)
			d.waitNerdctlTick(ctx, t, id, 3)
			bundles, err := filepath.Glob(filepath.Join(d.Dir, "state", "io.containerd.runtime.v2.task", d.Namespace, id))
			if err != nil || len(bundles) != 1 || len(controlSockets(t, bundles[0])) == 0 {
				t.Errorf("no process listens in the control directory of %q (%v)", bundles, err)
			}
			if runtime != stockRuntime {
				d.nerdctl(ctx, t, "checkpoint", "create", "--leave-running", id, "cdi-"+id)
				expectSplit(t, filepath.Join(d.Dir, "nerdctl", "checkpoints", "cdi-"+id))
			}
			remove()
			if _, err := os.Lstat(bundles[0]); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the bundle is left: %v", err)
			}
			expectNoControlDir(t)
		})
	}
}
