// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/hooks/controldir"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func bundle(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = controldir.Remove(dir) })
	return dir
}

func state(bundle string, pid int) *strings.Reader {
	return strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.2.0","id":"c","status":"creating","pid":%d,"bundle":%q}`, pid, bundle))
}

const plain = `{"root":{"path":"rootfs"}}`

// What is asked in a wrong way changes nothing.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   Kind
		state  func(bundle string) string
		config string
		says   string
	}{
		"another call":      {"prestart", nil, plain, `"prestart"`},
		"no state":          {CreateRuntime, func(string) string { return "" }, plain, "state"},
		"no JSON":           {CreateRuntime, func(string) string { return "{" }, plain, "state"},
		"a relative bundle": {CreateRuntime, func(string) string { return `{"bundle":"x","pid":1}` }, plain, "absolute"},
		"no process":        {CreateRuntime, func(b string) string { return fmt.Sprintf(`{"bundle":%q}`, b) }, plain, "createRuntime"},
		"a long state":      {CreateRuntime, func(string) string { return strings.Repeat(" ", stateLimit+1) }, plain, "bytes"},
		"no spec":           {CreateRuntime, nil, `{`, "spec"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := bundle(t, tc.config)
			in := state(dir, 1)
			if tc.state != nil {
				in = strings.NewReader(tc.state(dir))
			}
			if err := Run(t.Context(), tc.kind, in); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error is %v", err)
			}
			expectNone(t, dir)
		})
	}
}

func expectNone(t *testing.T, bundle string) {
	t.Helper()
	if _, err := os.Lstat(controldir.Path(bundle)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a control directory: %v", err)
	}
}

// A container that has one from the shim is left alone.
func TestLeftToTheShim(t *testing.T) {
	dir := bundle(t, `{"root":{"path":"rootfs"},"mounts":[{"destination":"/run/hetgpu/control"}]}`)
	if err := Run(t.Context(), CreateRuntime, state(dir, 1)); err != nil {
		t.Fatal(err)
	}
	expectNone(t, dir)
}

// other is a process with a mount namespace of its own.
func other(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1h")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("mounting takes privileges")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// The container sees what the host made, and this namespace sees no mount in the
// container's root; twice is as once, and poststop removes it all, twice too.
func TestMakeAndRemove(t *testing.T) {
	pid := other(t)
	dir := bundle(t, plain)
	inside := filepath.Join(dir, "rootfs", "run", "hetgpu", "control")
	for range 2 {
		if err := Run(t.Context(), CreateRuntime, state(dir, pid)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(controldir.Path(dir), "here"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), inside, "here")); err != nil {
			t.Errorf("the container does not see it: %v", err)
		}
	}
	if entries, err := os.ReadDir(inside); err != nil || len(entries) != 0 {
		t.Errorf("it is mounted here: %v, %v", entries, err)
	}
	for range 2 {
		if err := Run(t.Context(), Poststop, state(dir, 0)); err != nil {
			t.Fatal(err)
		}
		expectNone(t, dir)
	}
}

// What an image has in the way does not lead out of its root, and then nothing is
// left.
func TestHostileImage(t *testing.T) {
	pid := other(t)
	for name, tc := range map[string]struct {
		make  func(rootfs, outside string) error
		fails bool
	}{
		"a link out":   {func(r, o string) error { return os.Symlink(o, filepath.Join(r, "run")) }, true},
		"a link up":    {func(r, _ string) error { return os.Symlink("../../../../..", filepath.Join(r, "run")) }, false},
		"a file":       {func(r, _ string) error { return os.WriteFile(filepath.Join(r, "run"), nil, 0o600) }, true},
		"no directory": {func(r, _ string) error { return os.Remove(r) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := bundle(t, plain), t.TempDir()
			if err := tc.make(filepath.Join(dir, "rootfs"), outside); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), CreateRuntime, state(dir, pid))
			if (err != nil) != tc.fails {
				t.Errorf("error is %v", err)
			}
			if tc.fails {
				expectNone(t, dir)
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
				t.Errorf("outside there is %v, %v", entries, err)
			}
		})
	}
}

// hook is a stand-in for NVIDIA's, which tells what it sees.
const hook = `#!/bin/sh -e
state=$(cat)
bundle=$(printf %s "$state" | sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
case $state in *'"status":"creating"'*) ;; *) echo "the state is $state" >&2; exit 1 ;; esac
echo "$* $A $(cat $bundle/rootfs/lib/libcuda.so.550.54.14)" >>"$bundle/log"
[ "$1" != fail ] || { echo no room >&2; exit 3; }
`

// At a restore NVIDIA's hooks that change files see its libraries in the
// container's root, as at its start, and nothing of that is left.
func TestSkipped(t *testing.T) {
	other(t) // skips without privileges
	for name, tc := range map[string]struct {
		source, verb string
		log          string
		says         string
	}{
		"all well":      {"lib", "create-symlinks", "create-symlinks --link B data\nupdate-ldcache B data\n", ""},
		"it fails":      {"lib", "fail", "fail --link B data\n", "no room"},
		"no library":    {"gone", "create-symlinks", "", "gone"},
		"nothing to do": {"gone", "disable-device-node-modification", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "nvidia-cdi-hook")
			if err := os.WriteFile(program, []byte(hook), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lib"), []byte("data"), 0o600); err != nil {
				t.Fatal(err)
			}
			hookOf := func(args string) string {
				return fmt.Sprintf(`{"path":%q,"args":["nvidia-cdi-hook",%s],"env":["A=B","PATH=/usr/bin:/bin"],"timeout":20}`, program, args)
			}
			second := hookOf(`"update-ldcache"`)
			if tc.verb == "disable-device-node-modification" {
				second = hookOf(`"disable-device-node-modification"`)
			}
			b := bundle(t, fmt.Sprintf(`{"root":{"path":"rootfs"},"hooks":{"createContainer":[%s,%s]},"mounts":[{"destination":"/lib/libcuda.so.550.54.14","type":"bind","source":%q}]}`,
				hookOf(fmt.Sprintf(`%q,"--link"`, tc.verb)), second, filepath.Join(dir, tc.source)))
			err := Run(t.Context(), Restored, state(b, 0))
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error is %v", err)
			}
			log, err := os.ReadFile(filepath.Join(b, "log"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if string(log) != tc.log {
				t.Errorf("the hooks say %q", log)
			}
			if info, err := os.Stat(filepath.Join(b, "rootfs/lib/libcuda.so.550.54.14")); err == nil && info.Size() != 0 {
				t.Error("it is mounted here")
			}
		})
	}
}

// layer packs entries as a layer of an image is, with gzip.
func layer(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rootfs-diff.tar")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, h := range entries {
		h.Size = int64(len(h.Name))
		if h.Typeflag != tar.TypeReg {
			h.Size = 0
		}
		err = errors.Join(err, w.WriteHeader(&h))
		if h.Size > 0 {
			_, e := w.Write([]byte(h.Name))
			err = errors.Join(err, e)
		}
	}
	if err := errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// The saved container's writable layer is applied before the hooks are run; nothing
// in it leads out of the root.
func TestLayer(t *testing.T) {
	other(t) // skips without privileges
	whole := layer(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o700}, tar.Header{Typeflag: tar.TypeReg, Name: "dir/made", Mode: 0o640, Uid: 7},
		tar.Header{Typeflag: tar.TypeReg, Name: ".wh.gone"})
	cut := filepath.Join(t.TempDir(), "cut")
	if data, err := os.ReadFile(whole); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(cut, data[:len(data)-12], 0o600); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	for name, tc := range map[string]struct {
		layer, says string
		applied     bool
	}{
		"whole":   {whole, "", true},
		"none":    {"", "", false},
		"cut":     {cut, "writable layer", false},
		"missing": {"/nowhere/rootfs-diff.tar", "no such file", false},
		"leads out": {layer(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "dir", Linkname: outside},
			tar.Header{Typeflag: tar.TypeReg, Name: "dir/made", Mode: 0o600}), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := bundle(t, plain)
			if err := os.WriteFile(filepath.Join(b, "rootfs", "gone"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), Restored, strings.NewReader(fmt.Sprintf(`{"id":"c","bundle":%q,"annotations":{%q:%q}}`, b, oci.AnnotationLayer, tc.layer)))
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error is %v", err)
			}
			if tc.applied {
				info, err := os.Stat(filepath.Join(b, "rootfs", "dir", "made"))
				if err != nil || info.Size() != int64(len("dir/made")) || info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Uid != 7 {
					t.Errorf("made: %v, %v", info, err)
				}
				if _, err := os.Stat(filepath.Join(b, "rootfs", "gone")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("gone: %v", err)
				}
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("outside: %v, %v", entries, err)
			}
		})
	}
}
