// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// The driver would wait for a stopped process, so it isn't asked about one.
func TestStoppedProcess(t *testing.T) {
	for _, state := range []string{"T", "t"} {
		m := gputest.New(t, gpu0)
		m.Run(7, gputest.Memory{gpu0.UUID: 1 << 30})
		m.RunPlain(8)
		for _, pid := range []string{"7", "8"} {
			stat := filepath.Join(m.ProcRoot(), pid, "stat")
			if err := os.WriteFile(stat, []byte(pid+" (a) S (b) "+state+" 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e := nvidia.NewEngine(m, nvidia.WithProcRoot(m.ProcRoot()))
		_, err := e.Processes(t.Context(), []int{7})
		if !errors.Is(err, gpuplugin.ErrUnknownState) || !strings.Contains(err.Error(), "process 7 (toy7)") || !strings.Contains(err.Error(), "is stopped") {
			t.Errorf("%s: err = %v", state, err)
		}
		if calls := m.Calls(); len(calls) != 0 {
			t.Errorf("%s: the driver was asked: %v", state, calls)
		}
		if procs, err := e.Processes(t.Context(), []int{8}); err != nil || len(procs) != 0 {
			t.Errorf("%s: one without device files: %v, %v", state, procs, err)
		}
	}
}

func TestUndoOfProcessThatDoesNotAnswer(t *testing.T) {
	m, e, procs := four(t, nvidia.WithStateTimeout(10*time.Millisecond))
	m.Fail(gputest.Fault{Op: gputest.OpState, PID: 2, Hang: true})
	err := e.Undo(t.Context(), procs)
	if !errors.Is(err, gpuplugin.ErrUnavailable) || !strings.Contains(err.Error(), "process 2") {
		t.Errorf("err = %v", err)
	}
	wantStates(t, m, all(running))
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"python3": "python3", "a b": "a b", "x\x1b[2J\n": "x?[2J?", "é": "é", "\u202e": "?",
	} {
		if got := nvidia.Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// One container's call that gets no answer costs others nothing.
func TestHelperIsRetired(t *testing.T) {
	h := newHelper(t)
	h.Warm(t.Context())
	first := h.PID()
	ctx, giveUp := context.WithCancel(t.Context())
	other := make(chan error)
	go func() { other <- h.Checkpoint(ctx, pidHangs) }()
	for h.Calls() == 0 {
		<-time.After(time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Checkpoint(short, pidHangs); !errors.Is(err, gpuplugin.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	if err := h.Unlock(t.Context(), pidFine); err != nil || h.PID() == first {
		t.Errorf("the next call: %v, helper %d, was %d", err, h.PID(), first)
	}
	select {
	case err := <-other:
		t.Errorf("the other's call has ended: %v", err)
	default:
	}
	giveUp()
	if err := <-other; !errors.Is(err, context.Canceled) || errors.Is(err, gpuplugin.ErrUnavailable) {
		t.Errorf("the other's call: %v", err)
	}
	late := time.After(10 * time.Second)
	for !errors.Is(syscall.Kill(first, 0), syscall.ESRCH) {
		select {
		case <-late:
			t.Fatal("the helper is still there when its last call has ended")
		case <-time.After(time.Millisecond):
		}
	}
}
