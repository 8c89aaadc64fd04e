// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// keeping is the device memory of a [world] that is kept.
type keeping struct {
	// kept says that somebody keeps it, confirmed that he does by himself.
	kept, confirmed bool
	// places are where Match puts devices.
	places gpuplugin.DeviceMap
	// needed is what Match was told of the first device.
	needed uint64
}

// keptGPU can keep device memory.
type keptGPU struct{ splitGPU }

var keptMemory = gpuplugin.Kept{
	Boot: "01234567-89ab-cdef-0123-456789abcdef", Keeper: strings.Repeat("0f", 16), Digest: "sha256:" + strings.Repeat("0", 64), Bytes: 1 << 20,
}

func (g keptGPU) Keep(ctx context.Context, _ string, _ []gpuplugin.Process) (gpuplugin.Kept, error) {
	err := g.call(ctx, "keep")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = err == nil
	return keptMemory, err
}

func (g keptGPU) Confirm(ctx context.Context) error {
	if _, err := snapshot.Open(g.dumped.Dir); err != nil {
		g.t.Errorf("it is confirmed before the snapshot is complete: %v", err)
	}
	err := g.call(ctx, "confirm")
	g.confirmed = err == nil
	return err
}

func (g keptGPU) Forget(ctx context.Context) error {
	g.kept, g.confirmed = false, false
	return g.call(ctx, "forget")
}

func (g keptGPU) Fetch(ctx context.Context, kept gpuplugin.Kept, procs []gpuplugin.Process) (map[string]uint64, error) {
	if kept != keptMemory || len(procs) != 2 || procs[0].Key != "1" || !procs[0].Split || procs[1].Split {
		g.t.Errorf("fetch of %+v for %+v", kept, procs)
	}
	err := g.call(ctx, "fetch")
	g.held = err == nil
	return map[string]uint64{gpu0: kept.Bytes}, err
}

func (g keptGPU) Match(ctx context.Context, saved gpuplugin.Inventory, _ []int) (gpuplugin.DeviceMap, error) {
	g.needed = saved.Devices[0].UsedBytes
	return g.places, g.call(ctx, "match")
}

// Drop ends what nobody has confirmed.
func (g keptGPU) Drop(ctx context.Context) error {
	g.kept = g.kept && g.confirmed
	return g.splitGPU.Drop(ctx)
}

func newKeptWorld(t *testing.T) *world {
	t.Helper()
	w := newSplitWorld(t)
	w.keeping = &keeping{}
	return w
}

func keptRequest(dir string) Request {
	r := splitRequest(dir, true)
	r.Keep = true
	return r
}

func TestKeptOrder(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		w := newKeptWorld(t)
		dir := filepath.Join(t.TempDir(), "snapshot")
		r := keptRequest(dir)
		r.TCPEstablished = tcp
		m, err := w.container().Checkpoint(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !inOrder(w.calls, strings.Fields("park suspend freeze keep confirm kill drop")) || w.called("save") || w.called("copy") || w.called("forget") {
			t.Errorf("calls are %v", w.calls)
		}
		// Who can't be brought back has to be kept by then.
		if tcp && !inOrder(w.calls, []string{"keep", "dump"}) {
			t.Errorf("calls are %v", w.calls)
		}
		if !w.kept || !w.confirmed || w.held || w.alive {
			t.Errorf("%+v, held %t, alive %t", w.keeping, w.held, w.alive)
		}
		snap, err := snapshot.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		k := snap.Manifest.Kept()
		if m.Memory == nil || k == nil || *k != (snapshot.Keeper{BootID: keptMemory.Boot, ID: keptMemory.Keeper, Digest: keptMemory.Digest}) ||
			snap.Manifest.Memory.KeptBytes != keptMemory.Bytes || !slices.ContainsFunc(m.Phases, func(p snapshot.Phase) bool { return p.Name == PhaseKeep }) {
			t.Errorf("keeper %+v, memory %+v, phases %v", k, m.Memory, m.Phases)
		}
		if slices.ContainsFunc(snap.Manifest.Files, func(f snapshot.File) bool { return memfile.IsName(f.Name) }) {
			t.Errorf("files are %v", snap.Manifest.Files)
		}
	}
}

// Whatever fails, the container is as it was found, and nobody keeps anything.
func TestKeptRollsBack(t *testing.T) {
	for _, tc := range []struct {
		fail, phase string
		notCalled   []string
	}{
		{"park 1", PhasePark, []string{"keep", "dump", "kill"}},
		{"suspend 1", PhaseSuspend, []string{"keep", "dump", "kill"}},
		{"keep 1", PhaseKeep, []string{"confirm", "kill"}},
		{"dump 1", PhaseDump, []string{"confirm", "kill"}},
		{"confirm 1", PhaseKeep, []string{"kill"}},
		{"kill 1", PhaseKill, nil},
	} {
		t.Run(tc.fail, func(t *testing.T) {
			w := newKeptWorld(t)
			before := maps.Clone(w.states)
			w.fail[tc.fail] = errFault
			dir := t.TempDir()
			_, err := w.container().Checkpoint(t.Context(), keptRequest(dir))
			if !errors.Is(err, errFault) || !strings.Contains(err.Error(), tc.phase) {
				t.Fatalf("error is %v, want the fault in %s", err, tc.phase)
			}
			w.asFound(t, before, false, dir)
			if len(w.away) > 0 || w.held || w.kept {
				t.Errorf("away %v, held %t, %+v", w.away, w.held, w.keeping)
			}
			for _, name := range tc.notCalled {
				if w.called(name) {
					t.Errorf("%s was called: %v", name, w.calls)
				}
			}
		})
	}
}

// What can't be kept is refused before anything is changed.
func TestKeptRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(w *world, r *Request)
		says string
	}{
		"it goes on":          {func(_ *world, r *Request) { r.Exit = false }, "only for a container that ends"},
		"nobody can be split": {func(w *world, _ *Request) { w.split = nil }, "it does not run libhetcuda"},
		"no GPU state":        {func(w *world, _ *Request) { clear(w.states) }, "no process holds any"},
		"another engine":      {func(w *world, r *Request) { w.engine, r.Manifest.Library = "driver", nil }, `engine "driver"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKeptWorld(t)
			r := keptRequest(t.TempDir())
			tc.edit(w, &r)
			_, err := w.container().Checkpoint(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), PhasePreflight) {
				t.Errorf("error is %v, want one with %q", err, tc.says)
			}
			for _, call := range []string{"lock", "park", "freeze", "dump", "kill"} {
				if w.called(call) {
					t.Errorf("calls are %v", w.calls)
				}
			}
		})
	}
}

func savedKept(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := newKeptWorld(t).container().Checkpoint(t.Context(), keptRequest(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func restoredKept(t *testing.T) *world {
	t.Helper()
	w := restoredSplit(t)
	w.keeping = &keeping{kept: true, confirmed: true}
	return w
}

func TestKeptRestore(t *testing.T) {
	dir, w := savedKept(t), restoredKept(t)
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(t.Context(), w.container()); err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())
	if !inOrder(w.calls, []string{"fetch", "match", "resume", "drop"}) || w.called("load") {
		t.Errorf("calls are %v", w.calls)
	}
	// Of the device it takes what is not there yet.
	if w.needed != 0 {
		t.Errorf("%d bytes are needed besides", w.needed)
	}
}

// A restore that can't be is refused before anything starts, and gives back what
// it took.
func TestKeptOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit      func(w *world, target *Target)
		want      error
		says      string
		notCalled string
	}{
		"it is not kept":  {func(w *world, _ *Target) { w.fail["fetch 1"] = gpuplugin.ErrNotKept }, gpuplugin.ErrNotKept, PhaseLoad, "match"},
		"another GPU":     {func(w *world, _ *Target) { w.places = gpuplugin.DeviceMap{gpu0: "GPU-1"} }, gpuplugin.ErrIncompatible, "hetgpu drain", ""},
		"no room":         {func(w *world, _ *Target) { w.fail["match 1"] = gpuplugin.ErrIncompatible }, gpuplugin.ErrIncompatible, "", ""},
		"another library": {func(_ *world, target *Target) { target.Library = nil }, ErrLibrary, "", "fetch"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, w := savedKept(t), restoredKept(t)
			target := Target{GPU: w.gpu(), Library: library}
			tc.edit(w, &target)
			if _, err := Open(t.Context(), dir, target); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error is %v, want %v, %q", err, tc.want, tc.says)
			}
			if w.held || !w.kept || w.called("resume") || tc.notCalled != "" && w.called(tc.notCalled) {
				t.Errorf("calls are %v, held %t, kept %t", w.calls, w.held, w.kept)
			}
		})
	}
}

// Devices that only change their order take it.
func TestKeptSameDevices(t *testing.T) {
	dir, w := savedKept(t), restoredKept(t)
	w.places = gpuplugin.DeviceMap{gpu0: gpu0, "GPU-1": "GPU-1"}
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())
	if w.held || !w.kept {
		t.Errorf("held %t, kept %t", w.held, w.kept)
	}
}
