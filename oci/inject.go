// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Where a container finds what is injected. Restored processes have these paths
// in their memory: they never change.
const (
	// InjectedLibrary is the directory of libhetcuda.
	InjectedLibrary = "/run/hetgpu/lib"
	// InjectedControl is the directory in which its processes listen.
	InjectedControl = "/run/hetgpu/control"
	// InjectedPreload is the directory of the user's own libraries.
	InjectedPreload = "/run/hetgpu/preload"
	// InjectedRoot is above them.
	InjectedRoot = "/run/hetgpu"
	// InjectedDriver is where our CDI device has the driver's own libraries, and
	// InjectedPrograms its programs.
	InjectedDriver   = "/run/hetgpu/driver"
	InjectedPrograms = "/run/hetgpu/bin"
)

// Injection is what is put in front of a container's GPU driver. Paths are of
// the host.
type Injection struct {
	// Library is the directory that has libhetcuda as libcuda.so.1.
	Library string
	// Control is the container's own directory, in which its processes listen.
	Control string
	// Preload is a directory of the user's libraries, "" for none, and
	// PreloadNames are those in it that every program is to load, in order.
	Preload      string
	PreloadNames []string
	// Userfaultfd is the host's device of that name, nil for none: the library
	// sees by it which managed memory system calls touch.
	Userfaultfd *specs.LinuxDevice
	// LeaveVariables leaves __managed__ variables to the driver: a program that has
	// some can't make a second context where they are the library's.
	LeaveVariables bool
}

// Inject puts libhetcuda in front of the container's GPU driver: by mounts that
// come after all others, a device, and the environment that it returns, in which
// what is there stays. Nothing of the image changes. A spec that has an injection gets its
// mounts replaced, and is else as it was. What else would inject, the hook of our
// CDI device, is taken out.
func Inject(spec *Spec, in Injection) (Environment, error) {
	mounts := []specs.Mount{
		bind(in.Library, InjectedLibrary, "ro"),
		bind(in.Control, InjectedControl, "rw"),
	}
	env := Environment{real: realLibrary(spec.Mounts)}
	if in.LeaveVariables {
		env.variables = "driver"
	}
	if in.Preload != "" {
		mounts = append(mounts, bind(in.Preload, InjectedPreload, "ro"))
		for _, name := range in.PreloadNames {
			env.preload = append(env.preload, path.Join(InjectedPreload, name))
		}
	}
	for _, m := range mounts {
		if err := spec.SetMount(m); err != nil {
			return env, err
		}
	}
	if in.Userfaultfd != nil {
		if err := spec.AddDevice(*in.Userfaultfd, "rw"); err != nil {
			return env, err
		}
	}
	spec.SetEnv(env.addTo(spec.Process.Env))
	return env, spec.DropHooks(IsInjectionHook)
}

// Injected tells whether the spec has libhetcuda already: it was given our CDI
// device, or comes from a container that had been given the library.
func Injected(spec *Spec) bool { return hasMount(spec, InjectedLibrary) }

// HasControl tells whether the spec has a control directory.
func HasControl(spec *Spec) bool { return hasMount(spec, InjectedControl) }

func hasMount(spec *Spec, destination string) bool {
	return slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool { return path.Clean(m.Destination) == destination })
}

// bind is a mount of a directory of the host. A device in it is no device, and a
// program in it gains no rights.
func bind(source, destination, mode string) specs.Mount {
	return specs.Mount{Destination: destination, Type: "bind", Source: source, Options: []string{"bind", mode, "nosuid", "nodev"}}
}

// realLibrary is where the driver's library is in the container, if a mount says
// so: NVIDIA's tools mount it by its full name.
func realLibrary(mounts []specs.Mount) string {
	for _, m := range mounts {
		version, ok := strings.CutPrefix(path.Base(m.Destination), "libcuda.so.")
		if ok && version != "1" && strings.Trim(version, "0123456789.") == "" {
			return path.Clean(m.Destination)
		}
	}
	return ""
}
