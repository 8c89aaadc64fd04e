// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/criuimg"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/driverlibs"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

// What NVIDIA's tools do to a container beside its spec: mounts of which runc
// knows nothing, and hooks that it does not run at a restore.

const (
	nvidiaProc = "/proc/driver/nvidia"
	// paramsName is the file in a bundle that takes the place of
	// /proc/driver/nvidia/params.
	paramsName = "hetgpu-nvidia-params"
	// maxHidden bounds the mounts that are passed to CRIU: a host with 16 GPUs
	// has some 80, and a container could make any number.
	maxHidden = 1024
)

// hiddenMounts are the mounts that NVIDIA's hooks made in the container behind
// runc's back, for CRIU not to look into.
func (c *container) hiddenMounts(pid int) (external []runc.ExternalMount, err error) {
	if !c.gpus.NVIDIA {
		return nil, nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read the container's mounts: %w", err)
	}
	return hidden(mounts, c.given), nil
}

func hidden(mounts []*mountinfo.Info, given []string) (external []runc.ExternalMount) {
	for _, m := range mounts {
		// CRIU saves a whole tmpfs by itself.
		whole := m.FSType == "tmpfs" && m.Root == "/"
		if whole || !oci.MountedByNVIDIA(m.Mountpoint) || slices.Contains(given, m.Mountpoint) || len(external) == maxHidden {
			continue
		}
		// By the name that runc gives a mount of a spec: at a restore it may be
		// one.
		external = append(external, runc.ExternalMount{Key: m.Mountpoint, Value: m.Mountpoint})
	}
	return external
}

// given are the places in the container at which its spec has something.
func given(spec *oci.Spec) (paths []string) {
	for _, m := range spec.Mounts {
		paths = append(paths, filepath.Clean(m.Destination))
	}
	for _, d := range spec.Linux.Devices {
		paths = append(paths, filepath.Clean(d.Path))
	}
	return paths
}

// restoreNVIDIA gives a container that is restored what NVIDIA's tools had given
// the one that was saved.
func (c *container) restoreNVIDIA(ctx context.Context, spec *oci.Spec) error {
	if c.restore == nil {
		return nil
	}
	keys, err := criuimg.ExternalMounts(c.request.Checkpoint)
	if err != nil {
		return err
	}
	host := &nvidiaHost{params: filepath.Join(c.bundle, paramsName)}
	host.dirs = sync.OnceValue(func() []string { return driverlibs.Dirs(ctx, "/") })
	external, err := oci.RestoreNVIDIA(spec, keys, host)
	if err != nil {
		return err
	}
	for key, source := range external {
		c.external = append(c.external, runc.ExternalMount{Key: key, Value: source})
	}
	return nil
}

// unseenGPUs fails if the OCI runtime gave the container GPUs that the spec which we
// wrote did not have. NVIDIA's (nvidia-container-runtime 1.20, internal/runtime) edits
// the bundle's spec when it makes a container, and not when it restores one, which
// would not have them then.
func (c *container) unseenGPUs() error {
	if c.policy.Engine == oci.EngineNone {
		return nil
	}
	spec, err := oci.Load(c.bundle)
	if err != nil {
		return err
	}
	now := oci.FindGPUs(spec)
	added := slices.ContainsFunc(now.NVIDIAMinors, func(minor int) bool { return !slices.Contains(c.written.NVIDIAMinors, minor) })
	if !added && (c.written.NVIDIA || !now.NVIDIA) {
		return nil
	}
	return fmt.Errorf("the OCI runtime %s has given the container GPUs behind its spec, and would not give them to a restored one: let it have CDI devices (docs/engines.md): %w",
		cmp.Or(c.runc.Binary, "runc"), errdefs.ErrFailedPrecondition)
}

// nvidiaHost is this host.
type nvidiaHost struct {
	// params is where a copy of a file in /proc is written.
	params string
	// dirs are where the driver's libraries may be.
	dirs func() []string
}

var _ oci.NVIDIAHost = (*nvidiaHost)(nil)

// Exists implements oci.NVIDIAHost.
func (h *nvidiaHost) Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Library implements oci.NVIDIAHost. Where there are libraries of several
// versions the kernel driver's counts; without one, none does.
func (h *nvidiaHost) Library(stem string, dirs ...string) string {
	version := ""
	if text, err := os.ReadFile(kernelDriver); err == nil {
		version = strings.TrimSpace(string(text))
	}
	for _, near := range []func() []string{func() []string { return dirs }, h.dirs} {
		for _, dir := range near() {
			if file := onlyLibrary(dir, stem, version); file != "" {
				return file
			}
		}
	}
	return ""
}

// onlyLibrary finds a library of the driver in a directory, of the given version,
// or of any if there is only one.
func onlyLibrary(dir, stem, version string) string {
	files, err := filepath.Glob(filepath.Join(dir, stem+".*"))
	if err != nil {
		return ""
	}
	files = slices.DeleteFunc(files, func(file string) bool {
		s, v, ok := driverlibs.Split(filepath.Base(file))
		return !ok || s != stem || version != "" && v != version
	})
	if len(files) != 1 {
		return ""
	}
	return files[0]
}

// Node implements oci.NVIDIAHost.
func (h *nvidiaHost) Node(file string) (specs.LinuxDevice, bool) {
	if !strings.HasPrefix(file, "/dev/") {
		return specs.LinuxDevice{}, false
	}
	node, err := charDevice(file)
	if err != nil || node == nil {
		return specs.LinuxDevice{}, false
	}
	return *node, true
}

// Proc implements oci.NVIDIAHost. What says that programs may make device nodes
// says that they may not, as NVIDIA's tools have it in containers; a GPU that is
// not there is shown as one that is.
func (h *nvidiaHost) Proc(file string) string {
	if file == filepath.Join(nvidiaProc, "params") {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(h.params, withoutNodes(text), 0o444) //nolint:gosec // any user of the container reads it
		}
		if err != nil {
			return ""
		}
		return h.params
	}
	if h.Exists(file) {
		return file
	}
	if filepath.Dir(file) == filepath.Join(nvidiaProc, "gpus") {
		if others, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); err == nil && len(others) > 0 {
			return others[0]
		}
	}
	return ""
}

// withoutNodes is NVIDIA's list of parameters with the permission to make nodes
// taken out (nvidia-cdi-hook, disable-device-node-modification).
func withoutNodes(params []byte) []byte {
	return bytes.ReplaceAll(params, []byte("ModifyDeviceFiles: 1\n"), []byte("ModifyDeviceFiles: 0\n"))
}
