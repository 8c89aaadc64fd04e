// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func TestLibraryDirs(t *testing.T) {
	spec := &oci.Spec{
		Process: oci.Process{Env: []string{"PATH=/bin", "LD_LIBRARY_PATH=/opt/lib::lib:/mnt/gpu/", "A=LD_LIBRARY_PATH=/no"}},
		Mounts: []specs.Mount{
			{Type: "proc", Destination: "/proc"},
			{Type: "bind", Destination: "/usr/lib64/libcuda.so.580.1", Options: []string{"ro"}},
			{Type: "bind", Destination: "/usr/lib64/libcuda.so.1"},
			{Destination: "/mnt/gpu", Options: []string{"rbind", "ro"}},
			{Type: "none", Destination: "/standin", Options: []string{"bind"}},
			{Type: "tmpfs", Destination: "/tmp"},
		},
	}
	want := []string{"/usr/lib64/libcuda.so.580.1", "/usr/lib64", "/usr/lib64/libcuda.so.1", "/mnt/gpu", "/standin", "/opt/lib"}
	if got := libraryDirs(spec); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := libraryDirs(&oci.Spec{}); got != nil {
		t.Errorf("got %q", got)
	}
}
