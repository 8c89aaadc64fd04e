// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package cdi writes the CDI specification of this host's GPUs with libhetcuda
// in front of their driver (kind hetgpu.io/gpu), and applies it to bundles.
//
// [Spec] says what is in it, as a function of what [Look] found on the host.
package cdi

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/hooks"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/driverlibs"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

const (
	// Kind is the kind of the devices.
	Kind = "hetgpu.io/gpu"
	// All is the device that is every GPU.
	All = "all"
	// libraryName is libhetcuda's file, as the driver's library is asked for.
	libraryName = driverlibs.CUDA + ".1"
)

// hookTimeout is how many seconds a runtime waits for the hook, which mounts.
var hookTimeout = 30

// Host is what a host has. Paths are of the host.
type Host struct {
	// Driver is the version of the kernel driver.
	Driver string
	// GPUs are in the order of the driver, which is the order of their numbers.
	GPUs []gpuplugin.Device
	// Nodes are the device nodes, by their names in containers.
	Nodes map[string]string
	// Libraries are the driver's.
	Libraries []driverlibs.Library
	// Programs are the driver's programs that users look for (nvidia-smi).
	Programs []string
	// Library is the directory of libhetcuda, and Hook our hook's program.
	Library, Hook string
	// LibraryPath is what containers have besides in LD_LIBRARY_PATH.
	LibraryPath []string
	// Userfaultfd gives containers /dev/userfaultfd, whatever runs them.
	Userfaultfd bool
}

// The device nodes of the driver that are no GPU. CUDA works with the first two.
var (
	neededNodes  = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	controlNodes = append(slices.Clone(neededNodes), "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
)

// userfaultfd is the host's own, wherever the driver's nodes are.
const userfaultfd = "/dev/userfaultfd"

// Spec is the specification for a host: a device for each GPU by number and by
// UUID, and one for all. It fails if a container could not use them.
func Spec(h Host) (*specs.Spec, error) {
	if len(h.GPUs) == 0 {
		return nil, errors.New("no NVIDIA GPU was found")
	}
	common, err := h.common()
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{Kind: Kind, ContainerEdits: *common}
	all := specs.ContainerEdits{}
	for i, gpu := range h.GPUs {
		node, err := h.node("/dev/nvidia" + strconv.Itoa(gpu.Minor))
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", gpu.UUID, err)
		}
		edits := specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{node}}
		s.Devices = append(s.Devices, specs.Device{Name: strconv.Itoa(i), ContainerEdits: edits}, specs.Device{Name: gpu.UUID, ContainerEdits: edits})
		all.DeviceNodes = append(all.DeviceNodes, node)
	}
	s.Devices = append(s.Devices, specs.Device{Name: All, ContainerEdits: all})
	s.Version, err = specs.MinimumRequiredVersion(s)
	return s, err
}

// common is what a container gets with any of the devices.
func (h Host) common() (*specs.ContainerEdits, error) {
	e := &specs.ContainerEdits{}
	for _, name := range controlNodes {
		node, err := h.node(name)
		if err != nil {
			if slices.Contains(neededNodes, name) {
				return nil, fmt.Errorf("%w: `nvidia-modprobe -c 0 -u` makes it", err)
			}
			continue
		}
		e.DeviceNodes = append(e.DeviceNodes, node)
	}
	if h.Userfaultfd {
		node, err := h.node(userfaultfd)
		if err != nil {
			return nil, fmt.Errorf("%w: Linux has it from 6.1 on", err)
		}
		node.Permissions = "rw"
		e.DeviceNodes = append(e.DeviceNodes, node)
	}
	// A file system of its own, so that nothing is made in the image for what is
	// mounted below it.
	e.Mounts = append(e.Mounts, &specs.Mount{
		HostPath: "tmpfs", ContainerPath: oci.InjectedRoot, Type: "tmpfs",
		Options: []string{"nosuid", "nodev", "noexec", "mode=755", "size=64k", "nr_inodes=4k"},
	}, bind(h.Library, oci.InjectedLibrary))
	cuda, err := h.libraries(e)
	if err != nil {
		return nil, err
	}
	for _, program := range h.Programs {
		e.Mounts = append(e.Mounts, bind(program, filepath.Join(oci.InjectedPrograms, filepath.Base(program))))
	}
	path := append([]string{oci.InjectedLibrary, oci.InjectedDriver}, h.LibraryPath...)
	e.Env = []string{
		oci.EnvLibraryPath + "=" + strings.Join(path, ":"),
		oci.EnvControl + "=" + oci.InjectedControl,
		oci.EnvReal + "=" + cuda,
		// So that NVIDIA's legacy hook adds nothing to it.
		"NVIDIA_VISIBLE_DEVICES=void",
	}
	for _, kind := range hooks.Kinds {
		e.Hooks = append(e.Hooks, &specs.Hook{
			HookName: string(kind), Path: h.Hook, Args: []string{oci.HookProgram, string(kind)}, Timeout: &hookTimeout,
		})
	}
	return e, nil
}

// libraries adds the driver's libraries by all of their names, and returns where
// its libcuda is in the container. Under the names by which programs load that,
// there is libhetcuda.
func (h Host) libraries(e *specs.ContainerEdits) (cuda string, err error) {
	add := func(file, name string) {
		e.Mounts = append(e.Mounts, bind(file, filepath.Join(oci.InjectedDriver, name)))
	}
	for _, l := range h.Libraries {
		if stem, _, _ := driverlibs.Split(l.Name()); stem == driverlibs.CUDA {
			cuda = filepath.Join(oci.InjectedDriver, l.Name())
			add(l.Path, l.Name())
			continue
		}
		for _, name := range l.Names {
			add(l.Path, name)
		}
	}
	if cuda == "" {
		return "", fmt.Errorf("%w: there is no %s.%s", driverlibs.ErrNone, driverlibs.CUDA, h.Driver)
	}
	add(filepath.Join(h.Library, libraryName), driverlibs.CUDA)
	return cuda, nil
}

// node is a device node. The runtime reads its numbers when it makes a container:
// they may be others after the driver was loaded again.
func (h Host) node(name string) (*specs.DeviceNode, error) {
	host, ok := h.Nodes[name]
	if !ok {
		return nil, fmt.Errorf("there is no %s", name)
	}
	n := &specs.DeviceNode{Path: name}
	if host != name {
		n.HostPath = host
	}
	return n, nil
}

// bind is as package oci mounts what it injects, so that the shim finds nothing
// to change in it.
func bind(host, container string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Type: "bind", Options: []string{"bind", "ro", "nosuid", "nodev"}}
}
