// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

func request(dir string, exit bool) Request {
	return Request{
		Dump:     runc.Dump{Dir: dir, Exit: exit},
		Manifest: snapshot.Manifest{Container: snapshot.Container{ID: "c", Namespace: "n"}, Host: snapshot.Host{Arch: "amd64"}},
	}
}

// A container that was paused and whose first process ends during the dump is
// not frozen again: it could not be deleted.
func TestCheckpointFirstProcessEnds(t *testing.T) {
	w := newWorld(t)
	w.frozen = true
	w.cancel["dump 1"] = func() {
		if err := os.RemoveAll(filepath.Join(w.proc, "100")); err != nil {
			t.Error(err)
		}
	}
	w.fail["dump 1"] = errors.New("CRIU was killed")
	if _, err := w.container().Checkpoint(t.Context(), request(filepath.Join(t.TempDir(), "snapshot"), false)); !errors.Is(err, w.fail["dump 1"]) {
		t.Errorf("error: %v", err)
	}
	if w.frozen {
		t.Error("it is frozen")
	}
}

func TestCheckpointOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		frozen, exit, noGPU bool
		locked              bool
		tcp                 bool
		want                string
		alive, wantFrozen   bool
	}{
		"leave running": {want: "processes prepare inventory usage lock suspend freeze dump thaw resume", alive: true},
		"paused by the client": {
			frozen: true, locked: true,
			want: "thaw processes prepare inventory usage lock suspend freeze dump thaw resume freeze", alive: true, wantFrozen: true,
		},
		"exit":                 {exit: true, want: "processes prepare inventory usage lock suspend freeze dump kill", wantFrozen: true},
		"exit keeps TCP":       {exit: true, tcp: true, want: "processes prepare inventory usage lock suspend freeze dump kill", wantFrozen: true},
		"no GPU, running":      {noGPU: true, want: "processes freeze dump thaw", alive: true},
		"no GPU, paused":       {noGPU: true, frozen: true, want: "processes freeze dump freeze", alive: true, wantFrozen: true},
		"no GPU, paused, exit": {noGPU: true, frozen: true, exit: true, want: "processes freeze dump kill", wantFrozen: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.frozen = tc.frozen
			found := gpuplugin.StateRunning
			if tc.locked {
				found = gpuplugin.StateLocked
			}
			for pid := range w.states {
				w.states[pid] = found
				if tc.noGPU {
					w.states[pid] = ""
				}
			}
			if tc.noGPU {
				w.engine = snapshot.EngineNone
			}
			dir := filepath.Join(t.TempDir(), "snapshot")
			r := request(dir, tc.exit)
			r.TCPEstablished = tc.tcp
			m, err := w.container().Checkpoint(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(w.calls, " "); got != tc.want {
				t.Errorf("called\n %s, want\n %s", got, tc.want)
			}
			if w.alive != tc.alive || w.frozen != tc.wantFrozen {
				t.Errorf("alive %t frozen %t, want %t %t", w.alive, w.frozen, tc.alive, tc.wantFrozen)
			}
			if w.dumped.Exit != tc.tcp {
				t.Errorf("CRIU ends the processes: %t, want %t", w.dumped.Exit, tc.tcp)
			}
			checkManifest(t, dir, m, tc.noGPU)
			for pid, state := range w.states {
				if tc.alive && !tc.noGPU && state != found {
					t.Errorf("process %d is %s, found %s", pid, state, found)
				}
			}
		})
	}
}

// checkManifest checks what only this package can put there.
func checkManifest(t *testing.T, dir string, m *snapshot.Manifest, noGPU bool) {
	t.Helper()
	snap, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if len(m.Files) != 3 || len(m.Phases) < 3 {
		t.Errorf("%d files and %d phases", len(m.Files), len(m.Phases))
	}
	if noGPU {
		if m.Engine != snapshot.EngineNone || len(m.Devices)+len(m.Processes) != 0 {
			t.Errorf("a container without a GPU has %+v %+v", m.Devices, m.Processes)
		}
		return
	}
	if m.Engine != "driver" || m.Host.Driver != "580.1" || len(m.Devices) != 2 || m.Devices[0].UsedBytes != 1<<20 {
		t.Errorf("engine %q driver %q devices %+v", m.Engine, m.Host.Driver, m.Devices)
	}
	for _, p := range m.Processes {
		if p.State != gpuplugin.StateRunning {
			t.Errorf("process %v restores to %s", p.NSPIDs, p.State)
		}
	}
	if len(m.Processes) != 2 || !slices.Equal(m.Processes[1].NSPIDs, []int{7}) {
		t.Errorf("processes are %+v", m.Processes)
	}
}

// Whatever fails, the container is as it was found and the directory empty.
func TestCheckpointRollsBack(t *testing.T) {
	for _, tc := range []struct {
		fail        string // the call that fails
		exit        bool
		notCalled   []string // what must not happen after it
		wantInError string
	}{
		{"processes 1", false, []string{"lock", "suspend", "dump"}, PhasePreflight},
		{"prepare 1", false, []string{"lock", "suspend", "dump"}, PhasePreflight},
		{"inventory 1", false, []string{"lock", "suspend", "dump"}, PhasePreflight},
		{"usage 1", false, []string{"lock", "suspend", "dump"}, PhasePreflight},
		{"lock 1", false, []string{"suspend", "dump"}, PhaseLock},
		{"suspend 1", false, []string{"dump"}, PhaseSuspend},
		{"freeze 1", false, []string{"dump"}, PhaseFreeze},
		{"dump 1", false, []string{"resume", "kill"}, PhaseDump},
		{"dump 1", true, []string{"resume", "kill"}, PhaseDump},
		{"kill 1", true, nil, PhaseKill},
	} {
		for _, frozen := range []bool{false, true} {
			name := tc.fail
			if frozen {
				name += ", paused"
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.frozen = frozen
				before := maps.Clone(w.states)
				w.fail[tc.fail] = errFault
				dir := t.TempDir()
				_, err := w.container().Checkpoint(t.Context(), request(dir, tc.exit))
				if !errors.Is(err, errFault) || !strings.Contains(err.Error(), tc.wantInError) {
					t.Fatalf("error is %v, want the fault in %s", err, tc.wantInError)
				}
				w.asFound(t, before, frozen, dir)
				for _, name := range tc.notCalled {
					if w.called(name) {
						t.Errorf("%s was called after %s failed: %v", name, tc.fail, w.calls)
					}
				}
			})
		}
	}
}

// asFound checks that nothing is left of an operation.
func (w *world) asFound(t *testing.T, states map[int]gpuplugin.State, frozen bool, dir string) {
	t.Helper()
	if !maps.Equal(w.states, states) || w.frozen != frozen || !w.alive {
		t.Errorf("states %v frozen %t alive %t, found %v %t true", w.states, w.frozen, w.alive, states, frozen)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// A canceled operation is rolled back although its context has ended.
func TestCheckpointCancelled(t *testing.T) {
	for _, at := range []string{"lock 1", "suspend 1", "freeze 1", "dump 1"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			before := maps.Clone(w.states)
			why := errors.New("nobody wants it")
			ctx, cancel := context.WithCancelCause(t.Context())
			w.cancel[at] = func() { cancel(why) }
			dir := t.TempDir()
			if _, err := w.container().Checkpoint(ctx, request(dir, false)); err == nil {
				t.Fatal("no error")
			}
			w.asFound(t, before, false, dir)
		})
	}
}

// CRIU comes to its end, whoever has gone and whatever time it is: it is killed when
// the container is being ended, and when the grace is over. Times are seconds.
func TestDumpComesToItsEnd(t *testing.T) {
	const timeout, never = 60, 1000
	grace := int(dumpGrace.Seconds())
	gone, failed := errors.New("gone"), errors.New("CRIU failed")
	for name, tc := range map[string]struct {
		criu   int // how long CRIU takes
		fails  error
		gone   int // when the client goes; 0 for never, and so are these
		ending int // when the container is being ended
		paused bool

		took   int
		killed bool
		errs   []error // nil for success
		says   string
	}{
		"in time":                       {criu: timeout - 1, took: timeout - 1},
		"late":                          {criu: timeout + 1, took: timeout + 1, errs: []error{errTimeout}},
		"late, paused":                  {criu: timeout + 1, paused: true, took: timeout + 1, errs: []error{errTimeout}},
		"late, and fails":               {criu: timeout + 1, fails: failed, took: timeout + 1, errs: []error{errTimeout, failed}},
		"fails in time":                 {criu: 1, fails: failed, took: 1, errs: []error{failed}},
		"at the last moment":            {criu: timeout + grace - 1, took: timeout + grace - 1, errs: []error{errTimeout}},
		"too late":                      {criu: never, took: timeout + grace, killed: true, errs: []error{errTimeout}, says: "CRIU was killed when it had not ended 10s later"},
		"client gone":                   {criu: timeout - 1, gone: 1, took: timeout - 1, errs: []error{gone}},
		"client gone, and fails":        {criu: 3, fails: failed, gone: 1, took: 3, errs: []error{gone, failed}},
		"client gone, then late":        {criu: timeout + 1, gone: 1, took: timeout + 1, errs: []error{gone}},
		"client gone, then too late":    {criu: never, gone: 1, took: timeout + grace, killed: true, errs: []error{errTimeout}, says: "CRIU was killed"},
		"ended":                         {criu: never, ending: 2, took: 2, killed: true, errs: []error{ErrEnding}},
		"client gone, then ended":       {criu: never, gone: 1, ending: 2, took: 2, killed: true, errs: []error{ErrEnding}},
		"ended in the grace":            {criu: never, ending: timeout + 1, took: timeout + 1, killed: true, errs: []error{ErrEnding}},
		"ended at once, client gone":    {criu: never, gone: 1, ending: 1, took: 1, killed: true, errs: []error{ErrEnding}},
		"client gone in the grace":      {criu: timeout + 2, gone: timeout + 1, took: timeout + 2, errs: []error{errTimeout}},
		"ended after it came to an end": {criu: 1, ending: 2, took: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.frozen = tc.paused
				before, dir := maps.Clone(w.states), t.TempDir()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ending := make(chan struct{})
				c := w.container()
				c.Timeout, c.Ending = timeout*time.Second, ending
				at := func(s int, do func()) {
					if s > 0 {
						time.AfterFunc(time.Duration(s)*time.Second, do)
					}
				}
				at(tc.gone, func() { cancel(gone) })
				at(tc.ending, func() { close(ending) })
				w.criu = func(ctx context.Context) error {
					select {
					case <-time.After(time.Duration(tc.criu) * time.Second):
						return tc.fails
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				start := time.Now()
				_, err := c.Checkpoint(ctx, request(dir, false))
				if took := time.Since(start); took != time.Duration(tc.took)*time.Second {
					t.Errorf("it took %s, want %d s", took, tc.took)
				}
				if w.killed != tc.killed {
					t.Errorf("killed: %t, want %t", w.killed, tc.killed)
				}
				if left := w.dumped.Config.Timeout; left != timeout*time.Second {
					t.Errorf("CRIU was told of %s", left)
				}
				if tc.errs == nil {
					if err != nil || !maps.Equal(w.states, before) || w.frozen || !w.alive {
						t.Errorf("error %v; states %v, frozen %t, alive %t", err, w.states, w.frozen, w.alive)
					}
					return
				}
				for _, want := range tc.errs {
					if !errors.Is(err, want) || !strings.Contains(err.Error(), tc.says) {
						t.Errorf("error is %v, want %v, %q", err, want, tc.says)
					}
				}
				for _, other := range []error{gone, failed, errTimeout, ErrEnding} {
					if errors.Is(err, other) && !slices.Contains(tc.errs, other) {
						t.Errorf("error is %v, and no %v", err, other)
					}
				}
				if !tc.killed && strings.Contains(err.Error(), "killed") {
					t.Errorf("nobody was killed: %v", err)
				}
				w.asFound(t, before, tc.paused, dir)
			})
		})
	}
}

// CRIU is told of the time that is left when it begins.
func TestDumpKnowsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cancel["lock 1"] = func() { <-time.After(45 * time.Second) }
		c := w.container()
		c.Timeout = time.Minute
		if _, err := c.Checkpoint(t.Context(), request(t.TempDir(), false)); err != nil {
			t.Fatal(err)
		}
		if left := w.dumped.Config.Timeout; left != 15*time.Second {
			t.Errorf("CRIU was told of %s", left)
		}
	})
}

// Where CRIU has ended the processes, the snapshot is all that is left: it is
// finished, though the time is up.
func TestDumpLateWithTheProcessesGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(t), t.TempDir()
		w.criu = func(context.Context) error {
			<-time.After(61 * time.Second)
			return nil
		}
		c, r := w.container(), request(dir, true)
		c.Timeout, r.TCPEstablished = time.Minute, true
		if _, err := c.Checkpoint(t.Context(), r); err != nil || w.killed || w.alive {
			t.Errorf("error %v, killed %t, alive %t", err, w.killed, w.alive)
		}
		if _, err := snapshot.Open(dir); err != nil {
			t.Errorf("the snapshot: %v", err)
		}
	})
}

// GPUs that can't be brought back at first are tried again; if that fails too,
// the snapshot, which may be the only good copy by then, stays.
func TestResumeFails(t *testing.T) {
	w := newWorld(t)
	before := maps.Clone(w.states)
	w.fail["resume 1"] = errFault
	dir := t.TempDir()
	if _, err := w.container().Checkpoint(t.Context(), request(dir, false)); err != nil {
		t.Fatalf("the second try succeeded, and the error is %v", err)
	}
	if !maps.Equal(w.states, before) || w.frozen {
		t.Errorf("states %v frozen %t", w.states, w.frozen)
	}

	w = newWorld(t)
	w.fail["resume 1"], w.fail["undo 1"] = errFault, errFault
	dir = t.TempDir()
	if _, err := w.container().Checkpoint(t.Context(), request(dir, false)); !errors.Is(err, errFault) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("error is %v, want the fault and %s", err, dir)
	}
	if _, err := snapshot.Open(dir); err != nil {
		t.Errorf("the snapshot was not kept: %v", err)
	}
}

func TestPreflightRefuses(t *testing.T) {
	t.Run("a directory with a snapshot", func(t *testing.T) {
		w, dir := newWorld(t), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "core-1.img"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := w.container().Checkpoint(t.Context(), request(dir, false)); err == nil || len(w.calls) > 0 {
			t.Errorf("got %v after %v", err, w.calls)
		}
		if _, err := os.Stat(filepath.Join(dir, "core-1.img")); err != nil {
			t.Error("the file that was there is gone")
		}
	})
	t.Run("a process from outside, with every other reason", func(t *testing.T) {
		w := newWorld(t)
		w.process(200, 1, "9")
		w.states[200] = gpuplugin.StateRunning
		w.fail["prepare 1"] = errFault
		_, err := w.container().Checkpoint(t.Context(), request(t.TempDir(), false))
		if !errors.Is(err, errFault) || !strings.Contains(err.Error(), "process 200") {
			t.Errorf("error is %v, want both reasons", err)
		}
		if w.called("lock") {
			t.Error("it went on")
		}
	})
}

// CRIU would wait for a stopped process of a version 1 freezer, frozen or not.
func TestCheckpointStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		state, wchan    string
		frozen, unified bool
		refused         bool
	}{
		"stopped":            {state: "T (stopped)", wchan: "do_signal_stop", refused: true},
		"stopped and frozen": {state: "D (disk sleep)", wchan: "do_signal_stop", frozen: true, refused: true},
		"frozen":             {state: "D (disk sleep)", wchan: "__refrigerator", frozen: true},
		"runs":               {state: "R (running)", wchan: "0"},
		"unified":            {state: "T (stopped)", wchan: "do_signal_stop", unified: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.engine, w.frozen, w.unified = snapshot.EngineNone, tc.frozen, tc.unified
			for pid := range w.states {
				w.states[pid] = ""
			}
			for file, text := range map[string]string{"status": "Name:\tp\nState:\t" + tc.state + "\n", "wchan": tc.wchan} {
				if err := os.WriteFile(filepath.Join(w.proc, "101", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := w.container().Checkpoint(t.Context(), request(filepath.Join(t.TempDir(), "snapshot"), false))
			if tc.refused != errors.Is(err, ErrStopped) || tc.refused == w.called("dump") {
				t.Errorf("error: %v; calls %v", err, w.calls)
			}
			if tc.refused && !strings.Contains(err.Error(), "preflight: process 101 (p) is stopped") {
				t.Errorf("error: %v", err)
			}
			if w.frozen != tc.frozen {
				t.Errorf("frozen: %t, found %t", w.frozen, tc.frozen)
			}
		})
	}
}
