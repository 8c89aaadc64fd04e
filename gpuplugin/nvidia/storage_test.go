// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// store is a helper that a driver shows device memory to.
type store struct {
	nvidia.Mover // what is not called
	*gputest.Machine

	mu sync.Mutex
	// has are the parcels, and whether they are copied or in files.
	has map[string]bool
	// whole are the processes that have their memory.
	whole map[int]bool
	calls []string
	// faults are what the next calls fail with, by name, and after says that they
	// have done it by then.
	faults map[string][]error
	after  bool
	dir    string
}

func (s *store) call(name string, do func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	var err error
	if faults := s.faults[name]; len(faults) > 0 {
		err, s.faults[name] = faults[0], faults[1:]
	}
	if err == nil || s.after {
		do()
	}
	return err
}

func (s *store) Map(_ context.Context, req nvidia.MapRequest) (nvidia.Parked, error) {
	return nvidia.Parked{}, s.call("map "+strconv.Itoa(req.PID), func() {
		s.SetState(req.PID, gpuplugin.StateCheckpointing)
		s.has[req.Parcel], s.whole[req.PID] = false, false
	})
}

func (s *store) Settle(_ context.Context, parcel string) error {
	pid := pidOf(parcel)
	return s.call("settle "+strconv.Itoa(pid), func() { s.SetState(pid, gpuplugin.StateCheckpointed) })
}

func (s *store) Fill(_ context.Context, req nvidia.FillRequest) error {
	missing := false
	err := s.call("fill "+strconv.Itoa(req.PID), func() {
		if _, ok := s.has[req.Parcel]; !ok && req.Dir == "" {
			missing = true
			return
		}
		s.dir = req.Dir
		s.SetState(req.PID, gpuplugin.StateLocked)
		s.whole[req.PID] = true
		delete(s.has, req.Parcel)
	})
	if err == nil && missing {
		err = &helperapi.Error{Class: helperapi.Class_CLASS_NO_STATE, Call: "fill"}
	}
	return err
}

func (s *store) Duplicate(context.Context, []string) (bool, error) {
	return true, s.call("duplicate", func() {})
}

func (s *store) Save(context.Context, nvidia.SaveRequest) (nvidia.Saved, error) {
	return nvidia.Saved{}, s.call("save", func() {})
}

func (s *store) Drop(context.Context, []string) error { return s.call("drop", func() { clear(s.has) }) }

func pidOf(parcel string) int {
	_, key, _ := strings.Cut(parcel, "/")
	pid, _ := strconv.Atoi(key)
	return pid
}

type storageWorld struct {
	*store
	stopping
	e *nvidia.StorageEngine
}

func newStorageWorld(t *testing.T) *storageWorld {
	t.Helper()
	m, driver, _ := four(t, nvidia.WithUndoTimeout(5*time.Second))
	m.SetAPI(13040)
	s := &store{Machine: m, has: map[string]bool{}, whole: map[int]bool{}, faults: map[string][]error{}}
	e := nvidia.NewStorageEngineOn(driver, s, "c")
	return &storageWorld{s, stopping{e}, e}
}

func TestStorageOrder(t *testing.T) {
	w := newStorageWorld(t)
	w.SetState(4, gpuplugin.StateCheckpointed) // by another tool
	procs := w.processes(t, 1, 2, 3, 4)
	for _, p := range procs {
		if p.Split != (p.PID != 4) {
			t.Errorf("%+v", p)
		}
	}
	w.faults["map 2"] = []error{gputest.ErrNotSupported}
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	if p := procs[1]; p.Split || !strings.Contains(p.Reason, "NOT_SUPPORTED") {
		t.Errorf("%+v", p)
	}
	wantStates(t, w.Machine, all(gpuplugin.StateCheckpointed))
	if !slices.Contains(w.Calls(), "checkpoint 2") || slices.Contains(w.Calls(), "checkpoint 1") {
		t.Errorf("the driver did %v", w.Calls())
	}
	if err := w.e.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	for pid := 1; pid <= 3; pid++ {
		if w.StateOf(pid) != gpuplugin.StateRunning || pid != 2 && !w.whole[pid] {
			t.Errorf("process %d is %s, whole: %t", pid, w.StateOf(pid), w.whole[pid])
		}
	}
	if w.StateOf(4) != gpuplugin.StateCheckpointed {
		t.Error("what another tool has suspended runs")
	}
}

// None goes on before all have their memory.
func TestStorageResumeFails(t *testing.T) {
	w := newStorageWorld(t)
	procs := w.processes(t, 1, 2)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.faults["fill 2"] = []error{errors.New("no")}
	if err := w.e.Resume(t.Context(), procs, nil); err == nil {
		t.Error("resumed")
	}
	if slices.ContainsFunc(w.Calls(), func(c string) bool { return strings.HasPrefix(c, "unlock") }) {
		t.Errorf("one goes on: %v", w.Calls())
	}
	if err := w.e.Undo(t.Context(), procs); err != nil {
		t.Error(err)
	}
	if w.StateOf(1) != gpuplugin.StateRunning || w.StateOf(2) != gpuplugin.StateRunning || !w.whole[2] {
		t.Errorf("%s, %s", w.StateOf(1), w.StateOf(2))
	}
}

func TestStorageOlderDriver(t *testing.T) {
	w := newStorageWorld(t)
	w.SetAPI(13000)
	procs := w.processes(t, 1)
	if procs[0].Split || procs[0].Reason != "" {
		t.Errorf("%+v", procs[0])
	}
	if err := w.e.Loads(t.Context()); !errors.Is(err, gpuplugin.ErrIncompatible) || !strings.Contains(err.Error(), "615") {
		t.Error(err)
	}
	if err := w.stop(t.Context(), procs); err != nil || len(w.calls) > 0 {
		t.Errorf("%v, %v", err, w.calls)
	}
	for version, want := range map[string]bool{"580.159.04": false, "615.71.09": true, "620": true, "": false, "x.y": false} {
		if nvidia.HasStorage(version) != want {
			t.Errorf("driver %q has storage: %t", version, !want)
		}
	}
}

// What becomes of a process whose memory was away, when something fails.
func TestStorageUndo(t *testing.T) {
	died := gputest.ErrHelperDied
	busy := &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "fill"}
	for name, tc := range map[string]struct {
		// at is where it goes wrong.
		at string
		// faults are what calls fail with; after says that they have done it.
		faults map[string][]error
		after  bool
		// died says that the helper has lost its parcels by then; saved that they
		// are in files.
		died, saved bool
		lost        bool
	}{
		"as it was":                       {},
		"busy for a while":                {faults: map[string][]error{"fill 1": {busy, busy, busy, busy, busy}}},
		"a fault that passes":             {faults: map[string][]error{"fill 1": {errors.New("no"), errors.New("no")}}},
		"a fault that stays":              {faults: map[string][]error{"fill 1": {errors.New("1"), errors.New("2"), errors.New("3"), errors.New("4")}}, lost: true},
		"the helper has died":             {died: true, lost: true},
		"the helper dies at it":           {faults: map[string][]error{"fill 1": {died}}, lost: true},
		"and its answer is lost":          {faults: map[string][]error{"fill 1": {died}}, after: true, lost: true}, // nobody knows
		"settled, the helper has died":    {at: "settled", died: true, lost: true},
		"settled and saved, it has died":  {at: "settled", died: true, saved: true},
		"settled and saved, dies at it":   {at: "settled", saved: true, faults: map[string][]error{"fill 1": {died}}},
		"not mapped: the driver refused":  {at: "refused"},
		"mapped, and the answer was lost": {at: "answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStorageWorld(t)
			procs := w.processes(t, 1)
			ctx := t.Context()
			if err := w.e.Lock(ctx, procs); err != nil {
				t.Fatal(err)
			}
			switch tc.at {
			case "refused":
				w.faults["map 1"] = []error{gputest.ErrUnknown}
				w.Fail(gputest.Fault{Op: gputest.OpState, PID: 1, Times: 1, Err: errors.New("no state")})
			case "answer":
				w.faults["map 1"], w.after = []error{gputest.ErrUnknown}, true
			}
			err := w.park(ctx, procs)
			w.after = false
			if tc.at == "refused" || tc.at == "answer" {
				if err == nil {
					t.Error("parked")
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				if tc.saved {
					if _, err := w.e.Save(ctx, "/files", "", procs); err != nil {
						t.Fatal(err)
					}
				}
				if tc.at == "settled" {
					if err := w.e.Suspend(ctx, procs); err != nil {
						t.Fatal(err)
					}
				}
				if tc.died {
					clear(w.has)
				}
				if tc.faults != nil {
					w.faults = tc.faults
				}
				w.after = tc.after
				err = w.e.Undo(ctx, procs)
				w.after = false
				if errors.Is(err, gpuplugin.ErrLost) != tc.lost || !tc.lost && err != nil {
					t.Errorf("error is %v, lost: %t", err, tc.lost)
				}
			}
			state := w.StateOf(1)
			if tc.lost && state == gpuplugin.StateRunning {
				t.Error("it runs, and nobody knows of what")
			}
			if have, touched := w.whole[1]; !tc.lost && (state != gpuplugin.StateRunning || touched && !have) {
				t.Errorf("it is %s, whole: %t", state, have)
			}
			if tc.saved && w.dir != "/files" {
				t.Errorf("filled from %q", w.dir)
			}
			// One that is not whole is not saved.
			if _, err := w.e.Processes(ctx, []int{1}); (err != nil) != tc.lost {
				t.Errorf("Processes: %v", err)
			}
			if err := w.e.Drop(ctx); err != nil || len(w.has) > 0 {
				t.Errorf("%v, %v", err, w.has)
			}
		})
	}
}
