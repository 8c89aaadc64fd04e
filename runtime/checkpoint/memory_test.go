// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// memory is the device memory of a [world] whose engine is split.
type memory struct {
	mu sync.Mutex
	// split are the processes that can be.
	split []int
	// reason is why the others can't.
	reason string
	// room says that there is some for a copy.
	room bool
	// away are those whose memory is out of them, copied whether there is a copy.
	away   map[int]bool
	copied bool
	// bound says that the memory ends with the processes' state, so that it has to
	// be copied or saved before; secured that it is.
	bound, secured bool
	// shared says that the memory is shared.
	shared bool
	// refused are those that prove to be none to split.
	refused []int
	// loads is what Loads says.
	loads error
	// held says that there is something to drop, lost that what is away is gone.
	held, lost bool
	// slow is closed to let Save come to its end, nil if it need not wait.
	slow chan struct{}
	// devices are those that Park was told of, and parent is Save's.
	devices []string
	parent  string
	// data says that the memory is not all zeros.
	data bool
	// loaded are the keys that Load was given.
	loaded []string
	// key is that with which Save encrypts, nil for none.
	key *memfile.Key
	// keeping is nil for an engine that can't.
	*keeping
}

var library = &snapshot.Library{BuildID: "ab"}

// newSplitWorld is a world with the split engine: 100 can be split, 101 can't.
func newSplitWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.engine = snapshot.EngineSplit
	w.split, w.reason, w.room, w.away = []int{100}, "it does not run libhetcuda", true, map[int]bool{}
	return w
}

func (w *world) gpu() GPU {
	switch {
	case w.engine == snapshot.EngineSplit && w.keeping != nil:
		return keptGPU{splitGPU{gpu{w}}}
	case w.engine == snapshot.EngineSplit || w.bound:
		return splitGPU{gpu{w}}
	}
	return gpu{w}
}

// checkAway is for the dump: device memory that is in no process would be lost.
func (w *world) checkAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range w.split {
		if w.states[pid] != "" && !w.away[pid] && !slices.Contains(w.refused, pid) {
			w.t.Errorf("process %d is dumped with its device memory", pid)
		}
	}
}

type splitGPU struct{ gpu }

func (g splitGPU) Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error) {
	procs, err := g.gpu.Processes(ctx, pids)
	for i := range procs {
		if procs[i].Split = slices.Contains(g.split, procs[i].PID); !procs[i].Split {
			procs[i].Reason = g.reason
		}
	}
	return procs, err
}

func (g splitGPU) Bound() bool { return g.bound }

func (g splitGPU) Loads(context.Context) error { return g.loads }

// back gives the memory back, if it is there.
func (g splitGPU) back() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost && len(g.away) > 0 {
		return gpuplugin.ErrLost
	}
	g.away, g.held = map[int]bool{}, g.held && g.copied
	return nil
}

func (g splitGPU) Suspend(ctx context.Context, procs []gpuplugin.Process) error {
	g.mu.Lock()
	if g.bound && len(g.away) > 0 && !g.secured {
		g.t.Error("device memory ends that is nowhere else")
	}
	g.mu.Unlock()
	err := g.gpu.Suspend(ctx, procs)
	if err != nil {
		err = errors.Join(err, g.back())
	}
	return err
}

func (g splitGPU) Resume(ctx context.Context, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	if err := g.gpu.Resume(ctx, procs, devices); err != nil {
		return err
	}
	return g.back()
}

func (g splitGPU) Undo(ctx context.Context, procs []gpuplugin.Process) error {
	return errors.Join(g.gpu.Undo(ctx, procs), g.back())
}

func (g splitGPU) Park(ctx context.Context, procs []gpuplugin.Process, devices []gpuplugin.Device) error {
	err := g.call(ctx, "park")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.devices = nil
	for _, d := range devices {
		g.devices = append(g.devices, d.UUID)
	}
	for i, p := range procs {
		if err != nil {
			g.states[p.PID] = p.State
		} else if p.Split && slices.Contains(g.refused, p.PID) {
			procs[i].Split, procs[i].Reason = false, "the driver refuses it"
		} else if p.Split {
			g.away[p.PID], g.held = true, true
		}
	}
	return err
}

func (g splitGPU) Copy(ctx context.Context, _ []gpuplugin.Process) (bool, error) {
	err := g.call(ctx, "copy")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.copied = err == nil && g.room
	g.secured = g.secured || g.copied
	return g.copied, err
}

func (g splitGPU) Save(ctx context.Context, dir, parent string, procs []gpuplugin.Process) (gpuplugin.Stored, error) {
	g.parent = parent
	err := g.call(ctx, "save")
	if g.slow != nil {
		select {
		case <-g.slow:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.away) == 0 && !g.copied {
		g.t.Error("there is nothing to save")
	}
	if err != nil {
		return gpuplugin.Stored{}, err
	}
	index, stored := &memfile.Index{}, gpuplugin.Stored{}
	block := zeroBlock()
	if g.data {
		if block, err = g.dataBlock(dir, parent, index); err != nil {
			return stored, err
		}
	}
	for _, p := range procs {
		if p.Split {
			chunk := memfile.Chunk{ID: 1, Address: 1 << 21, Size: 4096, Blocks: []memfile.Block{block}}
			if g.shared {
				chunk.Shared = 1
			}
			index.Processes = append(index.Processes, memfile.Process{Chunks: []memfile.Chunk{chunk}})
		}
	}
	sizes := index.Sizes()
	stored.Bytes, stored.Zero, stored.Written, stored.Reused = sizes.Memory, sizes.Zero, sizes.Stored, sizes.Reused
	if g.key != nil {
		index.KeyID, index.Salt = g.key.ID(), memfile.NewSalt()
		stored.KeyID = index.KeyID
	}
	_, err = memfile.WriteIndex(dir, index, g.key)
	g.secured = g.secured || err == nil
	return stored, err
}

// dataBlock is a block that is not zero, in a file of the snapshot or, if there is one
// before, in that one's.
func (g splitGPU) dataBlock(dir, parent string, index *memfile.Index) (memfile.Block, error) {
	data := bytes.Repeat([]byte{1}, 4096)
	index.Files = []memfile.DataFile{{Name: memfile.DataName(0), Size: uint64(len(data))}}
	digest, _ := memfile.DigestOf(data)
	block := memfile.Block{Digest: digest, File: 1}
	if parent != "" {
		before, err := memfile.ReadIndex(parent)
		if err == nil {
			index.Files[0].Generation = before.Files[0].Generation + 1
		}
		return block, err
	}
	return block, os.WriteFile(filepath.Join(dir, memfile.DataName(0)), data, 0o600)
}

func zeroBlock() memfile.Block {
	digest, _ := memfile.DigestOf(make([]byte, 4096))
	return memfile.Block{Digest: digest}
}

func (g splitGPU) Load(ctx context.Context, _ string, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	err := g.call(ctx, "load")
	if g.slow != nil {
		select {
		case <-g.slow:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range procs {
		if p.Split {
			g.loaded = append(g.loaded, p.Key+devices[gpu0])
		}
	}
	g.held = err == nil
	return err
}

func (g splitGPU) Drop(ctx context.Context) error {
	g.mu.Lock()
	g.held = false
	if len(g.away) > 0 && g.alive {
		g.t.Error("memory was dropped that a process waits for")
	}
	g.mu.Unlock()
	return g.call(ctx, "drop")
}

func splitRequest(dir string, exit bool) Request {
	r := request(dir, exit)
	r.Manifest.Library, r.Manifest.Host.Arch = library, runtime.GOARCH
	return r
}

// Memory is taken from the devices that the container was given, and no others.
func TestSplitDevices(t *testing.T) {
	for want, minors := range map[string][]int{"GPU-1": {1}, gpu0 + " GPU-1": nil} {
		w := newSplitWorld(t)
		c := w.container()
		c.Minors = minors
		if _, err := c.Checkpoint(t.Context(), splitRequest(t.TempDir(), false)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.devices, " "); got != want {
			t.Errorf("minors %v: %s, want %s", minors, got, want)
		}
	}
}

func TestSplitOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		exit, tcp, noRoom, frozen bool
		want                      []string
		phases                    string
	}{
		"room for a copy": {
			want:   []string{"lock park suspend freeze", "copy resume save drop", "dump thaw resume save"},
			phases: "preflight gpu-lock gpu-park gpu-suspend freeze dump thaw gpu-resume gpu-copy gpu-drain seal",
		},
		"no room": {
			noRoom: true,
			want:   []string{"lock park suspend freeze", "copy save thaw resume drop", "dump thaw"},
			phases: "preflight gpu-lock gpu-park gpu-suspend freeze dump thaw gpu-resume gpu-copy gpu-drain seal",
		},
		"paused": {
			frozen: true,
			want:   []string{"thaw processes", "lock park suspend freeze", "copy save", "dump thaw resume freeze drop"},
			phases: "thaw preflight gpu-lock gpu-park gpu-suspend freeze dump thaw gpu-resume freeze gpu-copy gpu-drain seal",
		},
		"exit": {
			exit:   true,
			want:   []string{"lock park suspend freeze", "save kill drop", "dump kill"},
			phases: "preflight gpu-lock gpu-park gpu-suspend freeze dump gpu-drain seal",
		},
		"exit keeps TCP": {
			exit: true, tcp: true,
			// CRIU ends the processes, so their memory is saved before.
			want:   []string{"lock park suspend freeze save dump kill drop"},
			phases: "preflight gpu-lock gpu-park gpu-suspend freeze dump gpu-drain seal",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			w.room, w.frozen = !tc.noRoom, tc.frozen
			dir := filepath.Join(t.TempDir(), "missing", "snapshot")
			r := splitRequest(dir, tc.exit)
			r.TCPEstablished = tc.tcp
			m, err := w.container().Checkpoint(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !inOrder(w.calls, strings.Fields(want)) {
					t.Errorf("called\n %v, want among it\n %s", w.calls, want)
				}
			}
			var phases []string
			for _, p := range m.Phases {
				phases = append(phases, p.Name)
			}
			if got := strings.Join(phases, " "); got != tc.phases && got != tc.phases+" manifest" && got != tc.phases+" manifest kill" {
				t.Errorf("phases\n %s, want\n %s", got, tc.phases)
			}
			checkSplit(t, dir)
			if w.held || !tc.exit && len(w.away) > 0 || w.alive == tc.exit {
				t.Errorf("held %t, away %v, alive %t", w.held, w.away, w.alive)
			}
		})
	}
}

// inOrder tells whether calls has want in that order, with others between.
func inOrder(calls, want []string) bool {
	for _, c := range calls {
		if len(want) > 0 && c == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

func checkSplit(t *testing.T, dir string) {
	t.Helper()
	snap, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	m := snap.Manifest
	if m.Version != 2 || m.Engine != snapshot.EngineSplit || m.EngineReason != "process 7: it does not run libhetcuda" ||
		*m.Memory != (snapshot.Memory{Bytes: 4096, ZeroBytes: 4096}) {
		t.Errorf("version %d, engine %q (%s), memory %+v", m.Version, m.Engine, m.EngineReason, m.Memory)
	}
	if m.Processes[0].Memory != snapshot.MemorySplit || m.Processes[1].Memory != snapshot.MemoryDriver {
		t.Errorf("processes are %+v", m.Processes)
	}
}

// A snapshot adds to one before it, if that has device memory.
func TestSplitParent(t *testing.T) {
	dir := t.TempDir()
	first := newSplitWorld(t)
	if _, err := first.container().Checkpoint(t.Context(), splitRequest(filepath.Join(dir, "first"), true)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pages"), 0o700); err != nil {
		t.Fatal(err)
	}
	for parent, want := range map[string]string{"../first": filepath.Join(dir, "first"), "../pages": "", "": ""} {
		w := newSplitWorld(t)
		r := splitRequest(filepath.Join(t.TempDir(), "second"), true)
		if parent != "" {
			r = splitRequest(filepath.Join(dir, "second"+filepath.Base(parent)), true)
		}
		r.Parent = parent
		if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if w.parent != want {
			t.Errorf("parent %q: %q, want %q", parent, w.parent, want)
		}
	}
	w := newSplitWorld(t)
	r := splitRequest(filepath.Join(dir, "last"), true)
	r.Parent = "../none"
	if _, err := w.container().Checkpoint(t.Context(), r); !errors.Is(err, os.ErrNotExist) || w.called("lock") {
		t.Errorf("err = %v, called %v", err, w.calls)
	}
}

// The container goes on while its copy is drained, and without room for one when
// all is saved.
func TestSplitGoesOnBeside(t *testing.T) {
	for _, room := range []bool{true, false} {
		w := newSplitWorld(t)
		w.room, w.slow = room, make(chan struct{})
		resumed := make(chan struct{})
		w.cancel["resume 1"] = func() { close(resumed) }
		dir, done := t.TempDir(), make(chan error)
		go func() {
			_, err := w.container().Checkpoint(t.Context(), splitRequest(dir, false))
			done <- err
		}()
		if room {
			<-resumed // with the copy still being saved
		}
		close(w.slow)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		checkSplit(t, dir)
	}
}

// Whatever fails, the container is as it was found, the directory empty, and no
// device memory held.
func TestSplitRollsBack(t *testing.T) {
	for _, tc := range []struct {
		fail         string
		exit, noRoom bool
		notCalled    []string
		phase        string
	}{
		{"lock 1", false, false, []string{"park", "suspend", "copy", "save", "dump"}, PhaseLock},
		{"park 1", false, false, []string{"suspend", "copy", "save", "dump"}, PhasePark},
		{"suspend 1", false, false, []string{"copy", "save", "dump"}, PhaseSuspend},
		{"freeze 1", false, false, []string{"copy", "save", "dump"}, PhaseFreeze},
		{"copy 1", false, false, []string{"save", "resume"}, PhaseCopy},
		{"save 1", false, false, nil, PhaseDrain}, // it may be on its way by then
		{"save 1", false, true, []string{"resume"}, PhaseDrain},
		{"save 1", true, false, []string{"copy", "resume", "kill"}, PhaseDrain},
		{"dump 1", false, false, []string{"resume", "kill"}, PhaseDump},
		{"dump 1", true, false, []string{"resume", "kill"}, PhaseDump},
		{"kill 1", true, false, nil, PhaseKill},
	} {
		for _, frozen := range []bool{false, true} {
			name := tc.phase + " " + tc.fail
			if tc.exit {
				name += ", exit"
			}
			if tc.noRoom {
				name += ", no room"
			}
			if frozen {
				name += ", paused"
			}
			t.Run(name, func(t *testing.T) {
				w := newSplitWorld(t)
				w.frozen, w.room = frozen, !tc.noRoom
				before := maps.Clone(w.states)
				w.fail[tc.fail] = errFault
				dir := t.TempDir()
				_, err := w.container().Checkpoint(t.Context(), splitRequest(dir, tc.exit))
				if !errors.Is(err, errFault) || !strings.Contains(err.Error(), tc.phase) {
					t.Fatalf("error is %v, want the fault in %s", err, tc.phase)
				}
				w.asFound(t, before, frozen, dir)
				if len(w.away) > 0 || w.held {
					t.Errorf("away %v, held %t", w.away, w.held)
				}
				for _, name := range tc.notCalled {
					if w.called(name) {
						t.Errorf("%s was called after %s failed: %v", name, tc.fail, w.calls)
					}
				}
			})
		}
	}
}

// One that nobody wants any more is rolled back, also while it only drains.
func TestSplitCancelled(t *testing.T) {
	for _, at := range []string{"lock 1", "park 1", "suspend 1", "copy 1", "save 1", "dump 1", "resume 1"} {
		for _, room := range []bool{true, false} {
			if at == "resume 1" && !room {
				continue // all was saved by then
			}
			t.Run(at, func(t *testing.T) {
				w := newSplitWorld(t)
				w.room = room
				if at == "save 1" || at == "resume 1" {
					w.slow = make(chan struct{})
				}
				before := maps.Clone(w.states)
				ctx, cancel := context.WithCancelCause(t.Context())
				w.cancel[at] = func() { cancel(errFault) }
				dir := t.TempDir()
				if _, err := w.container().Checkpoint(ctx, splitRequest(dir, false)); !errors.Is(err, errFault) && !errors.Is(err, context.Canceled) {
					t.Fatalf("error is %v", err)
				}
				w.asFound(t, before, false, dir)
				if len(w.away) > 0 || w.held {
					t.Errorf("away %v, held %t", w.away, w.held)
				}
			})
		}
	}
}

// A container whose device memory is lost is ended, and never goes on.
func TestSplitMemoryLost(t *testing.T) {
	for name, tc := range map[string]struct {
		at     string
		noRoom bool
		kept   bool
	}{
		"in the dump":                 {at: "dump 1", noRoom: true, kept: true},
		"before all is saved":         {at: "save 1", noRoom: true},
		"before the copy is given":    {at: "copy 1"},
		"when all else is restored":   {at: "resume 1", noRoom: true, kept: true},
		"and the driver fails before": {at: "suspend 1", noRoom: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			w.room = !tc.noRoom
			w.cancel[tc.at] = func() { w.lost = true }
			if !tc.kept {
				w.fail[tc.at] = gpuplugin.ErrUnavailable
			}
			dir := t.TempDir()
			_, err := w.container().Checkpoint(t.Context(), splitRequest(dir, false))
			if !errors.Is(err, gpuplugin.ErrLost) || !strings.Contains(err.Error(), "ended") {
				t.Errorf("error is %v", err)
			}
			if w.alive || !w.called("kill") || w.held {
				t.Errorf("alive %t, held %t: %v", w.alive, w.held, w.calls)
			}
			if _, err := snapshot.Open(dir); (err == nil) != tc.kept {
				t.Errorf("snapshot: %v", err)
			}
		})
	}
}

// Memory that can't be given back for another reason is kept while there is a
// process to give it to.
func TestSplitUndoFails(t *testing.T) {
	w := newSplitWorld(t)
	w.fail["dump 1"], w.fail["undo 1"] = errFault, errFault
	if _, err := w.container().Checkpoint(t.Context(), splitRequest(t.TempDir(), false)); !errors.Is(err, errFault) {
		t.Errorf("error is %v", err)
	}
	if w.called("drop") || w.called("kill") {
		t.Errorf("calls are %v", w.calls)
	}
}

// If no process can be split the driver saves all, and the manifest says why.
func TestSplitFallsBack(t *testing.T) {
	w := newSplitWorld(t)
	w.split, w.reason = nil, "libhetcuda could not be asked: it speaks version 9"
	dir := t.TempDir()
	m, err := w.container().Checkpoint(t.Context(), splitRequest(dir, false))
	if err != nil {
		t.Fatal(err)
	}
	if m.Engine != snapshot.EngineDriver || m.EngineReason != "process 1: "+w.reason+"; process 7: "+w.reason && m.EngineReason != "process 1, 7: "+w.reason {
		t.Errorf("engine %q (%s)", m.Engine, m.EngineReason)
	}
	for _, call := range []string{"park", "copy", "save"} {
		if w.called(call) {
			t.Errorf("%s was called: %v", call, w.calls)
		}
	}
	// And it is restored by the same engine.
	w = restoredSplit(t)
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	if err := r.Finish(t.Context(), w.container()); err != nil || w.called("load") {
		t.Errorf("restored: %v, %v", err, w.calls)
	}
}

// restoredSplit is the world after CRIU.
func restoredSplit(t *testing.T) *world {
	t.Helper()
	w := restored(t)
	w.engine, w.away = snapshot.EngineSplit, map[int]bool{}
	return w
}

func savedSplit(t *testing.T) string {
	t.Helper()
	return savedIn(t, newSplitWorld(t))
}

func savedIn(t *testing.T, w *world) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := w.container().Checkpoint(t.Context(), splitRequest(dir, true)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Memory that processes share can be restored where it was, and nowhere else.
func TestSplitSharedStays(t *testing.T) {
	saved := newSplitWorld(t)
	saved.shared = true
	dir := savedIn(t, saved)
	for _, moves := range []bool{true, false} {
		w := restoredSplit(t)
		if !moves {
			w.keeping = &keeping{places: gpuplugin.DeviceMap{gpu0: gpu0}}
		}
		r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
		if errors.Is(err, gpuplugin.ErrIncompatible) != moves || err != nil && !strings.Contains(err.Error(), "shares device memory") {
			t.Errorf("error is %v", err)
		}
		if err == nil {
			r.Close(t.Context())
		}
		if moves && (w.called("load") || w.held) {
			t.Error("it went on")
		}
	}
}

func TestSplitRestore(t *testing.T) {
	dir, w := savedSplit(t), restoredSplit(t)
	w.slow = make(chan struct{})
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	go close(w.slow)
	if err := r.Finish(t.Context(), w.container()); err != nil {
		t.Fatal(err)
	}
	if !inOrder(w.calls, []string{"match", "load", "resume"}) || !slices.Equal(w.loaded, []string{"1GPU-1"}) {
		t.Errorf("calls %v, loaded %v", w.calls, w.loaded)
	}
	r.Close(t.Context())
	if w.held {
		t.Error("device memory is held")
	}
}

// Memory that can't be loaded ends CRIU, and no GPU is touched.
func TestSplitLoadFails(t *testing.T) {
	dir, w := savedSplit(t), restoredSplit(t)
	w.fail["load 1"] = gpuplugin.ErrDamaged
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := r.Context(t.Context())
	defer cancel()
	<-ctx.Done()
	if err := r.Finish(t.Context(), w.container()); !errors.Is(err, gpuplugin.ErrDamaged) || !errors.Is(context.Cause(ctx), gpuplugin.ErrDamaged) {
		t.Errorf("error is %v, the context's %v", err, context.Cause(ctx))
	}
	r.Close(t.Context())
	if w.called("resume") || w.held {
		t.Errorf("calls are %v, held %t", w.calls, w.held)
	}
}

// A disk that hangs does not keep a container from being ended, though its memory
// is nowhere else: who ends it has given that up.
func TestSplitEndedBesideASlowDisk(t *testing.T) {
	w := newSplitWorld(t)
	w.slow = make(chan struct{}) // for ever
	w.fail["resume 1"], w.fail["undo 1"] = errFault, errFault
	ctx, cancel := context.WithCancelCause(t.Context())
	c, ending := w.container(), make(chan struct{})
	c.Ending = ending
	w.cancel["save 1"] = func() {
		cancel(errors.New("the client has gone"))
		close(ending)
	}
	if _, err := c.Checkpoint(ctx, splitRequest(t.TempDir(), false)); !errors.Is(err, ErrEnding) || !errors.Is(err, errFault) {
		t.Errorf("err = %v", err)
	}
}

// Where CRIU would end the processes, what becomes of their memory is known before.
func TestSplitFailsBeforeTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		fail, want error
	}{
		"no space":     {fail: errFault, want: errFault},
		"a disk hangs": {want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			c, r := w.container(), splitRequest(t.TempDir(), true)
			if tc.fail != nil {
				w.fail["save 1"] = tc.fail
			} else {
				w.slow = make(chan struct{}) // for ever
				c.Timeout = time.Second
			}
			r.TCPEstablished = true
			if _, err := c.Checkpoint(t.Context(), r); !errors.Is(err, tc.want) {
				t.Errorf("err = %v", err)
			}
			if w.called("dump") || !w.alive || w.held || len(w.away) > 0 {
				t.Errorf("calls are %v, alive %t, held %t, away %v", w.calls, w.alive, w.held, w.away)
			}
		})
	}
}

// A restore that is abandoned ends the load and frees what was loaded.
func TestSplitAbandoned(t *testing.T) {
	dir, w := savedSplit(t), restoredSplit(t)
	w.slow = make(chan struct{})
	r, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())
	if !w.called("drop") || w.held || len(w.loaded) > 0 {
		t.Errorf("calls are %v, loaded %v", w.calls, w.loaded)
	}
}

func TestSplitOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil  func(t *testing.T, dir string)
		target func(w *world) Target
		want   error
	}{
		"no library":      {nil, func(w *world) Target { return Target{GPU: w.gpu()} }, ErrLibrary},
		"another library": {nil, func(w *world) Target { return Target{GPU: w.gpu(), Library: &snapshot.Library{BuildID: "cd"}} }, ErrLibrary},
		"a device of others": {func(t *testing.T, dir string) {
			t.Helper()
			m, err := snapshot.ReadManifest(dir)
			if err != nil {
				t.Fatal(err)
			}
			m.Devices = m.Devices[1:]
			if err := os.Remove(filepath.Join(dir, snapshot.ManifestName)); err != nil {
				t.Fatal(err)
			}
			if err := snapshot.Write(t.Context(), dir, m); err != nil {
				t.Fatal(err)
			}
		}, func(w *world) Target { return Target{GPU: w.gpu(), Library: library} }, snapshot.ErrCorrupt},
		"the other engine": {nil, func(w *world) Target { return Target{GPU: gpu{w}, Library: library} }, gpuplugin.ErrIncompatible},
		"no room on another device for one chunk more": {nil, func(w *world) Target {
			w.fail["match 2"] = gpuplugin.ErrIncompatible
			return Target{GPU: w.gpu(), Library: library}
		}, gpuplugin.ErrIncompatible},
		"a damaged index": {func(t *testing.T, dir string) {
			t.Helper()
			name := filepath.Join(dir, memfile.IndexName)
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)-1] ^= 1
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, func(w *world) Target { return Target{GPU: w.gpu(), Library: library} }, snapshot.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir, w := savedSplit(t), restoredSplit(t)
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			target := tc.target(w)
			if name == "the other engine" {
				w.engine = snapshot.EngineDriver
			}
			if _, err := Open(t.Context(), dir, target); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, want %v", err, tc.want)
			}
			if w.called("load") {
				t.Error("it went on")
			}
		})
	}
}
