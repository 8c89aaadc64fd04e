// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driverlibs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes files, and links where the value is not empty.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, target := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.Symlink(strings.ReplaceAll(target, "ROOT", root), path)
		if target == "" {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"libcuda.so.580.159.04":      {"libcuda.so", "580.159.04"},
		"libnvidia-ml.so.570.86":     {"libnvidia-ml.so", "570.86"},
		"libcuda.so.1":               {},
		"libcuda.so":                 {},
		"libcudart.so.12":            {},
		"libcudart.so.12.8.90":       {}, // of CUDA's toolkit
		"libcuda.so.580.159.04.old":  {},
		"x/libcuda.so.580.159.04":    {},
		"libnvrtc-builtins.so.12.8":  {},
		"libnvidia-nvvm.so.4":        {},
		"libnvidia-nvvm.so.580.1.2":  {"libnvidia-nvvm.so", "580.1.2"},
		"libcuda.so.580.159.04.1.2.": {},
	} {
		stem, version, ok := Split(name)
		if stem != want[0] || version != want[1] || ok != (want[0] != "") {
			t.Errorf("%s: %q, %q, %t", name, stem, version, ok)
		}
	}
}

func TestCached(t *testing.T) {
	const list = `4 libs found in cache ` + "`/etc/ld.so.cache'" + `
	libcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
	libcuda.so.1 (libc6) => /usr/lib32/libcuda.so.1
	libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
	libcuda.so.1 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libcuda.so.1
	libcuda.so.1 (libc6,x86-64) => /opt/driver/libcuda.so.1
	libcuda.so (libc6,x86-64) => /wrong/libcuda.so
	libcuda.so.1 (libc6,x86-64) => relative/libcuda.so.1
`
	for arch, want := range map[string][]string{
		"amd64": {"/usr/lib/x86_64-linux-gnu", "/opt/driver"},
		"arm64": {"/usr/lib/aarch64-linux-gnu"},
	} {
		if got := cached(list, arch); !slices.Equal(got, want) {
			t.Errorf("%s: %q", arch, got)
		}
	}
	if got := cached("", "amd64"); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

func TestFind(t *testing.T) {
	debian := map[string]string{
		"usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04":                   "",
		"usr/lib/x86_64-linux-gnu/libcuda.so.1":                            "libcuda.so.580.159.04",
		"usr/lib/x86_64-linux-gnu/libcuda.so":                              "libcuda.so.1",
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04":              "",
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1":                       "ROOT/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
		"usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.580.159.04":  "",
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.1.1":                 "",
		"usr/lib/x86_64-linux-gnu/libc.so.6":                               "",
		"usr/lib/x86_64-linux-gnu/libcuda.so.9":                            "elsewhere/libcuda.so.580.159.04",
		"usr/lib/x86_64-linux-gnu/libloop.so":                              "libloop.so",
		"usr/lib/x86_64-linux-gnu/libnvidia-directory.so.580.159.04/inner": "",
		"usr/lib32/libcuda.so.580.159.04":                                  "",
	}
	type found map[string][]string
	for name, tc := range map[string]struct {
		dirs    []string
		version string
		want    found
	}{
		"by version": {[]string{"/none", "/usr/lib/x86_64-linux-gnu"}, "580.159.04", found{
			"libcuda.so.580.159.04":                  {"libcuda.so", "libcuda.so.1", "libcuda.so.580.159.04"},
			"libnvidia-ml.so.580.159.04":             {"libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04"},
			"libnvidia-ptxjitcompiler.so.580.159.04": {"libnvidia-ptxjitcompiler.so.580.159.04"},
		}},
		"the first that has it": {[]string{"/usr/lib32", "/usr/lib/x86_64-linux-gnu"}, "580.159.04", found{
			"libcuda.so.580.159.04": {"libcuda.so.580.159.04"},
		}},
		"another version": {[]string{"/usr/lib/x86_64-linux-gnu"}, "580.1", nil},
		"without libcuda": {[]string{"/usr/lib/x86_64-linux-gnu"}, "570.1.1", nil},
		"nowhere":         {[]string{"/opt"}, "580.159.04", nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, debian)
			libs, err := Find(root, tc.dirs, tc.version)
			if tc.want == nil {
				if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), tc.version) {
					t.Errorf("%v, %v", libs, err)
				}
				return
			}
			if err != nil || len(libs) != len(tc.want) {
				t.Fatalf("%v, %v", libs, err)
			}
			for _, l := range libs {
				if !slices.Equal(l.Names, tc.want[l.Name()]) || !strings.HasPrefix(l.Path, root) {
					t.Errorf("%s has the names %q", l.Path, l.Names)
				}
			}
		})
	}
	if libs, err := Find(tree(t, debian), []string{"/usr/lib/x86_64-linux-gnu"}, ""); err != nil || len(libs) != 4 {
		t.Errorf("of any version: %v, %v", libs, err)
	}
}

// The directories of this host can be listed, whatever is in them.
func TestDirs(t *testing.T) {
	for _, root := range []string{"/", t.TempDir()} {
		if dirs := Dirs(t.Context(), root); !slices.Contains(dirs, "/usr/lib64") {
			t.Errorf("%s: %q", root, dirs)
		}
	}
}
