// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gpuengine_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
)

// caller is a program that opens and closes a handle whenever the file "go"
// appears, and removes it then. Its library does nothing.
const (
	callerLib = `
int cuIpcOpenMemHandle_v2(void) { return 0; }
int cuIpcCloseMemHandle(void) { return 0; }
`
	caller = `
#include <time.h>
#include <unistd.h>
int cuIpcOpenMemHandle_v2(void);
int cuIpcCloseMemHandle(void);
int main(void)
{
	struct timespec pause = {.tv_nsec = 5000000};

	for (;;) {
		if (access("go", F_OK) == 0) {
			cuIpcOpenMemHandle_v2();
			if (access("keep", F_OK) != 0)
				cuIpcCloseMemHandle();
			unlink("go");
		}
		nanosleep(&pause, NULL);
	}
}
`
)

// call has the program make its calls, and waits until it has.
func call(t *testing.T, dir string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	name := filepath.Join(dir, "go")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return testbed.Eventually(ctx, "the program has made its calls", func() error {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			return errors.New("it is still to make them")
		}
		return nil
	})
}

// What is dumped runs where there are no probes, and is watched again where
// there are.
func TestProbesAreNotDumped(t *testing.T) {
	if err := ipcwatch.Supported(); err != nil {
		t.Skip(err)
	}
	tool, err := criu.Probe(t.Context(), "")
	if err != nil {
		t.Skipf("needs CRIU: %v", err)
	}
	if tool.Version.Less(criu.Version{4, 2, 0}) {
		t.Skipf("CRIU %s can't dump a process that has hit a probe", tool.Version)
	}
	dir := t.TempDir()
	buildCaller(t, dir)
	guard := ipcwatch.NewGuard()
	guard.Attach(t.Context(), []int{os.Getpid()}, dir)
	guard.Wait(t.Context())
	cmd := exec.Command("setsid", filepath.Join(dir, "caller"))
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if err := call(t, dir); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := ipcwatch.Clean([]int{pid}); err != nil {
		t.Fatal(err)
	}
	runCRIU(t, tool.Path, dir, "dump", "--tree", strconv.Itoa(pid))
	_ = cmd.Wait() // CRIU has killed it
	if err := guard.Close(); err != nil {
		t.Fatal(err)
	}
	runCRIU(t, tool.Path, dir, "restore", "--restore-detached")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := call(t, dir); err != nil {
		t.Errorf("without probes: %v", err)
	}
	again := ipcwatch.NewGuard()
	t.Cleanup(func() { _ = again.Close() })
	again.Attach(t.Context(), []int{pid})
	if err := os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again.Wait(t.Context())
	if err := call(t, dir); err != nil {
		t.Errorf("with probes again: %v", err)
	}
	err = again.Check(t.Context(), []gpuplugin.Process{{PID: pid}})
	if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), "1 legacy CUDA IPC handle") {
		t.Errorf("err = %v", err)
	}
}

func buildCaller(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"lib.c": callerLib, "caller.c": caller} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"-shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 lib.c",
		"-o caller caller.c -L. -l:libcuda.so.1 -Wl,-rpath,$ORIGIN",
	} {
		cmd := exec.Command("cc", strings.Fields(args)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cc %s: %v\n%s", args, err, out)
		}
	}
}

func runCRIU(t *testing.T, program, dir, action string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	log := filepath.Join(dir, action+".log")
	// The process is in the host's cgroups: CRIU would save the whole tree below,
	// and make the cgroups of other tests' containers again.
	args = append([]string{
		action, "--images-dir", dir, "--log-file", action + ".log", "--allow-uprobes", "--shell-job", "--manage-cgroups=ignore",
	}, args...)
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		text, readErr := os.ReadFile(log)
		t.Fatalf("criu %s: %v\n%s\n%s%v", action, err, out, text, readErr)
	}
}
