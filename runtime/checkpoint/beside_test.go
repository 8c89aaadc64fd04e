// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// layer is a Companion, and a Progress, that write down what they see of a world.
type layer struct {
	w *world
	// frozen says that nothing ran when it was captured.
	frozen   bool
	fail     map[string]error
	phases   []string
	expected uint64
}

func (l *layer) Capture(ctx context.Context) error {
	l.frozen = l.w.frozen
	return errors.Join(l.fail["capture"], ctx.Err())
}

func (l *layer) Write(ctx context.Context, dir string) error {
	return errors.Join(os.WriteFile(filepath.Join(dir, "hetgpu-rw.tar"), []byte("layer"), 0o600), l.fail["write"], ctx.Err())
}

func (l *layer) Begin(phase string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.phases = append(l.phases, phase)
}

func (l *layer) Expect(n uint64) { l.expected = n }

// What belongs to the container is taken while it stands still, and is in the
// manifest with the time for which it stood.
func TestCompanion(t *testing.T) {
	for name, tc := range map[string]struct{ exit, tcp, frozen bool }{
		"leave running":  {},
		"exit":           {exit: true},
		"exit keeps TCP": {exit: true, tcp: true},
		"paused before":  {frozen: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.frozen = tc.frozen
			l := &layer{w: w}
			dir := filepath.Join(t.TempDir(), "snapshot")
			r := request(dir, tc.exit)
			r.TCPEstablished, r.Companion, r.Progress = tc.tcp, l, l
			m, err := w.container().Checkpoint(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if !l.frozen {
				t.Error("it was taken while the container ran")
			}
			if goesOn := !tc.exit && !tc.frozen; goesOn != (m.StopSeconds > 0) {
				t.Errorf("stopped for %v s", m.StopSeconds)
			}
			if !slices.ContainsFunc(m.Files, func(f snapshot.File) bool { return f.Name == "hetgpu-rw.tar" && len(f.Digests) == 1 }) {
				t.Errorf("its file is not in the manifest: %+v", m.Files)
			}
			for _, phase := range []string{PhaseLayer, PhasePack} {
				if !slices.ContainsFunc(m.Phases, func(p snapshot.Phase) bool { return p.Name == phase }) {
					t.Errorf("no phase %s in %+v", phase, m.Phases)
				}
			}
			for _, phase := range []string{PhasePreflight, PhaseDump, PhaseLayer, PhasePack, PhaseSeal, PhaseManifest} {
				if !slices.Contains(l.phases, phase) {
					t.Errorf("nobody was told of %s: %v", phase, l.phases)
				}
			}
			if l.expected == 0 {
				t.Error("nobody was told how much there is")
			}
		})
	}
}

// If it can't be saved the container goes on, and there is no snapshot.
func TestCompanionFails(t *testing.T) {
	for _, step := range []string{"capture", "write"} {
		for _, exit := range []bool{false, true} {
			w := newWorld(t)
			l := &layer{w: w, fail: map[string]error{step: errFault}}
			dir := filepath.Join(t.TempDir(), "snapshot")
			r := request(dir, exit)
			r.Companion = l
			_, err := w.container().Checkpoint(t.Context(), r)
			if !errors.Is(err, errFault) || !strings.Contains(err.Error(), "layer") {
				t.Errorf("%s: %v", step, err)
			}
			if !w.alive || w.frozen {
				t.Errorf("%s, exit %t: alive %t, frozen %t", step, exit, w.alive, w.frozen)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Errorf("%s: the directory is there", step)
			}
		}
	}
	// With connections CRIU ends the processes, so it is taken before.
	w := newWorld(t)
	r := request(filepath.Join(t.TempDir(), "snapshot"), true)
	r.TCPEstablished, r.Companion = true, &layer{w: w, fail: map[string]error{"capture": errFault}}
	if _, err := w.container().Checkpoint(t.Context(), r); !errors.Is(err, errFault) || w.called("dump") || !w.alive {
		t.Errorf("%v, alive %t, after %v", err, w.alive, w.calls)
	}
}
