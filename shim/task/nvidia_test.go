// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

// Only what NVIDIA's tools mount, what the spec has not, and what CRIU can't save.
func TestHidden(t *testing.T) {
	const lib = "/usr/lib/libcuda.so.550.54.14"
	mounts := []*mountinfo.Info{
		{Mountpoint: "/", Root: "/", FSType: "overlay"},
		{Mountpoint: "/data", Root: "/srv", FSType: "ext4"},
		{Mountpoint: lib, Root: "/usr/lib64/libcuda.so.550.54.14", FSType: "ext4"},
		{Mountpoint: "/usr/lib/libnvidia-ml.so.550.54.14", Root: "/x", FSType: "ext4"},
		{Mountpoint: "/dev/nvidia0", Root: "/nvidia0", FSType: "devtmpfs"},
		{Mountpoint: "/proc/driver/nvidia/whole", Root: "/", FSType: "tmpfs"},
		{Mountpoint: "/proc/driver/nvidia/params", Root: "/file", FSType: "tmpfs"},
		{Mountpoint: "/proc/driver/nvidia/gpus/0000:81:00.0", Root: "/driver/nvidia/gpus/0000:81:00.0", FSType: "proc"},
		{Mountpoint: "/usr/lib/#/libcuda.so.550.54.14", Root: "/x", FSType: "ext4"},
	}
	var got []string
	for _, m := range hidden(mounts, []string{"/usr/lib/libnvidia-ml.so.550.54.14", "/data"}) {
		if m.Key != m.Value {
			t.Errorf("%+v", m)
		}
		got = append(got, m.Key)
	}
	if want := []string{lib, "/dev/nvidia0", "/proc/driver/nvidia/params", "/proc/driver/nvidia/gpus/0000:81:00.0"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	many := slices.Repeat([]*mountinfo.Info{mounts[2]}, 2*maxHidden)
	if n := len(hidden(many, nil)); n != maxHidden {
		t.Errorf("%d are passed to CRIU", n)
	}
	// All of them are words that its configuration takes.
	if err := (runc.CRIUConfig{ExternalMounts: hidden(mounts, nil)}).Write(filepath.Join(t.TempDir(), "conf")); err != nil {
		t.Error(err)
	}
}

func TestOnlyLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libcuda.so.1", "libcuda.so.550.90.07", "libnvidia-ml.so.550.54.14", "libnvidia-ml.so.550.90.07", "libcuda.so.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ stem, version, want string }{
		{"libcuda.so", "", "libcuda.so.550.90.07"},
		{"libcuda.so", "550.90.07", "libcuda.so.550.90.07"},
		{"libcuda.so", "550.54.14", ""},
		{"libnvidia-ml.so", "", ""}, // which one?
		{"libnvidia-ml.so", "550.54.14", "libnvidia-ml.so.550.54.14"},
		{"libother.so", "", ""},
	} {
		want := tc.want
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got := onlyLibrary(dir, tc.stem, tc.version); got != want {
			t.Errorf("%s %s: %q", tc.stem, tc.version, got)
		}
	}
	h := &nvidiaHost{dirs: func() []string { return []string{dir} }}
	if got := h.Library("libcuda.so", "/nowhere"); got != filepath.Join(dir, "libcuda.so.550.90.07") && got != "" {
		t.Errorf("of the host: %q", got)
	}
}

func TestWithoutNodes(t *testing.T) {
	const before = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n"
	if got := string(withoutNodes([]byte(before))); got != "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n" {
		t.Errorf("%q", got)
	}
}

// What NVIDIA's OCI runtime writes into a bundle is noticed where it says more of GPUs
// than containerd's spec, and whoever says that no program uses one is believed.
func TestUnseenGPUs(t *testing.T) {
	const (
		cdi    = `{"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c"}, {"path": "/dev/nvidiactl", "type": "c"}]}}`
		legacy = `{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}, "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}}`
		two    = `{"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c"}, {"path": "/dev/nvidia1", "type": "c"}, {"path": "/dev/nvidiactl", "type": "c"}]}}`
		none   = `{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}, "linux": {}}`
	)
	for name, tc := range map[string]struct {
		spec   string
		known  []int // minors
		hook   bool  // NVIDIA's was known
		engine oci.Engine
		fails  bool
	}{
		"none":                 {spec: none},
		"CDI":                  {spec: cdi, fails: true},
		"legacy hook":          {spec: legacy, fails: true},
		"known":                {spec: cdi, known: []int{0}},
		"known, and one more":  {spec: two, known: []int{0}, fails: true},
		"another one":          {spec: cdi, known: []int{1}, fails: true},
		"fewer":                {spec: cdi, known: []int{0, 1}},
		"known hook":           {spec: legacy, hook: true},
		"known hook, and CDI":  {spec: cdi, hook: true, fails: true},
		"one more, not used":   {spec: two, known: []int{0}, engine: oci.EngineNone},
		"not used":             {spec: cdi, engine: oci.EngineNone},
		"no spec":              {fails: true},
		"known, and no spec":   {known: []int{0}, fails: true},
		"auto, with a new GPU": {spec: cdi, engine: oci.EngineAuto, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &container{bundle: t.TempDir(), written: oci.GPUs{NVIDIA: tc.hook || len(tc.known) > 0, NVIDIAMinors: tc.known}, policy: oci.Policy{Engine: tc.engine}}
			if tc.spec != "" {
				if err := os.WriteFile(filepath.Join(c.bundle, "config.json"), []byte(tc.spec), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := c.unseenGPUs()
			if (err != nil) != tc.fails || tc.spec != "" && err != nil && !errors.Is(err, errdefs.ErrFailedPrecondition) {
				t.Errorf("got %v", err)
			}
		})
	}
}
