// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// GPUs is what a spec says of the GPUs that the container can reach.
type GPUs struct {
	// NVIDIA says that there are NVIDIA devices, or will be.
	NVIDIA bool
	// NVIDIAMinors are the numbers in /dev/nvidia<N>, ascending. Empty with
	// NVIDIA set means that the spec does not say which: a hook adds them.
	NVIDIAMinors []int
	// AMD says that the container can reach the AMD compute driver.
	AMD bool
	// Intel says that the container can reach render nodes and nothing that
	// would make them another vendor's.
	Intel bool
}

// Any tells whether there is a GPU at all.
func (g GPUs) Any() bool { return g.NVIDIA || g.AMD || g.Intel }

// visibleEnv is the variable by which images ask NVIDIA's legacy hook for
// devices; the hook adds them behind the spec's back.
const visibleEnv = "NVIDIA_VISIBLE_DEVICES="

// FindGPUs reads devices, bind mounts, and what NVIDIA's legacy hook goes by.
func FindGPUs(spec *Spec) GPUs {
	var g GPUs
	render := false
	see := func(path string) {
		switch name, isDev := strings.CutPrefix(filepath.Clean(path), "/dev/"); {
		case !isDev:
		case name == "kfd":
			g.AMD = true
		case strings.HasPrefix(name, "dri/renderD"):
			render = true
		case strings.HasPrefix(name, "nvidia"):
			minor, err := strconv.Atoi(name[len("nvidia"):])
			if err == nil && !slices.Contains(g.NVIDIAMinors, minor) {
				g.NVIDIAMinors = append(g.NVIDIAMinors, minor)
			}
			// nvidiactl and nvidia-uvm alone are of no use to a program.
			g.NVIDIA = g.NVIDIA || err == nil
		}
	}
	for _, d := range spec.Linux.Devices {
		see(d.Path)
	}
	for _, m := range spec.Mounts {
		see(m.Destination)
	}
	g.NVIDIA = g.NVIDIA || legacyHookAdds(spec)
	g.Intel = render && !g.AMD && !g.NVIDIA
	slices.Sort(g.NVIDIAMinors)
	return g
}

// legacyHookAdds tells whether NVIDIA's prestart hook is there and would add
// devices: its library's rule is that "void" and an empty value ask for none
// (libnvidia-container, nvidia-container-runtime-hook).
func legacyHookAdds(spec *Spec) bool {
	hooked := slices.ContainsFunc(slices.Concat(spec.Hooks.Prestart, spec.Hooks.CreateRuntime), isLegacyHook)
	return hooked && slices.ContainsFunc(spec.Process.Env, func(e string) bool {
		value, ok := strings.CutPrefix(e, visibleEnv)
		return ok && value != "" && value != "void" && value != "none"
	})
}
