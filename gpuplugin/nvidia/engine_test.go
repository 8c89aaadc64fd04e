// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

const (
	running      = gpuplugin.StateRunning
	locked       = gpuplugin.StateLocked
	checkpointed = gpuplugin.StateCheckpointed
)

var gpu0, gpu1, gpu2 = gputest.H200(0), gputest.H200(1), gputest.H200(2)

// four is a machine on which processes 1 to 4 run, and an engine on it.
func four(t *testing.T, opts ...nvidia.Option) (*gputest.Machine, *nvidia.Engine, []gpuplugin.Process) {
	t.Helper()
	m := gputest.New(t, gpu0, gpu1)
	var procs []gpuplugin.Process
	for pid := 1; pid <= 4; pid++ {
		m.Run(pid, gputest.Memory{gpu0.UUID: uint64(pid) << 30, gpu1.UUID: 1 << 20})
		procs = append(procs, gpuplugin.Process{PID: pid, State: running})
	}
	opts = append([]nvidia.Option{nvidia.WithProcRoot(m.ProcRoot()), nvidia.WithGrace(20 * time.Millisecond)}, opts...)
	return m, nvidia.NewEngine(m, opts...), procs
}

func wantStates(t *testing.T, m *gputest.Machine, want map[int]gpuplugin.State) {
	t.Helper()
	got := map[int]gpuplugin.State{}
	for pid := range want {
		got[pid] = m.StateOf(pid)
	}
	if !maps.Equal(got, want) {
		t.Errorf("states = %v, want %v", got, want)
	}
}

func all(state gpuplugin.State) map[int]gpuplugin.State {
	return map[int]gpuplugin.State{1: state, 2: state, 3: state, 4: state}
}

// count is the number of calls of an operation.
func count(m *gputest.Machine, op gputest.Op) int {
	n := 0
	for _, c := range m.Calls() {
		if strings.HasPrefix(c, string(op)+" ") {
			n++
		}
	}
	return n
}

func TestSuspendAndResume(t *testing.T) {
	m, e, procs := four(t)
	if err := e.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	wantStates(t, m, all(checkpointed))
	calls := m.Calls()
	last := max(slices.Index(calls, "lock 1"), slices.Index(calls, "lock 2"), slices.Index(calls, "lock 3"), slices.Index(calls, "lock 4"))
	for _, c := range calls[:last] {
		if strings.HasPrefix(c, "checkpoint") {
			t.Errorf("%s came before all were locked: %v", c, calls)
		}
	}
	if err := e.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	wantStates(t, m, all(running))
}

func TestFoundStatesAreKept(t *testing.T) {
	found := map[int]gpuplugin.State{1: running, 2: locked, 3: checkpointed, 4: running}
	steps := map[string]struct {
		fault gputest.Fault
		do    func(context.Context, *nvidia.Engine, []gpuplugin.Process) error
		fails bool
	}{
		"suspend and resume": {do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
			return errors.Join(e.Suspend(ctx, procs), e.Resume(ctx, procs, nil))
		}},
		"suspend and undo": {do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
			return errors.Join(e.Suspend(ctx, procs), e.Undo(ctx, procs))
		}},
		"lock and undo": {do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
			return errors.Join(e.Lock(ctx, procs), e.Undo(ctx, procs))
		}},
		"undo at once": {do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
			return e.Undo(ctx, procs)
		}},
		"one fails to lock": {
			fault: gputest.Fault{Op: gputest.OpLock, PID: 4, Err: gputest.ErrInvalidValue},
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return e.Suspend(ctx, procs)
			},
			fails: true,
		},
		"one fails to checkpoint": {
			fault: gputest.Fault{Op: gputest.OpCheckpoint, PID: 2, Err: gputest.ErrNotSupported},
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return e.Suspend(ctx, procs)
			},
			fails: true,
		},
		"the helper dies at a checkpoint that was done": {
			fault: gputest.Fault{Op: gputest.OpCheckpoint, PID: 1, Times: 1, After: true, Err: gputest.ErrHelperDied},
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return e.Suspend(ctx, procs)
			},
			fails: true,
		},
		"the helper dies at a restore": {
			fault: gputest.Fault{Op: gputest.OpRestore, PID: 1, Times: 1, Err: gputest.ErrHelperDied},
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return errors.Join(e.Suspend(ctx, procs), e.Undo(ctx, procs))
			},
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			m, e, _ := four(t)
			var procs []gpuplugin.Process
			for pid, state := range found {
				m.SetState(pid, state)
				procs = append(procs, gpuplugin.Process{PID: pid, State: state})
			}
			m.Fail(step.fault)
			if err := step.do(t.Context(), e, procs); (err != nil) != step.fails {
				t.Errorf("err = %v, want one: %v", err, step.fails)
			}
			wantStates(t, m, found)
		})
	}
}

func TestSuspendFails(t *testing.T) {
	tests := map[string]struct {
		fault gputest.Fault
		is    error
		text  string
	}{
		"lock of one": {
			fault: gputest.Fault{Op: gputest.OpLock, PID: 3, Err: gputest.ErrInvalidValue},
			text:  "GPU lock of process 3: restore: CUDA_ERROR_INVALID_VALUE (1)",
		},
		"checkpoint of one": {
			fault: gputest.Fault{Op: gputest.OpCheckpoint, PID: 2, Err: gputest.ErrNotSupported},
			is:    gpuplugin.ErrUnsupported,
			text:  "GPU checkpoint of process 2: the process uses something that the driver can't checkpoint (managed memory",
		},
		"helper dies while locking": {
			fault: gputest.Fault{Op: gputest.OpLock, PID: 1, Times: 1, Err: gputest.ErrHelperDied},
			is:    gpuplugin.ErrUnavailable,
			text:  "helper died",
		},
		"helper dies while checkpointing": {
			fault: gputest.Fault{Op: gputest.OpCheckpoint, Times: 4, Err: gputest.ErrHelperDied},
			is:    gpuplugin.ErrUnavailable,
			text:  "helper died",
		},
		"a lock that was done, but whose answer was lost": {
			fault: gputest.Fault{Op: gputest.OpLock, PID: 1, Times: 1, After: true, Err: gputest.ErrHelperDied},
			is:    gpuplugin.ErrUnavailable,
			text:  "helper died",
		},
		"an unlock on the way back that fails once": {
			fault: gputest.Fault{Op: gputest.OpCheckpoint, PID: 2, Err: gputest.ErrInvalidValue},
			text:  "CUDA_ERROR_INVALID_VALUE",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, e, procs := four(t)
			m.Fail(test.fault)
			if strings.Contains(name, "on the way back") {
				m.Fail(gputest.Fault{Op: gputest.OpUnlock, PID: 1, Times: 1, Err: gputest.ErrHelperDied})
			}
			err := e.Suspend(t.Context(), procs)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v, want %q, %v", err, test.text, test.is)
			}
			wantStates(t, m, all(running))
			if test.fault.Op == gputest.OpLock && count(m, gputest.OpCheckpoint) > 0 {
				t.Errorf("checkpoints after a failed lock: %v", m.Calls())
			}
		})
	}
}

func TestUnsupportedNamesManagedMemory(t *testing.T) {
	m, e, procs := four(t)
	m.Map(2, "7f3a00000000-7f3a00800000 rw-s 7f3a00000000 00:05 90 /dev/nvidia-uvm")
	for _, said := range []error{gputest.ErrNotSupported, gputest.ErrUnknown} {
		m.Heal()
		m.Fail(gputest.Fault{Op: gputest.OpCheckpoint, PID: 2, Err: said})
		err := e.Suspend(t.Context(), procs)
		if !errors.Is(err, gpuplugin.ErrUnsupported) || !errors.Is(err, said) ||
			!strings.Contains(err.Error(), "8192 KiB of managed memory") {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, all(running))
	}
}

func TestLockTriesAgain(t *testing.T) {
	m, e, procs := four(t)
	m.Fail(gputest.Fault{Op: gputest.OpLock, PID: 2, Times: 5, Err: gputest.ErrNotReady})
	if err := e.Lock(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	wantStates(t, m, all(locked))
	if got := count(m, gputest.OpUnlock); got != 15 {
		t.Errorf("%d unlocks, want the 3 others unlocked after each of 5 tries", got)
	}
}

func TestLockGivesUp(t *testing.T) {
	notReady := gputest.Fault{Op: gputest.OpLock, PID: 2, Err: gputest.ErrNotReady}
	t.Run("after its time-out", func(t *testing.T) {
		m, e, procs := four(t, nvidia.WithLockTimeout(time.Second))
		m.Fail(notReady)
		err := e.Lock(t.Context(), procs)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 1s") ||
			!strings.Contains(err.Error(), "process 2") {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, all(running))
		if tries := count(m, gputest.OpLock) / 4; tries < 2 {
			t.Errorf("%d tries", tries)
		}
	})
	t.Run("when canceled", func(t *testing.T) {
		m, e, procs := four(t)
		m.Fail(notReady)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			m.Await(ctx, gputest.OpUnlock, 1)
			cancel()
		}()
		if err := e.Lock(ctx, procs); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, all(running))
	})
	t.Run("before it begins", func(t *testing.T) {
		m, e, procs := four(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Lock(ctx, procs); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if calls := m.Calls(); len(calls) > 0 {
			t.Errorf("calls = %v", calls)
		}
	})
}

func TestLockTwice(t *testing.T) {
	m, e, procs := four(t)
	for range 2 {
		if err := e.Lock(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
	}
	wantStates(t, m, all(locked))
}

// TestHang is about calls that the driver never answers, and contexts that end.
func TestHang(t *testing.T) {
	t.Run("checkpoint", func(t *testing.T) {
		m, e, procs := four(t)
		m.Fail(gputest.Fault{Op: gputest.OpCheckpoint, PID: 3, Times: 1, Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			m.Await(ctx, gputest.OpCheckpoint, 3)
			cancel()
		}()
		if err := e.Suspend(ctx, procs); err == nil {
			t.Error("no error")
		}
		wantStates(t, m, all(running))
	})
	t.Run("checkpoint that ends well after the context", func(t *testing.T) {
		m, e, procs := four(t, nvidia.WithGrace(time.Minute))
		release := make(chan struct{})
		m.Fail(gputest.Fault{Op: gputest.OpCheckpoint, PID: 3, Times: 1, Hang: true, Release: release})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			m.Await(ctx, gputest.OpCheckpoint, 3)
			cancel()
			close(release)
		}()
		if err := e.Suspend(ctx, procs); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, all(running))
		if got := count(m, gputest.OpRestore); got != 4 {
			t.Errorf("%d restores, want 4", got)
		}
	})
	t.Run("lock", func(t *testing.T) {
		m, e, procs := four(t)
		m.Fail(gputest.Fault{Op: gputest.OpLock, PID: 3, Times: 1, Hang: true})
		if err := e.Suspend(t.Context(), procs); !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, all(running))
	})
	t.Run("undo", func(t *testing.T) {
		m, e, procs := four(t, nvidia.WithUndoTimeout(100*time.Millisecond))
		m.SetState(3, locked)
		m.Fail(gputest.Fault{Op: gputest.OpUnlock, PID: 3, Hang: true})
		err := e.Undo(t.Context(), procs)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "process 3: the process was running and is now locked") {
			t.Errorf("err = %v", err)
		}
	})
}

func TestUndo(t *testing.T) {
	t.Run("none goes on after an error", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		m.Fail(gputest.Fault{Op: gputest.OpRestore, PID: 2, Err: gputest.ErrInvalidValue})
		err := e.Undo(t.Context(), procs)
		if err == nil || !strings.Contains(err.Error(), "process 2") || strings.Contains(err.Error(), "process 1") {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, map[int]gpuplugin.State{1: running, 2: checkpointed, 3: running, 4: running})
	})
	t.Run("when the context has ended", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Undo(ctx, procs); err != nil {
			t.Error(err)
		}
		wantStates(t, m, all(running))
	})
	t.Run("forgives processes that exited", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		m.Exit(1)
		m.RunPlain(2) // exec of a program without CUDA
		if err := e.Undo(t.Context(), procs); err != nil {
			t.Error(err)
		}
		wantStates(t, m, map[int]gpuplugin.State{1: "", 2: "", 3: running, 4: running})
	})
	t.Run("gives up without a driver", func(t *testing.T) {
		m, e, procs := four(t)
		m.Fail(gputest.Fault{Op: gputest.OpState, Err: gputest.ErrHelperDied})
		if err := e.Undo(t.Context(), procs[:1]); !errors.Is(err, gpuplugin.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("does not touch a failed process", func(t *testing.T) {
		m, e, procs := four(t)
		m.SetState(1, gpuplugin.StateFailed)
		if err := e.Undo(t.Context(), procs[:1]); err == nil {
			t.Error("no error")
		}
		if calls := m.Calls(); len(calls) > 0 {
			t.Errorf("calls = %v", calls)
		}
	})
}

func TestResume(t *testing.T) {
	t.Run("on other devices", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		if err := e.Resume(t.Context(), procs, gpuplugin.DeviceMap{gpu0.UUID: gpu1.UUID, gpu1.UUID: gpu0.UUID}); err != nil {
			t.Fatal(err)
		}
		wantStates(t, m, all(running))
		if got := m.MemoryOf(2); got[gpu1.UUID] != 2<<30 || got[gpu0.UUID] != 1<<20 {
			t.Errorf("memory = %v", got)
		}
	})
	t.Run("into the state that is asked for", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		procs[1].State = locked
		if err := e.Resume(t.Context(), procs, nil); err != nil {
			t.Fatal(err)
		}
		wantStates(t, m, map[int]gpuplugin.State{1: running, 2: locked, 3: running, 4: running})
	})
	t.Run("none goes on after an error", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		m.Fail(gputest.Fault{Op: gputest.OpRestore, PID: 2, Err: gputest.ErrInvalidValue})
		err := e.Resume(t.Context(), procs, nil)
		if err == nil || !strings.Contains(err.Error(), "GPU restore of process 2") {
			t.Errorf("err = %v", err)
		}
		wantStates(t, m, map[int]gpuplugin.State{1: locked, 2: checkpointed, 3: locked, 4: locked})
	})
	t.Run("moves nothing that another tool suspended", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		before := m.Calls()
		procs[0].State = checkpointed
		err := e.Resume(t.Context(), procs, gpuplugin.DeviceMap{gpu0.UUID: gpu1.UUID, gpu1.UUID: gpu0.UUID})
		if !errors.Is(err, gpuplugin.ErrIncompatible) {
			t.Errorf("err = %v", err)
		}
		if !slices.Equal(m.Calls(), before) {
			t.Errorf("something was done: %v", m.Calls()[len(before):])
		}
	})
	t.Run("a process that is gone is an error", func(t *testing.T) {
		m, e, procs := four(t)
		if err := e.Suspend(t.Context(), procs); err != nil {
			t.Fatal(err)
		}
		m.Exit(4)
		if err := e.Resume(t.Context(), procs, nil); err == nil || !strings.Contains(err.Error(), "process 4") {
			t.Errorf("err = %v", err)
		}
	})
}

func TestProcessThatExitsMeanwhile(t *testing.T) {
	m, e, procs := four(t)
	m.Exit(2)
	if err := e.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	wantStates(t, m, map[int]gpuplugin.State{1: checkpointed, 2: "", 3: checkpointed, 4: checkpointed})
}

func TestUsage(t *testing.T) {
	_, e, procs := four(t)
	used, err := e.Usage(t.Context(), procs[1:3])
	if err != nil || used[gpu0.UUID] != 5<<30 || used[gpu1.UUID] != 2<<20 {
		t.Errorf("Usage = %v, %v", used, err)
	}
}

func TestLuby(t *testing.T) {
	want := []int{1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, 1}
	for i, w := range want {
		if got := nvidia.Luby(uint(i + 1)); got != w {
			t.Errorf("Luby(%d) = %d, want %d", i+1, got, w)
		}
	}
}
