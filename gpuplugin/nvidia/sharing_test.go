// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// watch records what the engine asks of it.
type watch struct {
	check, clean error
	asked        []string
	machine      *gputest.Machine
}

func (w *watch) Check(context.Context, []gpuplugin.Process) error {
	w.asked = append(w.asked, "check")
	return w.check
}

func (w *watch) Clean(procs []gpuplugin.Process) error {
	w.asked = append(w.asked, fmt.Sprintf("clean %d when %s", len(procs), w.machine.StateOf(1)))
	return w.clean
}

func (w *watch) Rearm(context.Context) {
	w.asked = append(w.asked, fmt.Sprintf("rearm when %s", w.machine.StateOf(1)))
}

func TestSharing(t *testing.T) {
	tests := map[string]struct {
		clean error
		do    func(context.Context, *nvidia.Engine, []gpuplugin.Process) error
		fails bool
		want  []string
	}{
		"suspend and resume": {
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return errors.Join(e.Prepare(ctx, procs), e.Suspend(ctx, procs), e.Resume(ctx, procs, nil))
			},
			want: []string{"check", "clean 4 when checkpointed", "rearm when checkpointed"},
		},
		"suspend and undo": {
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return errors.Join(e.Suspend(ctx, procs), e.Undo(ctx, procs))
			},
			want: []string{"clean 4 when checkpointed", "rearm when checkpointed"},
		},
		"lock": {
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return errors.Join(e.Lock(ctx, procs), e.Undo(ctx, procs))
			},
			want: []string{"rearm when locked"},
		},
		"code that can't be cleaned": {
			clean: errors.New("no memory"),
			do: func(ctx context.Context, e *nvidia.Engine, procs []gpuplugin.Process) error {
				return e.Suspend(ctx, procs)
			},
			fails: true,
			want:  []string{"clean 4 when checkpointed", "rearm when checkpointed"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := &watch{clean: test.clean}
			m, e, procs := four(t, nvidia.WithSharing(w))
			w.machine = m
			if err := test.do(t.Context(), e, procs); (err != nil) != test.fails || !errors.Is(err, test.clean) {
				t.Errorf("err = %v", err)
			}
			wantStates(t, m, all(running))
			if !slices.Equal(w.asked, test.want) {
				t.Errorf("asked %q, want %q", w.asked, test.want)
			}
		})
	}
}
