// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// The directories of the scripted mover.
const (
	dirFine    = "/fine"
	dirDies    = "/dies"
	dirWaits   = "/waits"
	dirFull    = "/full"
	dirDamaged = "/damaged"
	dirNoRoom  = "/noroom"
	dirNotKept = "/notkept"
)

// scriptedMover is a mover in the helper's process.
type scriptedMover struct{ nvidia.Mover }

func (scriptedMover) act(ctx context.Context, dir string) error {
	switch dir {
	case dirDies:
		os.Exit(7)
	case dirWaits:
		<-ctx.Done()
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	case dirFull:
		return fmt.Errorf("%w: write x: %w", helperapi.ErrNoSpace, unix.ENOSPC)
	case dirDamaged:
		return fmt.Errorf("%w: block 7", helperapi.ErrDamaged)
	case dirNotKept:
		return fmt.Errorf("job has it: %w", gpuplugin.ErrNotKept)
	case dirNoRoom:
		return fmt.Errorf("chunk 3: %w", &helperapi.Error{Class: helperapi.Class_CLASS_NO_MEMORY, Call: "cuMemCreate", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY"})
	}
	return nil
}

var (
	scriptedClient = nvidia.Client{
		PID: 7, State: nvidia.ClientParked, Version: "1", Build: "ab", Driver: 13000, Chunks: 2, Bytes: 1 << 40, Steps: true, Detail: "pinned 3 MiB",
	}
	scriptedSaved = nvidia.Saved{
		Files: []nvidia.SavedFile{{Name: "hetgpu-mem-0.img", Size: 4096}, {Name: "hetgpu-mem.img", Size: 99}},
		Bytes: 10, Stored: 4, Zero: 3, Reused: 3, Phases: []nvidia.MovePhase{{Name: "mem-scan", Duration: time.Second}, {Name: "mem-copy", Duration: 2}},
	}
)

func (m scriptedMover) Clients(ctx context.Context, dir string) ([]nvidia.Client, error) {
	return []nvidia.Client{scriptedClient}, m.act(ctx, dir)
}

func (m scriptedMover) Hold(ctx context.Context, dir string, _ int, timeout time.Duration) error {
	if timeout != 20*time.Millisecond {
		return fmt.Errorf("time-out %v", timeout)
	}
	return m.act(ctx, dir)
}

func (m scriptedMover) HoldTogether(ctx context.Context, dir string, pids []int, timeout time.Duration) error {
	if timeout != 20*time.Millisecond || !slices.Equal(pids, []int{1, 2}) {
		return fmt.Errorf("%v, time-out %v", pids, timeout)
	}
	return m.act(ctx, dir)
}

func (m scriptedMover) Release(ctx context.Context, dir string, _ int) error { return m.act(ctx, dir) }

func (m scriptedMover) Park(ctx context.Context, req nvidia.ParkRequest) (nvidia.Parked, error) {
	return nvidia.Parked{Chunks: 3, Bytes: map[string]uint64{req.Parcel: uint64(req.PID) + req.Devices["d"]}}, m.act(ctx, req.Dir)
}

func (m scriptedMover) Commit(ctx context.Context, parcels []string) error {
	return m.act(ctx, parcels[0])
}

func (m scriptedMover) Unpark(ctx context.Context, dir string, _ int, _ string) error {
	return m.act(ctx, dir)
}

func (m scriptedMover) Duplicate(ctx context.Context, parcels []string) (bool, error) {
	return true, m.act(ctx, parcels[0])
}

func (m scriptedMover) Save(ctx context.Context, req nvidia.SaveRequest) (nvidia.Saved, error) {
	return scriptedSaved, m.act(ctx, req.Dir)
}

func (m scriptedMover) Load(ctx context.Context, req nvidia.LoadRequest) (nvidia.Loaded, error) {
	return nvidia.Loaded{Bytes: uint64(len(req.Parcels)), Read: uint64(len(req.Devices)), Phases: scriptedSaved.Phases}, m.act(ctx, req.Dir)
}

func (m scriptedMover) Drop(ctx context.Context, parcels []string) error {
	return m.act(ctx, parcels[0])
}

func (scriptedMover) Progress(context.Context, string) (nvidia.Progress, error) {
	return nvidia.Progress{Phase: "mem-copy", Done: 1, Total: 2}, nil
}

func (m scriptedMover) Keep(ctx context.Context, req nvidia.KeepRequest) (nvidia.Kept, error) {
	return nvidia.Kept{Digest: req.Keeper + strings.Join(req.Parcels, ""), Bytes: map[string]uint64{"GPU-a": 7}}, m.act(ctx, req.Home)
}

func (m scriptedMover) Fetch(ctx context.Context, req nvidia.FetchRequest) (nvidia.Kept, error) {
	return nvidia.Kept{Bytes: map[string]uint64{req.By + req.Digest + req.Keeper: uint64(len(req.Parcels))}}, m.act(ctx, req.Home)
}

func (m scriptedMover) Spend(ctx context.Context, keeper, by string) error {
	if by != "job" {
		return fmt.Errorf("by %q", by)
	}
	return m.act(ctx, keeper)
}

func newMover(t *testing.T) *nvidia.Helper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := nvidia.NewHelper(nvidia.HelperConfig{Binary: self, Env: []string{asHelper + "=1"}})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// What one side says the other hears.
func TestMoverAnswers(t *testing.T) {
	h := newMover(t)
	ctx := t.Context()
	if got, err := h.Clients(ctx, dirFine); err != nil || !reflect.DeepEqual(got, []nvidia.Client{scriptedClient}) {
		t.Errorf("Clients: %+v, %v", got, err)
	}
	if got, err := h.Park(ctx, nvidia.ParkRequest{Dir: dirFine, PID: 42, Parcel: "p", Devices: map[string]uint64{"d": 7}}); err != nil || got.Chunks != 3 || got.Bytes["p"] != 42+7 {
		t.Errorf("Park: %+v, %v", got, err)
	}
	if got, err := h.Save(ctx, nvidia.SaveRequest{Dir: dirFine}); err != nil || !reflect.DeepEqual(got, scriptedSaved) {
		t.Errorf("Save: %+v, %v", got, err)
	}
	load := nvidia.LoadRequest{Dir: dirFine, Parcels: []string{"a", "b"}, Devices: gpuplugin.DeviceMap{"GPU-a": "GPU-b"}}
	if got, err := h.Load(ctx, load); err != nil || got.Bytes != 2 || got.Read != 1 || !reflect.DeepEqual(got.Phases, scriptedSaved.Phases) {
		t.Errorf("Load: %+v, %v", got, err)
	}
	if got, err := h.Duplicate(ctx, []string{dirFine}); err != nil || !got {
		t.Errorf("Duplicate: %v, %v", got, err)
	}
	if got, err := h.Progress(ctx, "p"); err != nil || got != (nvidia.Progress{Phase: "mem-copy", Done: 1, Total: 2}) {
		t.Errorf("Progress: %+v, %v", got, err)
	}
	keep := nvidia.KeepRequest{Home: dirFine, Keeper: "k", Parcels: []string{"a", "b"}}
	if got, err := h.Keep(ctx, keep); err != nil || got.Digest != "kab" || got.Bytes["GPU-a"] != 7 {
		t.Errorf("Keep: %+v, %v", got, err)
	}
	if got, err := h.Fetch(ctx, nvidia.FetchRequest{KeepRequest: keep, Digest: "d", By: "b"}); err != nil || got.Digest != "d" || got.Bytes["bdk"] != 2 {
		t.Errorf("Fetch: %+v, %v", got, err)
	}
	for name, err := range map[string]error{
		"Spend":    h.Spend(ctx, dirFine, "job"),
		"Hold":     h.Hold(ctx, dirFine, 1, 20*time.Millisecond),
		"together": h.HoldTogether(ctx, dirFine, []int{1, 2}, 20*time.Millisecond),
		"Release":  h.Release(ctx, dirFine, 1),
		"Unpark":   h.Unpark(ctx, dirFine, 1, "p"),
		"Drop":     h.Drop(ctx, []string{dirFine}),
		"Prepare":  h.Prepare(ctx, []string{"GPU-a"}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMoverErrors(t *testing.T) {
	h := newMover(t)
	for dir, want := range map[string]struct {
		is   error
		text string
	}{
		dirFull:    {helperapi.ErrNoSpace, "write x: no space left on device"},
		dirDamaged: {helperapi.ErrDamaged, "block 7"},
		dirNotKept: {gpuplugin.ErrNotKept, "job has it"},
		dirNoRoom:  {helperapi.ErrNoDeviceMemory, "chunk 3: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2): not enough free device memory"},
	} {
		_, err := h.Save(t.Context(), nvidia.SaveRequest{Dir: dir})
		if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", dir, err)
		}
		var process *gpuplugin.ProcessError
		if err := h.Unpark(t.Context(), dir, 42, "p"); !errors.As(err, &process) || process.PID != 42 || !errors.Is(err, want.is) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// The helper itself ends what is canceled, and lives on with its parcels.
func TestMoverCancel(t *testing.T) {
	h := newMover(t)
	if _, err := h.Clients(t.Context(), dirFine); err != nil {
		t.Fatal(err)
	}
	before := h.PID()
	for name, end := range map[string]func() (context.Context, context.CancelFunc){
		"cancel": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 20*time.Millisecond)
		},
	} {
		ctx, cancel := end()
		done := make(chan error, 1)
		go func() {
			_, err := h.Save(ctx, nvidia.SaveRequest{Dir: dirWaits})
			done <- err
		}()
		if name == "cancel" {
			if _, err := h.Progress(t.Context(), "p"); err != nil {
				t.Error(err)
			}
			cancel()
		}
		<-ctx.Done()
		if err := <-done; !errors.Is(err, context.Cause(ctx)) || !strings.Contains(err.Error(), "wait: context canceled") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := h.HoldTogether(ctx, dirWaits, []int{1, 2}, 20*time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Errorf("hold: %v", err)
	}
	if h.PID() != before {
		t.Error("the helper was replaced")
	}
}

func TestMoverDies(t *testing.T) {
	h := newMover(t)
	_, err := h.Save(t.Context(), nvidia.SaveRequest{Dir: dirDies})
	if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("err = %v", err)
	}
	if _, err := h.Clients(t.Context(), dirFine); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
