// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// watch says what it is told to, and records in which state it was asked.
type watch struct {
	check   error
	asked   []gpuplugin.State
	machine *gputest.Machine // may be nil
}

func (w *watch) Check(context.Context, []gpuplugin.Process) error {
	if w.machine != nil {
		w.asked = append(w.asked, w.machine.StateOf(1))
	}
	return w.check
}

// A handle that is opened between Prepare and the lock costs nothing but the
// lock.
func TestSharingIsAskedOnceMoreUnderTheLock(t *testing.T) {
	w := &watch{}
	m, e, procs := four(t, nvidia.WithSharing(w))
	w.machine = m
	if err := e.Prepare(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	w.check = errors.New("1 handle is open")
	if err := e.Suspend(t.Context(), procs); !errors.Is(err, w.check) {
		t.Errorf("err = %v", err)
	}
	wantStates(t, m, all(running))
	if want := []gpuplugin.State{running, gpuplugin.StateLocked}; !slices.Equal(w.asked, want) {
		t.Errorf("asked when %q, want %q", w.asked, want)
	}
	for _, c := range m.Calls() {
		if strings.HasPrefix(c, string(gputest.OpCheckpoint)) {
			t.Errorf("a process was checkpointed: %s", c)
		}
	}
}
