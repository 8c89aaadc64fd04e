// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"

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
