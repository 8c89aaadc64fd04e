// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// minKernel is the oldest kernel that was thought of: CRIU 4 asks for less,
// but pidfds are complete from here on.
var minKernel = version{5, 10, 0}

func privileges(_ context.Context, h *Host) []Result {
	if h.UID != 0 {
		return warn("run hetgpu doctor as root", "user %d: CRIU, the GPU driver and containerd's socket can be looked at by root only", h.UID)
	}
	return ok("root")
}

func kernel(_ context.Context, h *Host) []Result {
	data, err := os.ReadFile(h.path("proc/sys/kernel/osrelease"))
	if err != nil {
		return fail("mount /proc", "unknown: %v", err)
	}
	release := strings.TrimSpace(string(data))
	v, err := parseVersion(release)
	if err != nil {
		return warn("", "%v", err)
	}
	if v.less(minKernel) {
		return fail("use Linux "+minKernel.String()+" or newer", "Linux %s %s is too old", release, runtime.GOARCH)
	}
	return ok("Linux %s %s", release, runtime.GOARCH)
}

// cgroups tells which hierarchy has the freezer, without which no container
// can be held still.
func cgroups(_ context.Context, h *Host) []Result {
	const dir = "sys/fs/cgroup"
	exists := func(name string) bool {
		_, err := os.Stat(h.path(dir, name))
		return err == nil
	}
	kind := "v1"
	switch {
	case exists("cgroup.controllers"):
		// The kernel has had the unified hierarchy's freezer since 5.2, in
		// every group but the root.
		return ok("v2, with freezer")
	case exists("unified/cgroup.controllers"):
		kind = "hybrid (v1, with v2 in unified)"
	case !exists("."):
		return fail("mount the cgroup hierarchies", "/%s is not there", dir)
	}
	if !exists("freezer") {
		return fail("mount the freezer hierarchy at /"+dir+"/freezer, or boot with the unified hierarchy (v2)", "%s, without freezer", kind)
	}
	return ok("%s, with freezer", kind)
}

func configuration(_ context.Context, h *Host) []Result {
	if h.ConfigErr != nil {
		return fail("mend the file; docs/formats.md has its keys", "%v", h.ConfigErr)
	}
	name := os.Getenv(config.Env)
	if name == "" {
		name = config.Path
		if _, err := os.Stat(h.path(name)); errors.Is(err, fs.ErrNotExist) {
			return ok("defaults (there is no %s)", name)
		}
	}
	return ok("%s", name)
}

// encryption looks at the key of device memory in files.
func encryption(_ context.Context, h *Host) []Result {
	file := h.Config.Encryption.KeyFile
	if file == "" {
		return ok("none (no encryption.key_file)")
	}
	key, err := memfile.ReadKey(h.path(file))
	switch {
	case err != nil && h.UID != 0 && errors.Is(err, fs.ErrPermission):
		return warn("ask as root", "%v", err)
	case err != nil:
		return fail("make one (docs/security.md), or put back the one that the snapshots were made with", "%v", err)
	case h.Config.Encryption.AllowPlain:
		return warn("leave out encryption.allow_plain, if all device memory has to be encrypted", "key %s; what the driver saves is not encrypted", key.ID())
	}
	return ok("key %s (%s)", key.ID(), file)
}

// directories looks at those that the shim writes to.
func directories(_ context.Context, h *Host) []Result {
	results := directory(h, h.Config.StateDir, false)
	return append(results, directory(h, h.Config.LogDir, true)...)
}

// directory tells whether a directory can be written to, or made. It makes
// none: that the shim does.
func directory(h *Host, name string, keep bool) []Result {
	dir, err := nearest(h.path(name))
	if err != nil {
		return fail("make the directory, or name another one in the configuration", "%s: %v", name, err)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil && h.UID == 0 {
		return fail("let root write there, or name another directory in the configuration", "%s: %v", name, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fail("", "%s: statfs: %v", name, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fail("name another directory in the configuration", "%s is on a file system that can only be read", name)
	}
	if keep && st.Type == unix.TMPFS_MAGIC {
		return warn("name another log_dir in the configuration", "%s: logs of failures are lost at the next boot (tmpfs)", name)
	}
	if keep {
		return ok("%s for logs of failures", name)
	}
	return ok("%s for what lasts until the next boot", name)
}

// nearest returns the directory itself or the closest one above that exists.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is no directory", dir)
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}
