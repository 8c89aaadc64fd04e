// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

func TestMissingLibraries(t *testing.T) {
	d := New(Libraries{CUDA: "/nonexistent/libcuda.so.1", NVML: "/nonexistent/libnvidia-ml.so.1"})
	_, stateErr := d.State(os.Getpid())
	_, invErr := d.Inventory()
	_, symErr := d.Symbols()
	for name, err := range map[string]error{"State": stateErr, "Inventory": invErr, "Symbols": symErr, "Init": d.Init()} {
		if !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
	if !strings.Contains(stateErr.Error(), "/nonexistent/libcuda.so.1") {
		t.Errorf("err = %v, want the library's name", stateErr)
	}
}

func TestLibraryWithoutTheAPI(t *testing.T) {
	_, err := New(Libraries{CUDA: "libc.so.6"}).State(os.Getpid())
	if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), "570 or later") {
		t.Errorf("err = %v", err)
	}
}

func TestLibrariesFromEnv(t *testing.T) {
	t.Setenv("HETGPU_LIBCUDA", "")
	t.Setenv("HETGPU_LIBNVML", "/x/libnvidia-ml.so.1")
	want := Libraries{CUDA: "libcuda.so.1", NVML: "/x/libnvidia-ml.so.1"}
	if got := LibrariesFromEnv(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestClassOf(t *testing.T) {
	tests := []struct {
		result int
		gone   bool
		want   helperapi.Class
	}{
		{cudaErrorNotSupported, false, helperapi.Class_CLASS_UNSUPPORTED},
		{cudaErrorNotReady, false, helperapi.Class_CLASS_NOT_READY},
		{cudaErrorIllegalState, false, helperapi.Class_CLASS_ILLEGAL_STATE},
		{cudaErrorNotInitialized, false, helperapi.Class_CLASS_NO_STATE},
		{cudaErrorNotInitialized, true, helperapi.Class_CLASS_GONE},
		{cudaErrorOperatingSystem, true, helperapi.Class_CLASS_GONE},
		{cudaErrorOperatingSystem, false, helperapi.Class_CLASS_OTHER},
		{cudaErrorInvalidValue, false, helperapi.Class_CLASS_OTHER},
	}
	for _, test := range tests {
		if got := classOf(test.result, test.gone); got != test.want {
			t.Errorf("classOf(%d, %v) = %v, want %v", test.result, test.gone, got, test.want)
		}
	}
}

func TestParsePairs(t *testing.T) {
	const a = "GPU-00112233-4455-6677-8899-aabbccddeeff"
	const b = "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
	pairs, err := parsePairs(gpuplugin.DeviceMap{b: a, a: b})
	if err != nil || len(pairs) != 2 {
		t.Fatalf("got %v, %v", pairs, err)
	}
	first := [16]byte{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if pairs[0].from != first || pairs[1].to != first || pairs[0].to != pairs[1].from {
		t.Errorf("pairs = %v", pairs)
	}
	for _, bad := range []string{"", "GPU-0011", "MIG-00112233-4455-6677-8899-aabbccddeeff", "GPU-zz112233-4455-6677-8899-aabbccddeeff"} {
		if _, err := parsePairs(gpuplugin.DeviceMap{a: bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestExited(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if exited(pid) {
		t.Error("a running process has exited")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !exited(pid) {
		t.Error("a process that was reaped has not exited")
	}
}

func TestExitedZombies(t *testing.T) {
	tests := map[string]struct {
		stat  string
		tasks int
		want  bool
	}{
		"running":                           {"7 (a) R 1", 1, false},
		"zombie":                            {"7 (a) Z 1", 1, true},
		"dead":                              {"7 (a) X 1", 0, true},
		"zombie with threads":               {"7 (a) Z 1", 2, false},
		"a name that looks like a state":    {"7 (a) Z ) S 1", 1, false},
		"a name with parentheses, zombie":   {"7 (a) S ) Z 1", 1, true},
		"not understood, so not a zombie":   {"", 1, false},
		"cut off, so not known as a zombie": {"7 (a) ", 1, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for i := range max(test.tasks, 1) {
				dir := filepath.Join(root, "7", "task")
				if i < test.tasks {
					dir = filepath.Join(dir, string(rune('7'+i)))
				}
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "7", "stat"), []byte(test.stat), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := exitedIn(root, 7); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
