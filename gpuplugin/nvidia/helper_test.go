// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// The test binary is its own helper: with this variable it serves a driver of
// which each process behaves in another way.
const asHelper = "HETGPU_TEST_HELPER"

// asShim has it start a helper, print its PID, and wait.
const asShim = "HETGPU_TEST_SHIM"

func TestMain(m *testing.M) {
	if os.Getenv(asShim) != "" {
		os.Exit(shim())
	}
	if os.Getenv(asHelper) == "" {
		os.Exit(m.Run())
	}
	err := helper.Serve(context.Background(), 3, scripted{}, scriptedMover{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func shim() int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	h := nvidia.NewHelper(nvidia.HelperConfig{Binary: self, Env: []string{asHelper + "=1"}})
	if err := h.Unlock(context.Background(), pidFine); err != nil {
		return 1
	}
	fmt.Fprintln(os.Stdout, h.PID())
	return errorCode(h.Unlock(context.Background(), pidHangs))
}

func errorCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// The processes of the scripted driver.
const (
	pidFine = 1 + iota
	pidDies
	pidHangs
	pidStateless
	pidGone
	pidNotReady
	pidUnsupported
	pidIllegal
	pidOdd
)

// scripted is a driver in the helper's process.
type scripted struct{ helper.Driver }

func (scripted) act(pid int) error {
	switch pid {
	case pidFine:
		return nil
	case pidDies:
		os.Exit(7)
	case pidHangs:
		select {}
	case pidStateless:
		return &helperapi.Error{Class: helperapi.Class_CLASS_NO_STATE}
	case pidGone:
		return &helperapi.Error{Class: helperapi.Class_CLASS_GONE}
	case pidNotReady:
		return gputest.ErrNotReady
	case pidUnsupported:
		return gputest.ErrNotSupported
	case pidIllegal:
		return &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "cuX", Code: 401, Name: "CUDA_ERROR_ILLEGAL_STATE"}
	}
	return errors.New("odd")
}

func (s scripted) State(pid int) (gpuplugin.State, error) { return gpuplugin.StateLocked, s.act(pid) }
func (s scripted) Checkpoint(pid int) error               { return s.act(pid) }
func (s scripted) Unlock(pid int) error                   { return s.act(pid) }

func (s scripted) Lock(pid int, timeout time.Duration) error {
	if timeout != 40*time.Millisecond {
		return fmt.Errorf("time-out %v", timeout)
	}
	return s.act(pid)
}

func (s scripted) Restore(pid int, devices gpuplugin.DeviceMap) error {
	if devices["GPU-a"] != "GPU-b" || len(devices) != 1 {
		return fmt.Errorf("devices %v", devices)
	}
	return s.act(pid)
}

func (scripted) Usage(pids []int) (map[string]uint64, error) {
	if !slices.Equal(pids, []int{3, 4}) {
		return nil, fmt.Errorf("pids %v", pids)
	}
	return map[string]uint64{"GPU-a": 1 << 40}, nil
}

func (scripted) Inventory() (gpuplugin.Inventory, error) {
	return gpuplugin.Inventory{Driver: "580.1", API: 13000, Devices: []gpuplugin.Device{gpu0, gpu1}}, nil
}

func (scripted) Symbols() ([]*helperapi.Symbol, error) { return nil, nil }

func newHelper(t *testing.T) *nvidia.Helper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := nvidia.NewHelper(nvidia.HelperConfig{Binary: self, Env: append(os.Environ(), asHelper+"=1")})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestHelperCalls(t *testing.T) {
	h, ctx := newHelper(t), t.Context()
	h.Warm(ctx)
	pid := h.PID()
	if state, err := h.State(ctx, pidFine); err != nil || state != locked {
		t.Errorf("State = %q, %v", state, err)
	}
	if err := h.Lock(ctx, pidFine, 40*time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := h.Checkpoint(ctx, pidFine); err != nil {
		t.Error(err)
	}
	if err := h.Restore(ctx, pidFine, gpuplugin.DeviceMap{"GPU-a": "GPU-b"}); err != nil {
		t.Error(err)
	}
	if err := h.Unlock(ctx, pidFine); err != nil {
		t.Error(err)
	}
	if used, err := h.Usage(ctx, []int{3, 4}); err != nil || used["GPU-a"] != 1<<40 {
		t.Errorf("Usage = %v, %v", used, err)
	}
	inv, err := h.Inventory(ctx)
	if err != nil || inv.Driver != "580.1" || inv.API != 13000 || !slices.Equal(inv.Devices, []gpuplugin.Device{gpu0, gpu1}) {
		t.Errorf("Inventory = %+v, %v", inv, err)
	}
	if h.PID() != pid {
		t.Error("another helper was started")
	}
}

func TestHelperKeepsClasses(t *testing.T) {
	h := newHelper(t)
	classes := map[int]error{
		pidStateless: helperapi.ErrNoState, pidGone: helperapi.ErrGone, pidNotReady: helperapi.ErrNotReady,
		pidUnsupported: gpuplugin.ErrUnsupported, pidIllegal: helperapi.ErrIllegalState, pidOdd: gpuplugin.ErrUnavailable,
	}
	for pid := range classes {
		err := h.Checkpoint(t.Context(), pid)
		if err == nil {
			t.Errorf("pid %d: no error", pid)
		}
		for of, class := range classes {
			if want := of == pid && pid != pidOdd; errors.Is(err, class) != want {
				t.Errorf("pid %d: errors.Is(%q, %q) = %v", pid, err, class, !want)
			}
		}
	}
	err := h.Checkpoint(t.Context(), pidIllegal)
	if !strings.Contains(err.Error(), "cuX: CUDA_ERROR_ILLEGAL_STATE (401)") {
		t.Errorf("err = %v", err)
	}
}

func TestHelperDies(t *testing.T) {
	h, ctx := newHelper(t), t.Context()
	h.Warm(ctx)
	first := h.PID()
	err := h.Checkpoint(ctx, pidDies)
	if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), "exit status 7") ||
		!strings.Contains(err.Error(), "checkpoint of process 2") {
		t.Errorf("err = %v", err)
	}
	if _, err := h.State(ctx, pidFine); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if h.PID() == first {
		t.Error("no other helper was started")
	}
}

func TestHelperKilledDuringCalls(t *testing.T) {
	h := newHelper(t)
	h.Warm(t.Context())
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() { errs <- h.Checkpoint(t.Context(), pidHangs) })
	}
	if err := h.Unlock(t.Context(), pidFine); err != nil { // it serves beside those that hang
		t.Fatal(err)
	}
	if err := syscall.Kill(h.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
	}
	if err := h.Unlock(t.Context(), pidFine); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestHelperHangs(t *testing.T) {
	t.Run("past the deadline it is killed", func(t *testing.T) {
		h := newHelper(t)
		h.Warm(t.Context())
		first := h.PID()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := h.Checkpoint(ctx, pidHangs)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
		if err := syscall.Kill(first, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the helper that hung is still there: %v", err)
		}
		if err := h.Unlock(t.Context(), pidFine); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
	t.Run("a call that is given up leaves it alone", func(t *testing.T) {
		h := newHelper(t)
		h.Warm(t.Context())
		first := h.PID()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		err := h.Checkpoint(ctx, pidHangs)
		if !errors.Is(err, context.Canceled) || errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
		if err := h.Unlock(t.Context(), pidFine); err != nil || h.PID() != first {
			t.Errorf("the next call: %v, helper %d, was %d", err, h.PID(), first)
		}
	})
	t.Run("a stopped helper is killed when a call is given up", func(t *testing.T) {
		h := newHelper(t)
		h.Warm(t.Context())
		if err := h.Unlock(t.Context(), pidFine); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(h.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := h.Unlock(ctx, pidHangs); !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
		if err := h.Unlock(t.Context(), pidFine); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestHelperEndsWithItsShim(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asShim+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 10_000); err != nil || n != 1 {
		t.Errorf("the helper has outlived its shim by 10 s: %v", err)
	}
}

func TestHelperClosed(t *testing.T) {
	h := newHelper(t)
	go func() { _ = h.Checkpoint(t.Context(), pidHangs) }() // it is in the way
	if err := h.Unlock(t.Context(), pidFine); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context(), pidFine); !errors.Is(err, gpuplugin.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestHelperMissing(t *testing.T) {
	for _, binary := range []string{"/nonexistent/hetgpu-gpu", "hetgpu-gpu-that-nobody-has"} {
		h := nvidia.NewHelper(nvidia.HelperConfig{Binary: binary})
		h.Warm(t.Context())
		_, err := h.State(t.Context(), pidFine)
		if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), binary) {
			t.Errorf("err = %v", err)
		}
	}
}
