// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// pauseTimeout bounds the lock of the GPUs, within which all work that is
// under way on them has to end.
const pauseTimeout = time.Minute

const (
	// stockTimeout bounds runc's pause and resume. It waits ten seconds itself
	// for processes to stand still.
	stockTimeout = time.Minute
	// thawTimeout bounds the thaw of what a failed pause left frozen.
	thawTimeout = 10 * time.Second
)

// whole makes a context for a pause or a resume by runc that ends with nobody's
// patience: runc, killed half-way, leaves what its state does not tell.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), stockTimeout, fmt.Errorf("runc was not done within %s", stockTimeout))
}

// Pause stops the container's GPU work, then its processes.
func (s *service) Pause(ctx context.Context, r *taskapi.PauseRequest) (*emptypb.Empty, error) {
	c := s.container(r.ID)
	if c == nil {
		return s.TTRPCTaskService.Pause(ctx, r)
	}
	ctx, end, err := c.begin(ctx, opPause)
	if err != nil {
		return nil, status(err)
	}
	defer end()
	locked, err := s.lockGPUs(ctx, c)
	if err != nil {
		return nil, status(fmt.Errorf("pause %s: %w", r.ID, err))
	}
	wctx, cancel := whole(ctx)
	defer cancel()
	resp, err := s.freeze(wctx, r)
	if err != nil {
		if undo := locked.undo(context.WithoutCancel(ctx)); undo != nil {
			return nil, status(fmt.Errorf("pause %s: %w", r.ID, errors.Join(errgrpc.ToNative(err), undo)))
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused, c.pausedAt, c.resumed = locked.procs, time.Now(), false
	if _, bounded := ctx.Deadline(); bounded && c.sandbox != "" {
		s.awaitCheckpoint(ctx, c)
	}
	return resp, nil
}

const (
	// stuckFreezing is what runc says when a freezer of version 1 did not come to
	// an end: it tries for a fifth of a second, thaws, and calls that a game of
	// chances (opencontainers/cgroups v0.1.0, fs/freezer.go).
	stuckFreezing = "unable to freeze"
	freezeTries   = 5
)

// freeze has runc freeze the container, with more chances on a busy machine.
func (s *service) freeze(ctx context.Context, r *taskapi.PauseRequest) (resp *emptypb.Empty, err error) {
	for range freezeTries {
		resp, err = s.TTRPCTaskService.Pause(ctx, r)
		if err == nil || !strings.Contains(err.Error(), stuckFreezing) {
			break
		}
	}
	return resp, err
}

// awaitCheckpoint resumes the container if the checkpoint does not come for which
// it was paused. The caller holds c.mu.
func (s *service) awaitCheckpoint(ctx context.Context, c *container) {
	var timer *time.Timer
	timer = time.AfterFunc(checkpointFollows, func() {
		c.mu.Lock()
		due := c.awaited == timer
		c.mu.Unlock()
		if due {
			s.resumeAbandoned(ctx, c)
		}
	})
	c.awaited = timer
}

// checkpointFollows is how long a pod's container stays paused for a checkpoint that
// does not come. The kubelet's interface has no pause but the first half of a
// checkpoint; containerd asks for the other half at once, unless its client has
// gone, which is not told: as long as the GPUs had to be waited for, it could.
// A pause by hand has no deadline.
const checkpointFollows = 10 * time.Second

// stopAwaiting notes that something is done with the container. The caller holds
// c.mu.
func (c *container) stopAwaiting() {
	if c.awaited != nil {
		c.awaited.Stop()
		c.awaited = nil
	}
}

// leftPaused tells whether the container is paused for a checkpoint whose client
// has gone: somebody else has looked, and found it so.
func (c *container) leftPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaited != nil && c.pausedAt.IsZero()
}

// locked is what the first half of a pause did.
type locked struct {
	gpu   checkpoint.GPU
	procs []gpuplugin.Process
	// group is nil if the pause is not ours to undo: without a GPU, and for a
	// container that was paused before.
	group checkpoint.Freezer
}

// undo makes the container run again. The driver answers for a process only
// while it runs, so what runc left frozen is thawed first.
func (l *locked) undo(ctx context.Context) error {
	if l.group == nil {
		return nil
	}
	if frozen, err := l.group.Frozen(); err != nil || frozen {
		ctx, cancel := context.WithTimeoutCause(ctx, thawTimeout, fmt.Errorf("not thawed within %s", thawTimeout))
		defer cancel()
		if err := l.group.Thaw(ctx); err != nil {
			return fmt.Errorf("its processes are frozen still, and their GPU calls wait: %w", err)
		}
	}
	return l.gpu.Undo(ctx, l.procs)
}

// lockGPUs makes the container's GPUs idle.
func (s *service) lockGPUs(ctx context.Context, c *container) (*locked, error) {
	none := &locked{gpu: c.gpu}
	if c.gpu.Engine() == snapshot.EngineNone {
		return none, nil
	}
	timeout := pauseTimeout
	if c.timeout > 0 {
		timeout = min(timeout, c.timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("GPU work did not end within %s", timeout))
	defer cancel()
	if err := s.standing(ctx, c); err != nil {
		return nil, err
	}
	running, err := c.running()
	if err != nil {
		return nil, err
	}
	if frozen, err := running.Cgroup.Frozen(); err != nil || frozen {
		// The stock service says why a paused container can't be paused.
		return none, err
	}
	pids, err := running.Cgroup.PIDs()
	if err != nil {
		return nil, err
	}
	procs, err := c.gpu.Processes(ctx, pids)
	if err != nil {
		return nil, err
	}
	return &locked{c.gpu, procs, running.Cgroup}, c.gpu.Lock(ctx, procs)
}

// Resume undoes Pause. If a checkpoint is under way, whoever asked for it has
// given up: it is ended, and the container goes on.
func (s *service) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	c := s.container(r.ID)
	if c == nil {
		return s.TTRPCTaskService.Resume(ctx, r)
	}
	if c.busy() == opCheckpoint {
		if done := c.interrupt(errResuming); done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return nil, status(ctx.Err())
			}
		}
	}
	ctx, end, err := c.begin(ctx, opResume)
	if err != nil {
		return nil, status(err)
	}
	defer end()
	resp, err := s.resume(ctx, c, r)
	return resp, status(err)
}

func (s *service) resume(ctx context.Context, c *container, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	procs, done := c.paused, c.resumed
	c.resumed = false
	c.mu.Unlock()
	if done {
		// We did it when the client seemed to be gone. Here it is.
		return &emptypb.Empty{}, nil
	}
	wctx, cancel := whole(ctx)
	defer cancel()
	resp, err := s.TTRPCTaskService.Resume(wctx, r)
	// Processes run already if an earlier try failed at the GPUs. The driver
	// must not be asked about others.
	if err != nil && (len(procs) == 0 || c.frozen()) {
		return nil, errgrpc.ToNative(err)
	}
	if undo := c.gpu.Undo(context.WithoutCancel(ctx), procs); undo != nil {
		return nil, fmt.Errorf("resume %s: its processes run, and their GPU calls still wait; try again: %w", c.id, undo)
	}
	c.mu.Lock()
	c.paused, c.pausedAt = nil, time.Time{}
	c.mu.Unlock()
	return resp, errgrpc.ToNative(err)
}

// frozen tells whether the container's processes stand still, or may.
func (c *container) frozen() bool {
	running, err := c.running()
	if err != nil {
		return true
	}
	frozen, err := running.Cgroup.Frozen()
	return err != nil || frozen
}

// resumeAbandoned resumes a container whose client paused it for a checkpoint
// and went away. Its checkpoint is over by now.
func (s *service) resumeAbandoned(ctx context.Context, c *container) {
	ctx = context.WithoutCancel(ctx)
	ctx, end, err := c.begin(ctx, opResume)
	if err != nil {
		if !errdefs.IsFailedPrecondition(err) {
			log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Error("the container could not be resumed")
		}
		return // another operation is at it
	}
	defer end()
	if _, err := s.resume(ctx, c, &taskapi.ResumeRequest{ID: c.id}); err != nil {
		log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Error("the container could not be resumed")
		return
	}
	c.mu.Lock()
	c.resumed = true
	c.mu.Unlock()
	log.G(ctx).WithField(logfields.ID, c.id).Warn("the container was resumed: the client that had paused it for a checkpoint is gone")
}
