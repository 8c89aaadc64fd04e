// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// The driver does not answer for frozen processes, so what a failed pause of
// runc's left frozen is thawed before the GPUs are given back.
func TestFailedPauseIsUndone(t *testing.T) {
	for name, tc := range map[string]struct {
		// before and after say whether the processes are frozen.
		before, after bool
		thaw          error
		thawed        bool
		undone        []int
	}{
		"frozen by runc":  {after: true, thawed: true, undone: []int{3}},
		"not frozen":      {undone: []int{3}},
		"can't be thawed": {after: true, thaw: errors.New("freezer"), thawed: true},
		"paused before":   {before: true, after: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, group := &gpus{engine: snapshot.EngineDriver}, &groupFake{frozen: tc.before, thaw: tc.thaw}
			c := &container{id: "c", pid: 5, gpu: g, group: group}
			s, inner := newService(c)
			inner.pause = errors.New("runc")
			inner.during = func() { group.frozen = tc.after }
			_, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"})
			if err == nil || tc.thaw != nil && !contains(err, "frozen still", "runc", "freezer") {
				t.Errorf("error is %v", err)
			}
			if slices.Contains(group.calls, "thaw") != tc.thawed || !slices.Equal(g.undone, tc.undone) || !c.pausedAt.IsZero() {
				t.Errorf("group %v, GPUs undone %v, paused at %v", group.calls, g.undone, c.pausedAt)
			}
		})
	}
}

// A freezer of version 1 that is stuck is a matter of chance, and nothing else is.
func TestFreeze(t *testing.T) {
	stuck := errgrpc.ToGRPC(errors.New("OCI runtime pause failed: unable to freeze"))
	for name, tc := range map[string]struct {
		errs  []error
		tries int
		ok    bool
	}{
		"at once":     {errs: []error{nil}, tries: 1, ok: true},
		"at last":     {errs: []error{stuck, stuck, nil}, tries: 3, ok: true},
		"never":       {errs: []error{stuck, stuck, stuck, stuck, stuck, nil}, tries: 5},
		"not allowed": {errs: []error{errors.New("permission denied"), nil}, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &container{id: "c"}
			s, inner := newService(c)
			tries := 0
			inner.during = func() {
				inner.pause = tc.errs[tries]
				tries++
			}
			_, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"})
			if (err == nil) != tc.ok || tries != tc.tries || c.pausedAt.IsZero() == tc.ok {
				t.Errorf("error is %v after %d tries, paused at %v", err, tries, c.pausedAt)
			}
		})
	}
}

// runc, killed half-way, leaves the container in a state that nobody knows.
func TestPauseEndsWithNobody(t *testing.T) {
	c := &container{id: "c"}
	s, inner := newService(c)
	ctx, cancel := context.WithCancel(t.Context())
	inner.during = func() {
		cancel()
		c.interrupt(errors.New("killed"))
		if err := inner.ctx.Err(); err != nil {
			t.Errorf("runc's context: %v", err)
		}
		if _, bounded := inner.ctx.Deadline(); !bounded {
			t.Error("runc may take for ever")
		}
	}
	if _, err := s.Pause(ctx, &taskapi.PauseRequest{ID: "c"}); err != nil || c.pausedAt.IsZero() {
		t.Errorf("error is %v, paused at %v", err, c.pausedAt)
	}
}

func TestResumeFails(t *testing.T) {
	g := &gpus{}
	c := &container{id: "c", pid: 5, gpu: g, group: &groupFake{frozen: true}}
	s, inner := newService(c)
	c.paused, c.pausedAt = []gpuplugin.Process{{PID: 3}}, time.Now()
	inner.resume = errgrpc.ToGRPC(errors.New("runc"))
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err == nil || !contains(err, "runc") {
		t.Errorf("error is %v", err)
	}
	if len(g.undone) > 0 || len(c.paused) != 1 || c.pausedAt.IsZero() {
		t.Errorf("undone %v, paused %v since %v", g.undone, c.paused, c.pausedAt)
	}
}

// A checkpoint that a resume ended leaves the rest to that; one whose client is
// gone does not.
func TestWhoResumes(t *testing.T) {
	for why, resumed := range map[error]bool{errResuming: false, errAbandoned: true} {
		c := &container{id: "c", pid: 5, group: &groupFake{}, pausedAt: time.Now()}
		s, inner := newService(c)
		inner.asked = func() { c.interrupt(why) }
		inner.noTask = errors.New("interrupted")
		if _, err := s.Checkpoint(t.Context(), &taskapi.CheckpointTaskRequest{ID: "c"}); err == nil {
			t.Error("no error")
		}
		if slices.Contains(inner.calls, "resume") != resumed || c.resumed != resumed {
			t.Errorf("%v: calls %v, resumed %t", why, inner.calls, c.resumed)
		}
	}
}

// A pause is the client's own if nobody has asked for the state since: the
// client asks before it pauses, and does not pause what it finds paused.
func TestPausedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		asked bool
		after time.Duration
		want  bool
	}{
		"by the client":        {want: true},
		"by somebody before":   {asked: true},
		"by somebody long ago": {after: pausedForCheckpoint},
	} {
		t.Run(name, func(t *testing.T) {
			c := &container{id: "c"}
			s, _ := newService(c)
			state := func() {
				if _, err := s.State(t.Context(), &taskapi.StateRequest{ID: "c"}); err != nil {
					t.Fatal(err)
				}
			}
			state()
			if _, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"}); err != nil {
				t.Fatal(err)
			}
			if tc.asked {
				state()
			}
			if got := c.pausedFor(time.Now().Add(tc.after)); got != tc.want {
				t.Errorf("paused for the checkpoint: %t, want %t", got, tc.want)
			}
		})
	}
}

// containerd removes the directory of a client that has gone. The checkpoint may
// fail by that before anybody looks for it.
func TestResumesAfterDirectoryIsGone(t *testing.T) {
	dir := t.TempDir()
	c := &container{id: "c", pid: 5, group: &groupFake{}, pausedAt: time.Now()}
	s, inner := newService(c)
	inner.asked = func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
	inner.noTask = errors.New("no such directory")
	if _, err := s.Checkpoint(t.Context(), &taskapi.CheckpointTaskRequest{ID: "c", Path: dir}); err == nil {
		t.Error("no error")
	}
	if !slices.Contains(inner.calls, "resume") || !c.resumed {
		t.Errorf("calls %v, resumed %t", inner.calls, c.resumed)
	}
}

// The kubelet's containers are paused for checkpoints only. If none comes, or another
// one finds the container paused, its client has gone.
func TestPausedForNoCheckpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		sandbox   string
		unbounded bool
		// then happens after the pause, and resumed says what follows of it.
		then    func(ctx context.Context, s *service)
		resumed bool
	}{
		"nothing":       {sandbox: "pod", resumed: true},
		"by hand":       {sandbox: "pod", unbounded: true},
		"not in a pod":  {},
		"it is resumed": {sandbox: "pod", then: func(ctx context.Context, s *service) { _, _ = s.Resume(ctx, &taskapi.ResumeRequest{ID: "c"}) }, resumed: true},
		"it is deleted": {sandbox: "pod", then: func(ctx context.Context, s *service) { _, _ = s.Delete(ctx, &taskapi.DeleteRequest{ID: "c"}) }},
		"its checkpoint": {sandbox: "pod", then: func(ctx context.Context, s *service) {
			_, _ = s.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: "c"})
		}},
		"another's checkpoint":      {sandbox: "pod", then: others, resumed: true},
		"another's, paused by hand": {sandbox: "pod", unbounded: true, then: others},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &container{id: "c", pid: 5, group: &groupFake{}, sandbox: tc.sandbox}
				s, inner := newService(c)
				ctx, cancel := t.Context(), func() {}
				if !tc.unbounded {
					ctx, cancel = context.WithTimeout(ctx, time.Hour)
				}
				defer cancel()
				if _, err := s.Pause(ctx, &taskapi.PauseRequest{ID: "c"}); err != nil {
					t.Fatal(err)
				}
				if tc.then != nil {
					tc.then(ctx, s)
				}
				time.Sleep(2 * checkpointFollows) //nolint:forbidigo // the time of the test's bubble
				synctest.Wait()
				resumes := 0
				for _, call := range inner.calls {
					if call == "resume" {
						resumes++
					}
				}
				if want := map[bool]int{true: 1}[tc.resumed]; resumes != want {
					t.Errorf("resumed %d times, want %d: %v", resumes, want, inner.calls)
				}
			})
		})
	}
}

// others is a checkpoint whose client has asked for the state first.
func others(ctx context.Context, s *service) {
	_, _ = s.State(ctx, &taskapi.StateRequest{ID: "c"})
	_, _ = s.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: "c"})
}
