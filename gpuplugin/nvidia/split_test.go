// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// splitWorld is a container with four processes with GPU state, of which 1 to 3
// run the library and 4 does not.
type splitWorld struct {
	*gputest.Machine
	stopping
	lib *gputest.Library
	e   *nvidia.SplitEngine
}

func newSplitWorld(t *testing.T, opts ...nvidia.Option) *splitWorld {
	t.Helper()
	m, driver, _ := four(t, append([]nvidia.Option{nvidia.WithUndoTimeout(5 * time.Second)}, opts...)...)
	lib := gputest.NewLibrary(m)
	lib.Join(1, 2, 3)
	e := nvidia.NewSplitEngine(driver, lib, lib.Keepers(), "/control", "c")
	return &splitWorld{m, stopping{e}, lib, e}
}

// stopping is what tests of engines that take memory out of processes do with
// one.
type stopping struct {
	engine interface {
		Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error)
		Lock(ctx context.Context, procs []gpuplugin.Process) error
		Park(ctx context.Context, procs []gpuplugin.Process, devices []gpuplugin.Device) error
		Suspend(ctx context.Context, procs []gpuplugin.Process) error
	}
}

// processes finds them, as an operation does at its beginning.
func (w stopping) processes(t *testing.T, pids ...int) []gpuplugin.Process {
	t.Helper()
	procs, err := w.engine.Processes(t.Context(), pids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range procs {
		procs[i].Key = strconv.Itoa(procs[i].PID)
	}
	return procs
}

func (w stopping) park(ctx context.Context, procs []gpuplugin.Process) error {
	return w.engine.Park(ctx, procs, []gpuplugin.Device{gpu0, gpu1})
}

// stop takes the processes to where they would be dumped.
func (w stopping) stop(ctx context.Context, procs []gpuplugin.Process) error {
	for _, step := range []func(context.Context, []gpuplugin.Process) error{w.engine.Lock, w.park, w.engine.Suspend} {
		if err := step(ctx, procs); err != nil {
			return err
		}
	}
	return nil
}

// wantClients checks the three that run the library.
func (w *splitWorld) wantClients(t *testing.T, want nvidia.ClientState) {
	t.Helper()
	for pid := 1; pid <= 3; pid++ {
		if got := w.lib.StateOf(pid); got != want {
			t.Errorf("process %d is %s for the library, want %s", pid, got, want)
		}
	}
}

// wantWhole checks that every process has all of its memory.
func (w *splitWorld) wantWhole(t *testing.T) {
	t.Helper()
	for pid := 1; pid <= 4; pid++ {
		if got, want := w.MemoryOf(pid), (gputest.Memory{gpu0.UUID: uint64(pid) << 30, gpu1.UUID: 1 << 20}); !maps.Equal(got, want) {
			t.Errorf("process %d has %v, want %v", pid, got, want)
		}
	}
}

// before fails unless every call of one operation comes before every call of the
// other.
func before(t *testing.T, calls []string, first, then gputest.Op) {
	t.Helper()
	of := func(op gputest.Op) func(string) bool {
		return func(c string) bool { return strings.HasPrefix(c, string(op)+" ") }
	}
	last := -1
	for i, c := range calls {
		if of(first)(c) {
			last = i
		}
	}
	next := slices.IndexFunc(calls, of(then))
	if last < 0 || next < 0 || next < last {
		t.Errorf("not every %s comes before every %s: %v", first, then, calls)
	}
}

func TestSplitOrder(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	for _, p := range procs {
		if p.Split != (p.PID != 4) || p.Split == (p.Reason != "") {
			t.Errorf("%+v", p)
		}
	}
	if err := w.e.Lock(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	wantStates(t, w.Machine, all(locked))
	w.wantClients(t, nvidia.ClientHeld)
	before(t, w.Calls(), gputest.OpHold, gputest.OpLock)
	if err := w.park(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.wantClients(t, nvidia.ClientParked)
	// What can't be held back by the library is held back by the driver all the while.
	wantStates(t, w.Machine, map[int]gpuplugin.State{1: running, 2: running, 3: running, 4: locked})
	before(t, w.Calls(), gputest.OpUnlock, gputest.OpPark)
	before(t, w.Calls(), gputest.OpPark, gputest.OpCommit)
	if err := w.e.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	wantStates(t, w.Machine, all(checkpointed))
	before(t, w.Calls(), gputest.OpCommit, gputest.OpCheckpoint)
	for pid := 1; pid <= 3; pid++ {
		w.lib.Dump(pid)
	}
	w.Dump(4)
	if err := w.e.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	before(t, w.Calls(), gputest.OpRestore, gputest.OpUnpark)
	before(t, w.Calls(), gputest.OpUnpark, gputest.OpRelease)
	calls := w.Calls()
	if i := slices.Index(calls, "unlock 4"); i < slices.Index(calls, "unpark 1") {
		t.Errorf("4 went on before 1 had its memory: %v", calls)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
	if held := w.lib.Held(); len(held) > 0 {
		t.Errorf("the helper still holds %v", held)
	}
}

// Whatever fails, and whether or not it was done, all is as it was found.
func TestSplitUndo(t *testing.T) {
	never := map[gputest.Op][]gputest.Op{
		gputest.OpHold:       {gputest.OpPark, gputest.OpCheckpoint},
		gputest.OpLock:       {gputest.OpPark, gputest.OpCheckpoint},
		gputest.OpUnlock:     {gputest.OpPark, gputest.OpCheckpoint},
		gputest.OpPark:       {gputest.OpCommit, gputest.OpCheckpoint},
		gputest.OpCommit:     {gputest.OpCheckpoint},
		gputest.OpCheckpoint: {gputest.OpSave},
	}
	for op, later := range never {
		for _, after := range []bool{false, true} {
			for _, pid := range []int{1, 3} {
				for _, paused := range []bool{false, true} {
					name := string(op) + " of " + strconv.Itoa(pid)
					if after {
						name += ", answer lost"
					}
					if paused {
						name += ", paused"
					}
					t.Run(name, func(t *testing.T) {
						w := newSplitWorld(t)
						found := running
						if paused {
							if err := w.e.Lock(t.Context(), w.processes(t, 1, 2, 3, 4)); err != nil {
								t.Fatal(err)
							}
							found = locked
						}
						procs := w.processes(t, 1, 2, 3, 4)
						w.Fail(gputest.Fault{Op: op, PID: pid, Times: 1, After: after, Err: gputest.ErrInvalidValue})
						err := w.stop(t.Context(), procs)
						// A pause holds and locks what a checkpoint then need not.
						if skipped := paused && (op == gputest.OpHold || op == gputest.OpLock && after); skipped == (err != nil) {
							t.Fatalf("error is %v", err)
						} else if skipped {
							return
						}
						if !errors.Is(err, gputest.ErrInvalidValue) {
							t.Fatalf("error is %v", err)
						}
						wantStates(t, w.Machine, all(found))
						w.wantClients(t, nvidia.ClientRunning)
						w.wantWhole(t)
						for _, op := range later {
							if n := count(w.Machine, op); n > 0 {
								t.Errorf("%d calls of %s", n, op)
							}
						}
						w.Heal()
						if err := errors.Join(w.stop(t.Context(), procs), w.e.Resume(t.Context(), procs, nil)); err != nil {
							t.Errorf("the next try: %v", err)
						}
						wantStates(t, w.Machine, all(found))
						w.wantWhole(t)
					})
				}
			}
		}
	}
}

// Work that does not come to rest is tried again, and all go on between tries.
func TestSplitTriesAgain(t *testing.T) {
	for i, op := range []gputest.Op{gputest.OpHold, gputest.OpLock, gputest.OpHold, gputest.OpLock} {
		w := newSplitWorld(t)
		w.lib.SetSteps(i < 2) // or an older library's
		procs := w.processes(t, 1, 2, 3, 4)
		w.Fail(gputest.Fault{Op: op, PID: 2, Times: 3, Err: gputest.ErrNotReady})
		if err := w.e.Lock(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		w.wantClients(t, nvidia.ClientHeld)
		if n := count(w.Machine, gputest.OpRelease); n != 9 {
			t.Errorf("%s: %d calls of release after 3 tries: %v", op, n, w.Calls())
		}
		w = newSplitWorld(t, nvidia.WithLockTimeout(100*time.Millisecond))
		w.Fail(gputest.Fault{Op: op, PID: 2, Err: gputest.ErrNotReady})
		if err := w.e.Lock(t.Context(), w.processes(t, 1, 2, 3, 4)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		wantStates(t, w.Machine, all(running))
		w.wantClients(t, nvidia.ClientRunning)
	}
}

// The last try, which the end of the time cuts short, does not hide what those
// before it found.
func TestSplitSaysWhatItFound(t *testing.T) {
	const limit = 500 * time.Millisecond
	w := newSplitWorld(t, nvidia.WithLockTimeout(limit))
	w.Fail(gputest.Fault{Op: gputest.OpHold, PID: 2, Times: 1, Err: gputest.ErrNotReady})
	w.Fail(gputest.Fault{Op: gputest.OpHold, PID: 2, Err: context.DeadlineExceeded, Do: func() { <-time.After(limit) }})
	err := w.e.Lock(t.Context(), w.processes(t, 1, 2, 3, 4))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gputest.ErrNotReady) || !strings.Contains(err.Error(), "2 tries") {
		t.Errorf("error is %v", err)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
}

// A container that was paused by somebody else: its threads may wait in the
// driver, and come out only when it is unlocked.
func TestSplitFoundLocked(t *testing.T) {
	w := newSplitWorld(t)
	for pid := 1; pid <= 4; pid++ {
		w.SetState(pid, locked)
	}
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	calls := w.Calls()
	if slices.Index(calls, "unlock 1") > slices.Index(calls, "hold 1") || slices.Contains(calls[:slices.Index(calls, "park 1")], "unlock 4") {
		t.Errorf("calls are %v", calls)
	}
	if err := w.e.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	wantStates(t, w.Machine, all(locked))
	w.wantClients(t, nvidia.ClientRunning)
	calls = w.Calls()
	slices.Reverse(calls)
	if slices.Index(calls, "lock 1") < slices.Index(calls, "release 1") {
		t.Errorf("the gate was opened before the driver was locked: %v", calls)
	}
}

// Nothing is split if one can't be told, and nothing is touched before.
func TestSplitFallsBack(t *testing.T) {
	w := newSplitWorld(t)
	w.Fail(gputest.Fault{Op: gputest.OpClients, Err: errors.New("process 2 speaks version 9")})
	procs := w.processes(t, 1, 2, 3, 4)
	for _, p := range procs {
		if p.Split || !strings.Contains(p.Reason, "version 9") {
			t.Errorf("%+v", p)
		}
	}
	if calls := w.Calls(); len(calls) > 0 {
		t.Errorf("calls are %v", calls)
	}
	if err := errors.Join(w.stop(t.Context(), procs), w.e.Resume(t.Context(), procs, nil)); err != nil {
		t.Fatal(err)
	}
	for _, op := range []gputest.Op{gputest.OpHold, gputest.OpPark, gputest.OpUnpark} {
		if n := count(w.Machine, op); n > 0 {
			t.Errorf("%d calls of %s", n, op)
		}
	}
	wantStates(t, w.Machine, all(running))
	w.wantWhole(t)
}

// The end of the helper while it holds memory loses that: the processes are not
// let go, and are not saved without it.
func TestSplitMemoryLost(t *testing.T) {
	for name, op := range map[string]gputest.Op{
		"by another's commit": gputest.OpCommit, "by the driver's checkpoint": gputest.OpCheckpoint, "while the dump goes on": "",
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			procs := w.processes(t, 1, 2, 3, 4)
			if op != "" {
				w.Fail(gputest.Fault{Op: op, PID: 2, Times: 1, After: true, Err: gputest.ErrHelperDied, Do: w.lib.Die})
			}
			err := w.stop(t.Context(), procs)
			if op == "" {
				w.lib.Die()
				err = w.e.Resume(t.Context(), procs, nil)
				wantStates(t, w.Machine, map[int]gpuplugin.State{4: locked}) // none goes on
				err = errors.Join(err, w.e.Undo(t.Context(), procs))
			}
			if !errors.Is(err, gpuplugin.ErrLost) || !strings.Contains(err.Error(), "process 2") {
				t.Errorf("error is %v", err)
			}
			if got := w.lib.StateOf(2); got != nvidia.ClientParked {
				t.Errorf("process 2 is %s", got)
			}
			wantStates(t, w.Machine, map[int]gpuplugin.State{4: running})
			if _, err := w.e.Processes(t.Context(), []int{1, 2, 3, 4}); !errors.Is(err, gpuplugin.ErrUnknownState) {
				t.Errorf("the next operation: %v", err)
			}
		})
	}
}

// A helper that dies before the memory is its own takes nothing with it.
func TestSplitHelperDies(t *testing.T) {
	for _, op := range []gputest.Op{gputest.OpHold, gputest.OpLock, gputest.OpUnlock} {
		w := newSplitWorld(t)
		procs := w.processes(t, 1, 2, 3, 4)
		w.Fail(gputest.Fault{Op: op, PID: 2, Times: 1, Err: gputest.ErrHelperDied, Do: w.lib.Die})
		if err := w.stop(t.Context(), procs); !errors.Is(err, gpuplugin.ErrUnavailable) || errors.Is(err, gpuplugin.ErrLost) {
			t.Errorf("%s: error is %v", op, err)
		}
		wantStates(t, w.Machine, all(running))
		w.wantClients(t, nvidia.ClientRunning)
		w.wantWhole(t)
	}
	// Another one is asked where it was only the answer that got lost.
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpUnpark, PID: 2, Times: 1, After: true, Err: gputest.ErrHelperDied})
	w.Fail(gputest.Fault{Op: gputest.OpClients, Times: 2, Err: gputest.ErrHelperDied})
	if err := w.e.Resume(t.Context(), procs, nil); !errors.Is(err, gpuplugin.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
	if err := w.e.Undo(t.Context(), procs); err != nil {
		t.Error(err)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
}

// A helper that is busy with the memory still has it: it is waited for.
func TestSplitWaitsForBusyHelper(t *testing.T) {
	for _, busy := range []error{helperapi.ErrIllegalState, helperapi.ErrNotReady} {
		w := newSplitWorld(t)
		procs := w.processes(t, 1, 2, 3, 4)
		if err := w.stop(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		w.Fail(gputest.Fault{Op: gputest.OpUnpark, PID: 2, Times: 8, Err: busy})
		if err := w.e.Undo(t.Context(), procs); err != nil {
			t.Errorf("%v: %v", busy, err)
		}
		wantStates(t, w.Machine, all(running))
		w.wantClients(t, nvidia.ClientRunning)
		w.wantWhole(t)
	}
}

// Memory that comes when another process has its own is tried again, and nobody is
// asked about it: a process that the helper holds answers nobody else.
func TestSplitUndoShared(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpUnpark, PID: 2, Times: 1, Err: helperapi.ErrNotReady})
	asked := false
	w.Fail(gputest.Fault{Op: gputest.OpClients, Err: errors.New("one gives no answer"), Do: func() { asked = true }})
	if err := w.e.Undo(t.Context(), procs); err != nil {
		t.Error(err)
	}
	if asked {
		t.Error("the processes were asked, although the helper is there")
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
}

// Memory that is no more what it was is lost, and the reason is said.
func TestSplitMemoryDamaged(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpUnpark, PID: 2, Err: fmt.Errorf("the first word can't be put back: %w", helperapi.ErrDamaged)})
	err := w.e.Undo(t.Context(), procs)
	if !errors.Is(err, gpuplugin.ErrLost) || !strings.Contains(err.Error(), "can't be put back") || strings.Contains(err.Error(), "died") {
		t.Errorf("error is %v", err)
	}
	if got := w.lib.StateOf(2); got != nvidia.ClientParked {
		t.Errorf("the process is %s", got)
	}
}

// A process that can't go on with the memory that it has got is lost, and stays held.
func TestSplitMemoryNotInItsPlace(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpRelease, PID: 2, Err: fmt.Errorf("cuMemMap failed: %w", helperapi.ErrDamaged)})
	for _, try := range []func(context.Context) error{
		func(ctx context.Context) error { return w.e.Resume(ctx, procs, nil) },
		func(ctx context.Context) error { return w.e.Undo(ctx, procs) },
	} {
		if err := try(t.Context()); !errors.Is(err, gpuplugin.ErrLost) || !strings.Contains(err.Error(), "cuMemMap") {
			t.Errorf("error is %v", err)
		}
		if got := w.lib.StateOf(2); got != nvidia.ClientHeld {
			t.Errorf("the process is %s", got)
		}
	}
}

// A process that has its memory, and was not heard to say all about it, goes on: the
// operation has failed, and nothing is lost.
func TestSplitNotHeard(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpUnpark, PID: 2, Times: 1, After: true, Err: errors.New("it has its memory back")})
	if err := w.e.Resume(t.Context(), procs, nil); err == nil || errors.Is(err, gpuplugin.ErrLost) {
		t.Errorf("error is %v", err)
	}
	if err := w.e.Undo(t.Context(), procs); err != nil {
		t.Error(err)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
}

// Memory on a device that the container was not given is not taken.
func TestSplitDevicesOfOthers(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.e.Lock(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	if err := w.e.Park(t.Context(), procs, []gpuplugin.Device{gpu0}); err == nil || !strings.Contains(err.Error(), gpu1.UUID) {
		t.Errorf("error is %v", err)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
}

// That one process does not say what it is keeps no memory from another.
func TestSplitGivesBackUnasked(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.Fail(gputest.Fault{Op: gputest.OpClients, Err: errors.New("one gives no answer")})
	if err := w.e.Undo(t.Context(), procs); err != nil {
		t.Error(err)
	}
	wantStates(t, w.Machine, all(running))
	w.wantClients(t, nvidia.ClientRunning)
	w.wantWhole(t)
}

// Processes that end at any time are no failure, and keep nothing in the helper.
func TestSplitProcessExits(t *testing.T) {
	for _, op := range []gputest.Op{gputest.OpHold, gputest.OpPark, gputest.OpCommit, gputest.OpCheckpoint, gputest.OpUnpark} {
		t.Run(string(op), func(t *testing.T) {
			w := newSplitWorld(t)
			procs := w.processes(t, 1, 2, 3, 4)
			w.Fail(gputest.Fault{Op: op, PID: 2, Times: 1, Do: func() { w.Exit(2) }})
			if err := w.stop(t.Context(), procs); err != nil {
				t.Fatal(err)
			}
			if err := w.e.Resume(t.Context(), procs, nil); err != nil { // as with the driver engine
				if err := w.e.Undo(t.Context(), procs); err != nil {
					t.Error(err)
				}
			}
			if err := w.e.Drop(t.Context()); err != nil {
				t.Error(err)
			}
			wantStates(t, w.Machine, map[int]gpuplugin.State{1: running, 3: running, 4: running})
			if held := w.lib.Held(); len(held) > 0 {
				t.Errorf("the helper still holds %v", held)
			}
		})
	}
}

func TestSplitCopyAndSave(t *testing.T) {
	for _, room := range []bool{true, false} {
		w := newSplitWorld(t)
		w.lib.SetRoom(room)
		procs := w.processes(t, 1, 2, 3, 4)
		if err := w.stop(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		if done, err := w.e.Copy(t.Context(), procs); err != nil || done != room {
			t.Fatalf("copied: %t, %v", done, err)
		}
		if room {
			if err := w.e.Resume(t.Context(), procs, nil); err != nil {
				t.Fatal(err)
			}
			w.wantWhole(t)
		}
		stored, err := w.e.Save(t.Context(), t.TempDir(), "", procs)
		if want := uint64(6<<30 + 3<<20); err != nil || stored.Bytes != want || stored.Written != want {
			t.Errorf("stored %+v, %v, want %d bytes", stored, err, want)
		}
		if !room {
			if err := w.e.Resume(t.Context(), procs, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.wantClients(t, nvidia.ClientRunning)
		w.wantWhole(t)
		if err := w.e.Drop(t.Context()); err != nil || len(w.lib.Held()) > 0 {
			t.Errorf("dropped: %v, %v left", err, w.lib.Held())
		}
	}
}

// Memory is loaded before there is a process, and onto other devices.
func TestSplitRestore(t *testing.T) {
	w := newSplitWorld(t)
	procs := w.processes(t, 1, 2, 3, 4)
	if err := w.stop(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	if _, err := w.e.Save(t.Context(), t.TempDir(), "", procs); err != nil {
		t.Fatal(err)
	}
	images, plain := map[int]gputest.LibraryImage{}, w.Dump(4)
	for pid := 1; pid <= 3; pid++ {
		images[pid] = w.lib.Dump(pid)
		w.Exit(pid)
	}
	w.Exit(4)
	if err := w.e.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	devices := gpuplugin.DeviceMap{gpu0.UUID: gpu1.UUID, gpu1.UUID: gpu0.UUID}
	if err := w.e.Load(t.Context(), "/snapshot", procs, devices); err != nil {
		t.Fatal(err)
	}
	for pid, image := range images {
		w.lib.Revive(pid+10, image)
	}
	w.Revive(14, plain)
	for i := range procs {
		procs[i].PID += 10
	}
	if err := w.e.Resume(t.Context(), procs, devices); err != nil {
		t.Fatal(err)
	}
	for pid := 1; pid <= 4; pid++ {
		if got, want := w.MemoryOf(pid+10), (gputest.Memory{gpu1.UUID: uint64(pid) << 30, gpu0.UUID: 1 << 20}); !maps.Equal(got, want) {
			t.Errorf("process %d has %v, want %v", pid+10, got, want)
		}
		if got := w.StateOf(pid + 10); got != running {
			t.Errorf("process %d is %s", pid+10, got)
		}
	}
	if held := w.lib.Held(); len(held) > 0 {
		t.Errorf("the helper still holds %v", held)
	}
}

// A canceled operation is undone although its context has ended.
func TestSplitCancelled(t *testing.T) {
	for _, op := range []gputest.Op{gputest.OpHold, gputest.OpLock, gputest.OpPark, gputest.OpCommit, gputest.OpCheckpoint} {
		w := newSplitWorld(t)
		procs := w.processes(t, 1, 2, 3, 4)
		ctx, cancel := context.WithCancel(t.Context())
		w.Fail(gputest.Fault{Op: op, PID: 3, Times: 1, Do: cancel})
		if err := w.stop(ctx, procs); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error is %v", op, err)
		}
		wantStates(t, w.Machine, all(running))
		w.wantClients(t, nvidia.ClientRunning)
		w.wantWhole(t)
	}
}
