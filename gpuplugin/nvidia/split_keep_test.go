// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// keptWorld is four processes that have ended, three with their device memory
// kept.
type keptWorld struct {
	*splitWorld
	kept   gpuplugin.Kept
	procs  []gpuplugin.Process
	images map[int]gputest.LibraryImage
	plain  gputest.Image
}

func newKeptWorld(t *testing.T) *keptWorld {
	t.Helper()
	w := &keptWorld{splitWorld: newSplitWorld(t), images: map[int]gputest.LibraryImage{}}
	w.procs = w.processes(t, 1, 2, 3, 4)
	err := w.stop(t.Context(), w.procs)
	if err == nil {
		w.kept, err = w.e.Keep(t.Context(), "/snapshot", w.procs)
	}
	if err == nil {
		err = w.e.Confirm(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.plain = w.Dump(4)
	for pid := 1; pid <= 3; pid++ {
		w.images[pid] = w.lib.Dump(pid)
		w.Exit(pid)
	}
	w.Exit(4)
	if err := w.e.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := w.lib.Held(); len(held) > 0 {
		t.Errorf("the helper still holds %v", held)
	}
	return w
}

// revive is what CRIU does.
func (w *keptWorld) revive() {
	for pid, image := range w.images {
		w.lib.Revive(pid+10, image)
	}
	w.Revive(14, w.plain)
	for i := range w.procs {
		w.procs[i].PID += 10
	}
}

func TestSplitKeep(t *testing.T) {
	w := newKeptWorld(t)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || w.kept.Boot != strings.TrimSpace(string(boot)) || w.kept.Digest != "digest of "+w.kept.Keeper || w.kept.Bytes != 6<<30+3<<20 {
		t.Errorf("%+v, %v", w.kept, err)
	}
	there, err := w.e.Fetch(t.Context(), w.kept, w.procs)
	if err != nil || !maps.Equal(there, map[string]uint64{gpu0.UUID: 6 << 30, gpu1.UUID: 3 << 20}) || !w.lib.Keepers().Lent(w.kept.Keeper) {
		t.Fatalf("%v, %v", there, err)
	}
	w.revive()
	if err := w.e.Resume(t.Context(), w.procs, nil); err != nil {
		t.Fatal(err)
	}
	calls := w.Calls()
	before(t, calls, gputest.OpUnpark, gputest.OpSpend)
	before(t, calls, gputest.OpSpend, gputest.OpRelease)
	// What may fail comes before there is no way back.
	if slices.Index(calls, "unlock 14") > slices.Index(calls, "spend 0") {
		t.Errorf("%v", calls)
	}
	for pid := 11; pid <= 14; pid++ {
		if got, want := w.MemoryOf(pid), (gputest.Memory{gpu0.UUID: uint64(pid-10) << 30, gpu1.UUID: 1 << 20}); !maps.Equal(got, want) || w.StateOf(pid) != running {
			t.Errorf("process %d is %s and has %v, want %v", pid, w.StateOf(pid), got, want)
		}
	}
	if names := w.lib.Keepers().Names(); len(names) > 0 {
		t.Errorf("%v is still kept", names)
	}
	// From now on it is a container as any other.
	if err := w.e.Drop(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range w.procs {
		w.procs[i].State = running
	}
	if err := errors.Join(w.stop(t.Context(), w.procs), w.e.Resume(t.Context(), w.procs, nil)); err != nil {
		t.Error(err)
	}
}

// A restore that fails leaves everything with the keeper, until the processes
// could change it.
func TestSplitFetchInVain(t *testing.T) {
	for _, tc := range []struct {
		op    gputest.Op
		pid   int
		class helperapi.Class
	}{
		{gputest.OpRestore, 12, helperapi.Class_CLASS_OTHER},
		{gputest.OpUnpark, 12, helperapi.Class_CLASS_OTHER},
		{gputest.OpSpend, 0, helperapi.Class_CLASS_NOT_READY},
	} {
		t.Run(string(tc.op), func(t *testing.T) {
			w := newKeptWorld(t)
			if _, err := w.e.Fetch(t.Context(), w.kept, w.procs); err != nil {
				t.Fatal(err)
			}
			w.revive()
			w.Fail(gputest.Fault{Op: tc.op, PID: tc.pid, Err: &helperapi.Error{Class: tc.class, Detail: "fault"}})
			if err := w.e.Resume(t.Context(), w.procs, nil); err == nil || !strings.Contains(err.Error(), "fault") {
				t.Errorf("error is %v", err)
			}
			for pid := 11; pid <= 13; pid++ {
				if w.lib.StateOf(pid) == nvidia.ClientRunning {
					t.Errorf("process %d runs", pid)
				}
			}
			// Its caller has killed the container by then.
			if err := w.e.Drop(t.Context()); err != nil {
				t.Error(err)
			}
			if names := w.lib.Keepers().Names(); !slices.Equal(names, []string{w.kept.Keeper}) || w.lib.Keepers().Lent(w.kept.Keeper) {
				t.Errorf("kept is %v", names)
			}
		})
	}
}

// What does not come to its end is kept by nobody, and given back.
func TestSplitKeepUndone(t *testing.T) {
	for name, undo := range map[string]func(w *splitWorld) error{
		"not confirmed": func(*splitWorld) error { return nil },
		"confirmed": func(w *splitWorld) error {
			return errors.Join(w.e.Confirm(t.Context()), w.e.Forget(t.Context()))
		},
		"killed": func(w *splitWorld) error {
			w.lib.Keepers().Kill("1")
			if err := w.e.Confirm(t.Context()); !errors.Is(err, gpuplugin.ErrNotKept) {
				t.Errorf("error is %v", err)
			}
			return w.e.Forget(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			procs := w.processes(t, 1, 2, 3, 4)
			err := w.stop(t.Context(), procs)
			if err == nil {
				_, err = w.e.Keep(t.Context(), "/snapshot", procs)
			}
			if err := errors.Join(err, undo(w), w.e.Undo(t.Context(), procs), w.e.Drop(t.Context())); err != nil {
				t.Fatal(err)
			}
			if names := w.lib.Keepers().Names(); len(names) > 0 {
				t.Errorf("%v is kept", names)
			}
			w.wantClients(t, nvidia.ClientRunning)
			w.wantWhole(t)
		})
	}
}

// Memory that can't be on this host is not asked for.
func TestSplitFetchRefused(t *testing.T) {
	w := newKeptWorld(t)
	other := w.kept
	other.Boot = "another"
	if _, err := w.e.Fetch(t.Context(), other, w.procs); !errors.Is(err, gpuplugin.ErrNotKept) || slices.Contains(w.Calls(), "fetch 0") {
		t.Errorf("another boot: %v", err)
	}
	w.lib.Keepers().Kill(w.kept.Keeper)
	if _, err := w.e.Fetch(t.Context(), w.kept, w.procs); !errors.Is(err, gpuplugin.ErrNotKept) {
		t.Errorf("no keeper: %v", err)
	}
	// A failed one leaves no keeper.
	w = &keptWorld{splitWorld: newSplitWorld(t)}
	procs := w.processes(t, 1, 2, 3, 4)
	w.Fail(gputest.Fault{Op: gputest.OpKeep, Err: errors.New("fault")})
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	if _, err := w.e.Keep(t.Context(), "/snapshot", procs); err == nil || len(w.lib.Keepers().Names()) > 0 {
		t.Errorf("error is %v, kept is %v", err, w.lib.Keepers().Names())
	}
}
