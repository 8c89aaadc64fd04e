// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// libDir is where NVIDIA's tools mount libraries on Debian's relatives.
const libDir = "/usr/lib/x86_64-linux-gnu"

// toolkit is a host with NVIDIA's container toolkit: a file tree of a driver, and
// stand-ins for its hooks that do what the real ones do.
type toolkit struct {
	dir, driver, version string
}

// newToolkit makes one. Its libraries differ from another version's by what is
// behind their end.
func (d *daemon) newToolkit(t *testing.T, version string) *toolkit {
	t.Helper()
	k := &toolkit{dir: t.TempDir(), version: version}
	k.driver, _ = d.driverTree(t, version)
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		f, err := os.OpenFile(k.lib(name+version), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("version " + version)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"nvidia-cdi-hook": cdiHook, "nvidia-container-runtime-hook": legacyHook} {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(strings.NewReplacer("DRIVER", k.driver, "VERSION", version).Replace(text)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *toolkit) lib(name string) string { return filepath.Join(k.driver, libDir, name) }

// calls counts how often a hook was called.
func (k *toolkit) calls(t *testing.T, hook string) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(k.dir, "log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(log), hook+"\n")
}

// cdiHook makes links, or runs ldconfig, in the root that the state's bundle has.
const cdiHook = `#!/bin/sh -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
echo "cdi $1" >>"${0%/*}/log"
root=$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')/rootfs
verb=$1; shift
case $verb in
create-symlinks)
	for arg; do case $arg in *::*)
		mkdir -p "$root$(dirname "${arg#*::}")"
		ln -sfn "${arg%%::*}" "$root${arg#*::}"
	esac; done ;;
update-ldcache)
	test -n "$(find "$root$2" -name "libcuda.so.[0-9]*.*" -size +0)" # mounted
	ldconfig -r "$root" -f /dev/null -C /etc/ld.so.cache "$2" ;;
esac
`

// legacyHook mounts into the namespace of the container that is being made. A
// second call, for a container that is restored, fails as the real one does.
const legacyHook = `#!/bin/sh -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
echo legacy >>"${0%/*}/log"
state=$(cat)
root=$(printf %s "$state" | sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')/rootfs
pid=$(printf %s "$state" | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
nsenter -t "$pid" -m sh -ec '
	test -e "$0/proc/version" # the container has its mounts
	for lib in libcuda libnvidia-ml; do
		at=$0/usr/lib/x86_64-linux-gnu/$lib.so.VERSION
		mkdir -p "${at%/*}"
		touch "$at"
		mount --bind "DRIVER/usr/lib/x86_64-linux-gnu/$lib.so.VERSION" "$at"
		mount -o remount,bind,ro,nosuid,nodev "$at"
	done' "$root"
`

// cdi edits a spec as a runtime does by the specification that nvidia-ctk writes.
func (k *toolkit) cdi(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		s.Mounts = append(s.Mounts, specs.Mount{
			Type: "bind", Source: k.lib(name + k.version), Destination: filepath.Join(libDir, name+k.version),
			Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
		})
	}
	s.Process.Env = append(s.Process.Env, "NVIDIA_VISIBLE_DEVICES=void")
	if s.Hooks == nil {
		s.Hooks = &specs.Hooks{}
	}
	hook := filepath.Join(k.dir, "nvidia-cdi-hook")
	s.Hooks.CreateContainer = append(s.Hooks.CreateContainer,
		specs.Hook{Path: hook, Args: []string{"nvidia-cdi-hook", "create-symlinks", "--link", "libcuda.so.1::" + libDir + "/libcuda.so"}},
		specs.Hook{Path: hook, Args: []string{"nvidia-cdi-hook", "update-ldcache", "--folder", libDir}},
		specs.Hook{Path: hook, Args: []string{"nvidia-cdi-hook", "disable-device-node-modification"}},
	)
	return nil
}

// legacy edits a spec as nvidia-container-runtime does in its legacy mode.
func (k *toolkit) legacy(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Process.Env = append(s.Process.Env, "NVIDIA_VISIBLE_DEVICES=all")
	if s.Hooks == nil {
		s.Hooks = &specs.Hooks{}
	}
	hook := filepath.Join(k.dir, "nvidia-container-runtime-hook")
	s.Hooks.Prestart = append(s.Hooks.Prestart, specs.Hook{Path: hook, Args: []string{"nvidia-container-runtime-hook", "prestart"}}) //nolint:staticcheck // it uses that
	return nil
}

// expectLibrary fails unless the container has the library of a version under a name.
func (k *toolkit) expectLibrary(t *testing.T, d *daemon, c *container, name string) {
	t.Helper()
	status, out := c.execOutput(t, d, "/bin/tail", "-c", fmt.Sprint(len("version "+k.version)), filepath.Join(libDir, name))
	if status != 0 || !strings.Contains(out, "version "+k.version) {
		t.Errorf("%s: status %d, %q", name, status, out)
	}
}

// What the hooks made in the root at the container's start is in the root of
// another one that is restored, which runc calls no such hooks for.
func TestNVIDIACDIHooks(t *testing.T) {
	skipOnStock(t, "it calls no such hooks at a restore")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		k := d.newToolkit(t, usual.Driver)
		s := d.toy()
		s.opts = append(s.opts, k.cdi)
		c := d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		dir := c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 1)
		k.expectLibrary(t, d, r, "libcuda.so."+k.version)
		status, out := r.execOutput(t, d, "/bin/sh", "-c", "readlink "+libDir+"/libcuda.so; grep -c "+libDir+"/libcuda.so.1 /etc/ld.so.cache")
		if status != 0 || !strings.Contains(out, "libcuda.so.1\n1") {
			t.Errorf("status %d, %q", status, out)
		}
		for verb, want := range map[string]int{"create-symlinks": 2, "update-ldcache": 2, "disable-device-node-modification": 1} {
			if n := k.calls(t, "cdi "+verb); n != want {
				t.Errorf("%s was called %d times, not %d", verb, n, want)
			}
		}
		// And once more from there.
		again := r.mustCheckpoint(ctx, true)
		r.waitExit(ctx)
		r.delete(ctx)
		r.remove()
		last := d.restore(ctx, t, s, again)
		last.expectGoesOn(ctx, 1)
		last.stop(ctx)
	})
}

// A hook that fails ends the restore, and it says so.
func TestNVIDIAHookFails(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	k := d.newToolkit(t, usual.Driver)
	s := d.toy()
	s.opts = append(s.opts, k.cdi)
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.mustCheckpoint(ctx, false)
	c.stop(ctx)
	if err := os.WriteFile(filepath.Join(k.dir, "nvidia-cdi-hook"), []byte("#!/bin/sh\necho no room >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.expectRestoreFails(ctx, t, s, dir, "nvidia-cdi-hook", "create-symlinks", "no room")
}

// What the legacy hook mounts behind runc's back is neither in the way of a dump
// nor lost at a restore, for which the hook is not called.
func TestNVIDIALegacyHook(t *testing.T) {
	skipOnStock(t, "it can't")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		k := d.newToolkit(t, usual.Driver)
		s := d.toy()
		s.opts = append(s.opts, k.legacy)
		c := d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		k.expectLibrary(t, d, c, "libcuda.so."+k.version)
		dir := c.mustCheckpoint(ctx, false)
		c.expectGoesOn(ctx, 1)
		c.stop(ctx)
		c.remove()
		// The libraries are found where the host has them: in this test, where the
		// container's spec says.
		s.opts = append(s.opts, k.mounted("/host/"))
		for range 2 {
			r := d.restore(ctx, t, s, dir)
			r.expectGoesOn(ctx, 1)
			k.expectLibrary(t, d, r, "libcuda.so."+k.version)
			k.expectLibrary(t, d, r, "libnvidia-ml.so."+k.version)
			// What is restored is saved and restored as well.
			dir = r.mustCheckpoint(ctx, true)
			r.waitExit(ctx)
			r.delete(ctx)
			r.remove()
		}
		if n := k.calls(t, "legacy"); n != 1 {
			t.Errorf("the legacy hook was called %d times", n)
		}
	})
}

// mounted gives a container the libraries in another directory.
func (k *toolkit) mounted(dir string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
			s.Mounts = append(s.Mounts, specs.Mount{
				Type: "bind", Source: k.lib(name + k.version), Destination: dir + name + k.version, Options: []string{"rbind", "ro"},
			})
		}
		return nil
	}
}

// A container that has the libraries and uses none of them yet is restored with
// the target's own, under the names that it has.
func TestNVIDIAOtherPatch(t *testing.T) {
	skipOnStock(t, "it can't")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		source, target := d.newToolkit(t, "580.65.06"), d.newToolkit(t, "580.159.04")
		plain := counting()
		plain.opts = []oci.SpecOpts{d.withGPUs(0)}
		with := func(k *toolkit) spec {
			s := plain
			s.opts = append(slices.Clone(s.opts), k.cdi)
			return s
		}
		c := d.run(ctx, t, with(source))
		c.stdout.waitMore(ctx, t, 3)
		dir := c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()
		// A new container, which the target's tools have given theirs.
		r := d.restore(ctx, t, with(target), dir)
		r.stdout.waitMore(ctx, t, 3)
		for _, name := range []string{"libcuda.so." + source.version, "libcuda.so.1", "libnvidia-ml.so." + source.version} {
			target.expectLibrary(t, d, r, name)
		}
		if status, out := r.execOutput(t, d, "/bin/ls", libDir); status != 0 || strings.Contains(out, target.version) {
			t.Errorf("status %d, %q", status, out)
		}
		r.stop(ctx)
		r.remove()
		// The same spec, after the driver was updated.
		for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
			if err := os.Rename(target.lib(name+target.version), source.lib(name+target.version)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(source.lib(name + source.version)); err != nil {
				t.Fatal(err)
			}
		}
		r = d.restore(ctx, t, with(source), dir)
		r.stdout.waitMore(ctx, t, 3)
		target.expectLibrary(t, d, r, "libcuda.so."+source.version)
		r.stop(ctx)
		r.remove()
		// And where there is none.
		if err := os.RemoveAll(source.driver); err != nil {
			t.Fatal(err)
		}
		d.expectRestoreFails(ctx, t, with(source), dir, "libcuda.so."+source.version, "nothing in its place")
	})
}

// nvidiaRuntime is a real nvidia-container-runtime, on a host with a driver's file
// tree and the CDI specification that nvidia-ctk makes of it.
func (d *daemon) nvidiaRuntime(ctx context.Context, t *testing.T) (program string) {
	t.Helper()
	dirs, err := installed.KubePath(d.version)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, name := range []string{"nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime"} {
		i := slices.IndexFunc(dirs, func(dir string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
		if i < 0 {
			t.Fatalf("there is no %s: run 'make setup'", name)
		}
		programs[name] = filepath.Join(dirs[i], name)
	}
	if programs["runc"], err = d.Lookup("runc"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	driver, _ := d.driverTree(t, usual.Driver)
	if err := os.Mkdir(filepath.Join(driver, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.gpu.Nodes(filepath.Join(driver, "dev"), "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"); err != nil {
		t.Fatal(err)
	}
	generate := fmt.Sprintf("%s --quiet cdi generate --driver-root %[2]s --dev-root %[2]s --nvidia-cdi-hook-path %[3]s --output %[4]s/nvidia.yaml",
		programs["nvidia-ctk"], driver, programs["nvidia-cdi-hook"], dir)
	if out, err := d.Exec(ctx, "sh", "-ec", generate); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("[nvidia-container-runtime]\nmode = \"cdi\"\nruntimes = [%q]\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = [%q]\n", programs["runc"], dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return writeScript(t, "nvidia-container-runtime", fmt.Sprintf("NVIDIA_CTK_CONFIG_FILE_PATH=%s exec %s \"$@\"\n", config, programs["nvidia-container-runtime"]))
}

// A container that NVIDIA's runtime gives its GPUs, in the bundle's spec and after
// us, runs; a checkpoint of it is refused, and it goes on. With the same runtime and
// devices that its spec has it is saved and restored.
func TestNVIDIARuntime(t *testing.T) {
	skipOnStock(t, "it does not notice")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		program := d.nvidiaRuntime(ctx, t)
		s := spec{
			args:    []string{inContainer + "/toy", "-i", "10"},
			opts:    []oci.SpecOpts{d.withProgram, oci.WithEnv([]string{"NVIDIA_VISIBLE_DEVICES=0"})},
			options: &options.Options{BinaryName: program},
		}
		c := d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		dir := filepath.Join(t.TempDir(), "snapshot")
		expectError(t, c.checkpointTo(ctx, dir, true), program, "CDI devices")
		if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
			t.Errorf("left is %v", left)
		}
		c.expectGoesOn(ctx, 1)
		c.stop(ctx)
		c.remove()

		s.opts = []oci.SpecOpts{d.withProgram, d.withGPUs(0), oci.WithEnv([]string{"NVIDIA_VISIBLE_DEVICES=void"})}
		c = d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		dir = c.mustCheckpoint(ctx, true)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 1)
		r.stop(ctx)
	})
}
