// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// newBoundWorld is a world with the driver engine, where device memory ends with
// the state of its process unless it was copied or saved before.
func newBoundWorld(t *testing.T) *world {
	t.Helper()
	w := newSplitWorld(t)
	w.engine, w.bound, w.reason = snapshot.EngineDriver, true, ""
	return w
}

func TestBoundOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		exit, noRoom, frozen bool
		want                 []string
		never                string
	}{
		"room for a copy": {want: []string{"lock park copy suspend freeze dump thaw resume save drop"}},
		"no room":         {noRoom: true, want: []string{"lock park copy save suspend freeze dump thaw resume drop"}},
		"paused":          {frozen: true, want: []string{"thaw lock park copy suspend freeze dump thaw resume freeze drop", "copy save"}},
		"exit":            {exit: true, want: []string{"lock park save suspend freeze dump kill drop"}, never: "copy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBoundWorld(t)
			w.room, w.frozen = !tc.noRoom, tc.frozen
			dir := filepath.Join(t.TempDir(), "missing", "snapshot")
			r := splitRequest(dir, tc.exit)
			r.Manifest.Library = nil
			if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !inOrder(w.calls, strings.Fields(want)) {
					t.Errorf("called\n %v, want among it\n %s", w.calls, want)
				}
			}
			if tc.never != "" && inOrder(w.calls, []string{tc.never}) {
				t.Errorf("called %s: %v", tc.never, w.calls)
			}
			snap, err := snapshot.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if m := snap.Manifest; m.Version != 3 || m.Engine != snapshot.EngineDriver || m.Memory == nil ||
				m.Processes[0].Memory != snapshot.MemoryStorage || m.Processes[1].Memory != snapshot.MemoryDriver {
				t.Errorf("the manifest says %+v", m)
			}
		})
	}
}

// A process that proves to be none to split is the driver's, and the manifest
// says so.
func TestBoundRefused(t *testing.T) {
	w := newBoundWorld(t)
	w.refused = w.split
	dir := t.TempDir()
	r := splitRequest(dir, false)
	r.Manifest.Library = nil
	m, err := w.container().Checkpoint(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if m.Memory != nil || m.Processes[0].Memory != "" || !strings.Contains(m.EngineReason, "the driver refuses it") {
		t.Errorf("the manifest says %+v", m)
	}
	if inOrder(w.calls, []string{"copy"}) || inOrder(w.calls, []string{"save"}) {
		t.Errorf("called %v", w.calls)
	}
}

// Whatever fails, the memory is given back before its files are removed.
func TestBoundRollsBack(t *testing.T) {
	for _, tc := range []struct {
		op, phase    string
		noRoom, exit bool
	}{
		{op: "park", phase: PhasePark},
		{op: "copy", phase: PhaseCopy},
		{op: "save", phase: PhaseDrain, noRoom: true},
		{op: "save", phase: PhaseDrain, exit: true},
		{op: "suspend", phase: PhaseSuspend},
		{op: "suspend", phase: PhaseSuspend, noRoom: true},
		{op: "dump", phase: PhaseDump},
		{op: "dump", phase: PhaseDump, exit: true},
	} {
		t.Run(tc.phase, func(t *testing.T) {
			w := newBoundWorld(t)
			w.room = !tc.noRoom
			w.fail[tc.op+" 1"] = errFault
			dir := filepath.Join(t.TempDir(), "snapshot")
			r := splitRequest(dir, tc.exit)
			r.Manifest.Library = nil
			_, err := w.container().Checkpoint(t.Context(), r)
			if !errors.Is(err, errFault) || !strings.Contains(err.Error(), tc.phase) {
				t.Errorf("error is %v, want the fault in %s", err, tc.phase)
			}
			if len(w.away) > 0 || !w.alive || w.held && !w.copied {
				t.Errorf("away %v, alive %t, held %t", w.away, w.alive, w.held)
			}
		})
	}
}

// What is in files is restored by who can load it.
func TestBoundRestoreRefused(t *testing.T) {
	w := newBoundWorld(t)
	dir := t.TempDir()
	r := splitRequest(dir, true)
	r.Manifest.Library = nil
	if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(w *world){
		"an older driver":   func(w *world) { w.loads = gpuplugin.ErrIncompatible },
		"memory by nobody":  func(w *world) { w.bound = false },
		"the other engine":  func(w *world) { w.engine, w.bound = snapshot.EngineSplit, false },
		"no engine for GPU": func(w *world) { w.engine, w.bound = snapshot.EngineNone, false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newBoundWorld(t)
			change(w)
			_, err := Open(t.Context(), dir, Target{GPU: w.gpu()})
			if !errors.Is(err, gpuplugin.ErrIncompatible) {
				t.Errorf("error is %v", err)
			}
		})
	}
}
