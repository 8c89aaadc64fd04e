// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
)

func TestTooManyFiles(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, filepath.Join(root, "usr/lib64"), 100)
	if found, err := ipcwatch.Below(root); err == nil || !strings.Contains(err.Error(), "too many files") {
		t.Errorf("found %d files, %v", len(found), err)
	}
}

// A mount may have any number of files, so nobody reads its names.
func TestMountsAreNotListed(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, filepath.Join(root, "data"), 100)
	writeFiles(t, filepath.Join(root, "other"), 1)
	found, err := ipcwatch.Below(root, "/data", "/other/libcuda.so.x0")
	if err != nil || len(found) != 1 || found[0] != "other/libcuda.so.x0" {
		t.Errorf("found %q, %v", found, err)
	}
}

func writeFiles(t *testing.T, dir string, count int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("libcuda.so.x", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBelow(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "usr/local/cuda-12.8/compat/libcuda.so.570.2",
		"opt/gpu/libcuda.so.1", "usr/lib64/libcudart.so.12", "home/libcuda.so.1", "usr/lib64/libcuda.so.dir/x",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"usr/local/cuda":         "/usr/local/cuda-12.8", // absolute, as the container sees it
		"usr/lib/libcuda.so.1":   "x86_64-linux-gnu/libcuda.so.580.1",
		"usr/lib64/libcuda.so.1": outside,
		"usr/lib64/libcuda.so.2": "../../../../../../../../../../.." + outside,
		"usr/lib64/libcuda.so.3": "libcuda.so.3",
		"usr/local/nvidia":       "/../../..",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ipcwatch.Below(root, "/opt/gpu", "/nonexistent", "relative")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"opt/gpu/libcuda.so.1",
		"usr/lib/x86_64-linux-gnu/libcuda.so.580.1",
		"usr/lib/x86_64-linux-gnu/libcuda.so.580.1",
		"usr/local/cuda-12.8/compat/libcuda.so.570.2",
		"usr/local/cuda-12.8/compat/libcuda.so.570.2",
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
