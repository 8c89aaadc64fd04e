// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"slices"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// groupFake is a control group that writes down what was done to it.
type groupFake struct {
	frozen bool
	thaw   error
	calls  []string
}

func (g *groupFake) Frozen() (bool, error) { return g.frozen, nil }

func (g *groupFake) PIDs() ([]int, error) { return []int{3}, nil }

func (g *groupFake) Unified() bool { return false }

func (g *groupFake) Path() string { return "/nowhere" }

func (g *groupFake) Freeze(context.Context) error {
	g.calls, g.frozen = append(g.calls, "freeze"), true
	return nil
}

func (g *groupFake) Thaw(context.Context) error {
	g.calls = append(g.calls, "thaw")
	if g.thaw == nil {
		g.frozen = false
	}
	return g.thaw
}

func (g *groupFake) Kill(context.Context) error {
	g.calls = append(g.calls, "kill")
	return nil
}

// The PID of a container that does not run may be a stranger's.
func TestNotStanding(t *testing.T) {
	for name, call := range map[string]func(context.Context, *service) error{
		"checkpoint": func(ctx context.Context, s *service) error {
			_, err := s.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: "c", Path: t.TempDir()})
			return err
		},
		"pause": func(ctx context.Context, s *service) error {
			_, err := s.Pause(ctx, &taskapi.PauseRequest{ID: "c"})
			return err
		},
		"metrics": func(ctx context.Context, s *service) error {
			_, err := s.Stats(ctx, &taskapi.StatsRequest{ID: "c"})
			return err
		},
	} {
		for _, tc := range []struct {
			state  tasktypes.Status
			noTask error
			is     func(error) bool
		}{
			{state: tasktypes.Status_CREATED, is: errdefs.IsFailedPrecondition},
			{state: tasktypes.Status_STOPPED, is: errdefs.IsFailedPrecondition},
			{noTask: errgrpc.ToGRPC(errdefs.ErrNotFound), is: errdefs.IsNotFound},
		} {
			group := &groupFake{}
			c := &container{id: "c", pid: 5, group: group, gpu: &gpus{engine: snapshot.EngineDriver}, restore: &checkpoint.Restore{}}
			s, inner := newService(c)
			inner.state, inner.noTask = tc.state, tc.noTask
			if err := errgrpc.ToNative(call(t.Context(), s)); !tc.is(err) {
				t.Errorf("%s in state %s, %v: %v", name, tc.state, tc.noTask, err)
			}
			if !slices.Equal(inner.calls, []string{"state"}) || len(group.calls) > 0 || c.busy() != opNone {
				t.Errorf("%s in state %s, %v: %v, %v, busy %q", name, tc.state, tc.noTask, inner.calls, group.calls, c.busy())
			}
		}
	}
}
