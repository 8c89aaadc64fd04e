// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func TestMountedByNVIDIA(t *testing.T) {
	for at, want := range map[string]bool{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14":              true,
		"/usr/lib64/libnvidia-ml.so.580.159.04":                       true,
		"/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.550.54.1": true,
		"/dev/nvidia0": true, "/dev/nvidia15": true, "/dev/nvidiactl": true, "/dev/nvidia-uvm": true, "/dev/nvidia-uvm-tools": true, "/dev/nvidia-modeset": true,
		"/proc/driver/nvidia/params":                         true,
		"/proc/driver/nvidia/gpus/0000:81:00.0":              true,
		"/usr/bin/nvidia-smi":                                true,
		"/usr/bin/nvidia-cuda-mps-control":                   true,
		"/run/nvidia-persistenced/socket":                    true,
		"/var/run/nvidia-fabricmanager/socket":               true,
		"/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin":       true,
		"/usr/lib/libcuda.so.1":                              false,
		"/usr/lib/libcudart.so.12":                           false,
		"/usr/lib/libc.so.6":                                 false,
		"/dev/nvidia":                                        false,
		"/dev/nvidia0/x":                                     false,
		"/dev/kfd":                                           false,
		"/proc/driver":                                       false,
		"/proc/driver/nvidia":                                false,
		"/proc/driver/nvidia/../../1":                        false,
		"/proc/driver/nvidia/a/b/c/d/e":                      false,
		"/usr/bin/nvidia-smi/../sh":                          false,
		"/usr/lib/a b/libcuda.so.550.54.14":                  false,
		"/usr/lib/#/libcuda.so.550.54.14":                    false,
		"/usr/lib/x]:y/libcuda.so.550.54.14":                 false,
		"/usr/lib/\n/libcuda.so.550.54.14":                   false,
		"/usr/lib/lib\"x.so.550.54.14":                       false,
		"/usr/lib/../libcuda.so.550.54.14":                   false,
		"libcuda.so.550.54.14":                               false,
		"/data":                                              false,
		"":                                                   false,
		"/usr/bin/nvidia-smi\nexternal mnt[/]:/etc/shadow":   false,
		"/run/nvidia-persistenced/socket\n":                  false,
		"/lib/firmware/nvidia/550.54.14/../../x":             false,
		"/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14 del": false,
	} {
		if got := oci.MountedByNVIDIA(at); got != want {
			t.Errorf("%q: %t", at, got)
		}
	}
}

func TestSkippedHooks(t *testing.T) {
	spec := &oci.Spec{Hooks: oci.Hooks{
		CreateContainer: []specs.Hook{
			{Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "create-symlinks", "--link", "a::b"}},
			{Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "disable-device-node-modification"}},
			{Path: "/usr/bin/nvidia-ctk", Args: []string{"nvidia-ctk", "hook", "update-ldcache", "--folder", "/lib"}},
			{Path: "/usr/bin/nvidia-ctk", Args: []string{"nvidia-ctk", "hook", "disable-device-node-modification"}},
			{Path: "/usr/bin/nvidia-ctk"},
			{Path: "/bin/other", Args: []string{"nvidia-cdi-hook", "create-symlinks"}},
		},
		CreateRuntime: []specs.Hook{{Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "chmod"}}},
	}}
	var got []string
	for _, h := range oci.SkippedHooks(spec) {
		got = append(got, strings.Join(h.Args, " "))
	}
	if want := []string{"nvidia-cdi-hook create-symlinks --link a::b", "nvidia-ctk hook update-ldcache --folder /lib"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// host has files and, of each library, one.
type host struct {
	files     []string
	libraries map[string]string
	asked     []string
}

func (h *host) Exists(file string) bool { return slices.Contains(h.files, file) }
func (h *host) Library(stem string, dirs ...string) string {
	h.asked = append(h.asked, dirs...)
	return h.libraries[stem]
}

func (h *host) Node(file string) (specs.LinuxDevice, bool) {
	return specs.LinuxDevice{Path: file, Type: "c", Major: 195, Minor: int64(slices.Index(h.files, file))}, strings.HasPrefix(file, "/dev/") && h.Exists(file)
}

func (h *host) Proc(file string) string {
	if path.Base(file) == "gone" {
		return ""
	}
	return "/bundle/" + path.Base(file)
}

func TestRestoreNVIDIA(t *testing.T) {
	const (
		old = "/usr/lib/libcuda.so.550.54.14"
		now = "/usr/lib64/libcuda.so.550.90.07"
	)
	bind := func(source, at string) string {
		return `{"destination":"` + at + `","type":"bind","source":"` + source + `","options":["ro","rbind"]}`
	}
	added := func(source, at string) string { return source + " " + at + " bind,ro,nosuid,nodev" }
	kept := func(source, at string) string { return source + " " + at + " ro,rbind" }
	for name, tc := range map[string]struct {
		mounts   string
		keys     []string
		files    []string
		want     []string
		devices  []string
		external map[string]string
		says     string
	}{
		"nothing of NVIDIA's": {mounts: bind("/a", "/data"), keys: []string{"/data", "/other", "/dev/null"}, want: []string{kept("/a", "/data")}},
		"as it was":           {mounts: bind(old, old), keys: []string{old}, files: []string{old}, want: []string{kept(old, old)}},
		"the driver was updated": {
			mounts: bind(old, old) + "," + bind("/missing", "/data"), keys: []string{old, "/data"}, files: []string{now},
			want: []string{kept(now, old), kept("/missing", "/data")},
		},
		"given by the target": {
			mounts: bind(now, "/usr/lib/libcuda.so.550.90.07"), keys: []string{old}, files: []string{now},
			want: []string{added(now, old)},
		},
		"of the host":       {keys: []string{old}, files: []string{now}, want: []string{added(now, old)}},
		"no images to read": {mounts: bind(now, "/usr/lib/libcuda.so.550.90.07"), files: []string{now}, want: []string{kept(now, "/usr/lib/libcuda.so.550.90.07")}},
		"what a hook mounted": {
			keys:     []string{"/usr/bin/nvidia-smi", "/run/nvidia-persistenced/socket", "/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/params"},
			files:    []string{"/usr/bin/nvidia-smi", "/run/nvidia-persistenced/socket", "/dev/nvidia0", "/dev/nvidiactl"},
			want:     []string{added("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"), added("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket")},
			devices:  []string{"/dev/nvidia0", "/dev/nvidiactl"},
			external: map[string]string{"/proc/driver/nvidia/params": "/bundle/params"},
		},
		"no library at all":          {mounts: bind("/gone/libnvidia-ml.so.550.1", "/lib/libnvidia-ml.so.550.1"), says: "/lib/libnvidia-ml.so.550.1"},
		"no library for a name":      {keys: []string{"/lib/libnvidia-ml.so.550.1"}, says: "/lib/libnvidia-ml.so.550.1"},
		"no program":                 {keys: []string{"/usr/bin/nvidia-smi"}, says: "/usr/bin/nvidia-smi"},
		"no device":                  {keys: []string{"/dev/nvidia3"}, says: "/dev/nvidia3"},
		"no such GPU":                {keys: []string{"/proc/driver/nvidia/gpus/gone"}, says: "gpus/gone"},
		"a path of a hostile image":  {keys: []string{"/usr/bin/nvidia-smi/../../../etc/shadow", "/etc/shadow"}, files: []string{"/etc/shadow"}},
		"a mount that is no library": {mounts: bind("/gone", "/usr/bin/nvidia-smi"), keys: []string{"/usr/bin/nvidia-smi"}, want: []string{kept("/gone", "/usr/bin/nvidia-smi")}},
	} {
		t.Run(name, func(t *testing.T) {
			const legacy = `{"path":"/usr/bin/nvidia-container-runtime-hook","args":["a","prestart"]}`
			dir, _ := bundle(t, `{"hooks":{"prestart":[`+legacy+`,{"path":"/other"}]},"mounts":[`+tc.mounts+`]}`)
			spec := load(t, dir)
			h := &host{files: tc.files, libraries: map[string]string{"libcuda.so": now}}
			external, err := oci.RestoreNVIDIA(spec, tc.keys, h)
			if tc.says != "" {
				if !errors.Is(err, oci.ErrNotHere) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Save(); err != nil {
				t.Fatal(err)
			}
			for _, s := range []*oci.Spec{spec, load(t, dir)} {
				var mounts, devices []string
				for _, m := range s.Mounts {
					mounts = append(mounts, m.Source+" "+m.Destination+" "+strings.Join(m.Options, ","))
				}
				for _, d := range s.Linux.Devices {
					devices = append(devices, d.Path)
				}
				if !slices.Equal(mounts, tc.want) || !slices.Equal(devices, tc.devices) || len(s.Linux.Resources.Devices) != len(tc.devices) {
					t.Errorf("mounts %q, devices %q", mounts, devices)
				}
				if len(s.Hooks.Prestart) != 1 || s.Hooks.Prestart[0].Path != "/other" {
					t.Errorf("hooks %v", s.Hooks.Prestart)
				}
			}
			if !maps.Equal(external, tc.external) {
				t.Errorf("external %q", external)
			}
		})
	}
}
