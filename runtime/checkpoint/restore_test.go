// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// saved makes a snapshot of a world with GPU state.
func saved(t *testing.T) string {
	t.Helper()
	return savedWith(t, newWorld(t))
}

func savedWith(t *testing.T, w *world) string {
	t.Helper()
	dir := t.TempDir()
	r := request(dir, true)
	r.Manifest.Host.Arch = runtime.GOARCH
	if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return dir
}

// restored is the world after CRIU: the same processes under other PIDs.
func restored(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.process(300, 1, "1")
	w.process(301, 300, "7")
	w.states = map[int]gpuplugin.State{300: gpuplugin.StateCheckpointed, 301: gpuplugin.StateCheckpointed}
	return w
}

func TestRestore(t *testing.T) {
	dir, w := saved(t), restored(t)
	r, err := Open(t.Context(), dir, Target{GPU: gpu{w}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	if r.Manifest().Container.ID != "c" {
		t.Errorf("manifest is of %q", r.Manifest().Container.ID)
	}
	if err := r.Finish(t.Context(), w.container()); err != nil {
		t.Fatal(err)
	}
	for pid, state := range w.states {
		if state != gpuplugin.StateRunning {
			t.Errorf("process %d is %s", pid, state)
		}
	}
}

// What does not fit is refused before anything starts.
func TestOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir string, w *world) GPU
		want  error
	}{
		"no GPU in the container": {func(*testing.T, string, *world) GPU { return gpuplugin.None{} }, gpuplugin.ErrIncompatible},
		"devices that do not fit": {func(_ *testing.T, _ string, w *world) GPU {
			w.fail["match 1"] = gpuplugin.ErrIncompatible
			return gpu{w}
		}, gpuplugin.ErrIncompatible},
		"no manifest, and a GPU": {func(t *testing.T, dir string, w *world) GPU {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, snapshot.ManifestName)); err != nil {
				t.Fatal(err)
			}
			return gpu{w}
		}, snapshot.ErrNoManifest},
		"a damaged image": {func(t *testing.T, dir string, w *world) GPU {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "core-1.img"), []byte("CORE-1.img"), 0o600); err != nil {
				t.Fatal(err)
			}
			return gpu{w}
		}, snapshot.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir, w := saved(t), restored(t)
			g := tc.spoil(t, dir, w)
			if _, err := Open(t.Context(), dir, Target{GPU: g}); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, want %v", err, tc.want)
			}
			if w.called("resume") {
				t.Error("it went on")
			}
		})
	}
}

// A snapshot of the stock shim has no manifest; without a GPU nothing is lost.
func TestOpenWithoutManifest(t *testing.T) {
	dir := saved(t)
	if err := os.Remove(filepath.Join(dir, snapshot.ManifestName)); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), dir, Target{GPU: gpuplugin.None{}})
	if err != nil {
		t.Fatal(err)
	}
	w := restored(t)
	if err := r.Finish(t.Context(), w.container()); err != nil || len(w.calls) > 0 {
		t.Errorf("got %v after %v", err, w.calls)
	}
}

// Restored processes that are not as the snapshot says are never resumed.
func TestFinishRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(w *world)
		want  string
	}{
		"a process is missing":     {func(w *world) { delete(w.states, 301) }, "p7) of the snapshot, which held GPU state, is not among them"},
		"a process lost its state": {func(w *world) { w.states[301] = "" }, "knows of none"},
		"a process runs":           {func(w *world) { w.states[301] = gpuplugin.StateRunning }, "is running for the driver"},
		"one too many": {func(w *world) {
			w.process(302, 300, "8")
			w.states[302] = gpuplugin.StateCheckpointed
		}, "knows of 3 with GPU state"},
		"the driver fails": {func(w *world) { w.fail["resume 1"] = errFault }, "fault"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, w := saved(t), restored(t)
			r, err := Open(t.Context(), dir, Target{GPU: gpu{w}})
			if err != nil {
				t.Fatal(err)
			}
			tc.spoil(w)
			if err := r.Finish(t.Context(), w.container()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
			if w.called("resume") != (name == "the driver fails") {
				t.Errorf("calls are %v", w.calls)
			}
		})
	}
}

// Where no call waits for the GPUs, images of that size are verified before
// anything starts.
func TestImagesWithoutGPU(t *testing.T) {
	w := newWorld(t)
	w.engine, w.states, w.pages = snapshot.EngineNone, nil, beforehandGPUBytes+1
	dir := savedWith(t, w)
	f, err := os.OpenFile(filepath.Join(dir, "pages-1.img"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{1}, w.pages-1)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, Target{GPU: gpu{w}}); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("error is %v", err)
	}
}

// Large memory images are verified while CRIU works. If one is damaged, CRIU's
// context ends, and the GPUs are not touched.
func TestLargeImages(t *testing.T) {
	big := newWorld(t)
	big.pages = beforehandGPUBytes + 1
	dir := savedWith(t, big)
	for _, damaged := range []bool{false, true} {
		w := restored(t)
		if damaged {
			f, err := os.OpenFile(filepath.Join(dir, "pages-1.img"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{1}, big.pages-1); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Open(t.Context(), dir, Target{GPU: gpu{w}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := r.Context(t.Context())
		if !damaged {
			if err := r.Finish(ctx, w.container()); err != nil || ctx.Err() != nil {
				t.Errorf("whole images: %v, %v", err, ctx.Err())
			}
		} else {
			<-ctx.Done()
			if err := r.Finish(t.Context(), w.container()); !errors.Is(err, snapshot.ErrCorrupt) || !errors.Is(context.Cause(ctx), snapshot.ErrCorrupt) {
				t.Errorf("damaged images: %v, %v", err, context.Cause(ctx))
			}
		}
		if w.called("resume") == damaged {
			t.Errorf("damaged %t: calls are %v", damaged, w.calls)
		}
		cancel()
		r.Close(t.Context())
	}
}
