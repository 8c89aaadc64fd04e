// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/driverlibs"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
)

// What NVIDIA's tools put into containers: libnvidia-container 1.17 (legacy
// hook), and the CDI specifications of nvidia-ctk 1.14 to 1.18.
var (
	nvidiaNode     = lazyregexp.New(`^/dev/nvidia(?:[0-9]+|ctl|-uvm|-uvm-tools|-modeset)$`)
	nvidiaProc     = lazyregexp.New(`^/proc/driver/nvidia(?:/[A-Za-z0-9_.:-]+){1,4}$`)
	nvidiaProgram  = lazyregexp.New(`^/(?:usr/)?bin/nvidia-[a-z-]+$`)
	nvidiaSocket   = lazyregexp.New(`^/(?:var/)?run/nvidia-[a-z]+/socket$`)
	nvidiaFirmware = lazyregexp.New(`^/(?:usr/)?lib/firmware/nvidia/[0-9.]+(?:/[a-z0-9_]+\.bin)?$`)
	nvidiaLibDir   = lazyregexp.New(`^(?:/[A-Za-z0-9_.+-]+)+/$`)
)

// MountedByNVIDIA tells whether a path of a container is one at which NVIDIA's
// tools mount: libraries of the driver, its programs, nodes, sockets, firmware
// and files in /proc. The path may be a hostile container's: what is accepted
// has no character that means anything to CRIU's configuration.
func MountedByNVIDIA(at string) bool {
	dir, name := path.Split(at)
	if _, _, ok := driverlibs.Split(name); ok {
		return nvidiaLibDir.MatchString(dir) && path.Clean(at) == at && plainName.MatchString(name)
	}
	return path.Clean(at) == at && (nvidiaNode.MatchString(at) || nvidiaProc.MatchString(at) ||
		nvidiaProgram.MatchString(at) || nvidiaSocket.MatchString(at) || nvidiaFirmware.MatchString(at))
}

var plainName = lazyregexp.New(`^[A-Za-z0-9_.+-]+$`)

// isLegacyHook tells whether a hook is NVIDIA's that edits a container behind the
// runtime's back, at its start (nvidia-container-runtime-hook, before that
// nvidia-container-toolkit).
func isLegacyHook(h specs.Hook) bool {
	return strings.HasPrefix(path.Base(h.Path), "nvidia-container-")
}

// SkippedHooks are the hooks of NVIDIA's CDI specifications that change files of
// the container's root: links and the linker's cache. runc calls createContainer
// hooks when it makes a container, and not when it restores one (runc 1.5,
// libcontainer/criu_linux.go, "setup-namespaces").
//
// The one that mounts something, so that programs make no device nodes, is not
// among them: its mount is restored.
func SkippedHooks(spec *Spec) []specs.Hook {
	return slices.DeleteFunc(slices.Clone(spec.Hooks.CreateContainer), func(h specs.Hook) bool {
		name := path.Base(h.Path)
		if name != "nvidia-cdi-hook" && name != "nvidia-ctk" {
			return true
		}
		// nvidia-cdi-hook VERB ..., and nvidia-ctk hook VERB ... before 1.17.
		args := slices.DeleteFunc(slices.Clone(h.Args[min(1, len(h.Args)):]), func(a string) bool { return a == "hook" })
		return len(args) == 0 || args[0] == "disable-device-node-modification"
	})
}

// LibraryMounts are the bind mounts of NVIDIA's in the container's root, which its
// hooks look at.
func LibraryMounts(spec *Spec) []specs.Mount {
	return slices.DeleteFunc(slices.Clone(spec.Mounts), func(m specs.Mount) bool {
		return !isBind(m) || !MountedByNVIDIA(m.Destination) || strings.HasPrefix(m.Destination, "/proc/") || strings.HasPrefix(m.Destination, "/dev/")
	})
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// ErrNotHere means that this host lacks what a container was given by another.
var ErrNotHere = errors.New("this host has nothing in its place")

// NVIDIAHost is what a host has in place of what another host gave a container.
type NVIDIAHost interface {
	// Exists tells whether there is a file.
	Exists(file string) bool
	// Library finds the host's own library of a stem (libcuda.so), in the given
	// directories first; "" if it has none.
	Library(stem string, dirs ...string) string
	// Node is a device node, with its numbers.
	Node(file string) (node specs.LinuxDevice, ok bool)
	// Proc is what takes the place of a file or directory below
	// /proc/driver/nvidia; "" for nothing.
	Proc(file string) string
}

// RestoreNVIDIA makes the spec of a container, which is restored from a snapshot
// with the external mounts of keys, one with which this host can do it:
//
//   - the legacy hook, which can't edit a container that is restored, goes, and
//     what it had mounted becomes mounts and devices of the spec;
//   - a library of the driver of another version is replaced by the host's own;
//   - a library that the snapshot has under the name of another version is mounted
//     by that name, and no more by its own: a restored container has the mounts of
//     the one that was saved.
//
// It returns the mounts that no spec may have, by their keys: CRIU is to be told.
func RestoreNVIDIA(spec *Spec, keys []string, host NVIDIAHost) (external map[string]string, err error) {
	if err := spec.DropHooks(isLegacyHook); err != nil {
		return nil, err
	}
	if err := replaceLibraries(spec, host); err != nil {
		return nil, err
	}
	external = map[string]string{}
	for _, key := range keys {
		if !MountedByNVIDIA(key) || hasMount(spec, key) || hasNode(spec, key) {
			continue
		}
		if err := give(spec, key, host, external); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return external, nil
	}
	return external, remove(spec, mountsPath, &spec.Mounts, func(m specs.Mount) bool {
		_, _, library := driverlibs.Split(path.Base(m.Destination))
		return library && isBind(m) && MountedByNVIDIA(m.Destination) && !slices.Contains(keys, m.Destination)
	})
}

// replaceLibraries gives mounts whose source this host does not have its own.
func replaceLibraries(spec *Spec, host NVIDIAHost) error {
	for _, m := range slices.Clone(spec.Mounts) {
		stem, _, ok := driverlibs.Split(path.Base(m.Destination))
		if !ok || !isBind(m) || host.Exists(m.Source) {
			continue
		}
		source := host.Library(stem, path.Dir(m.Source))
		if source == "" {
			return fmt.Errorf("%w: the container's %s is %s, which this host has not, nor another version of it", ErrNotHere, m.Destination, m.Source)
		}
		m.Source = source
		if err := spec.SetMount(m); err != nil {
			return err
		}
	}
	return nil
}

// give adds one thing to the container.
func give(spec *Spec, key string, host NVIDIAHost, external map[string]string) error {
	if node, ok := host.Node(key); ok {
		return spec.AddDevice(node, "rw")
	}
	if strings.HasPrefix(key, "/proc/") {
		source := host.Proc(key)
		if source == "" {
			return fmt.Errorf("%w: the container has a mount of NVIDIA's at %s", ErrNotHere, key)
		}
		external[key] = source
		return nil
	}
	source := key
	if stem, _, ok := driverlibs.Split(path.Base(key)); ok {
		if source = mountedLibrary(spec, stem); source == "" {
			source = host.Library(stem, path.Dir(key))
		}
	}
	if source == "" || !host.Exists(source) {
		return fmt.Errorf("%w: the container has NVIDIA's %s", ErrNotHere, key)
	}
	return spec.SetMount(specs.Mount{Destination: key, Type: "bind", Source: source, Options: []string{"bind", "ro", "nosuid", "nodev"}})
}

// mountedLibrary is the source of a library that the container has by the name
// of another version.
func mountedLibrary(spec *Spec, stem string) string {
	for _, m := range spec.Mounts {
		if s, _, ok := driverlibs.Split(path.Base(m.Destination)); ok && s == stem && isBind(m) {
			return m.Source
		}
	}
	return ""
}

func hasNode(spec *Spec, at string) bool {
	return slices.ContainsFunc(spec.Linux.Devices, func(d specs.LinuxDevice) bool { return path.Clean(d.Path) == at })
}
