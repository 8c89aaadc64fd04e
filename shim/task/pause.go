// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// pauseTimeout bounds the lock of the GPUs, within which all work that is
// under way on them has to end.
const pauseTimeout = time.Minute

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
	procs, err := s.lockGPUs(ctx, c)
	if err != nil {
		return nil, status(fmt.Errorf("pause %s: %w", r.ID, err))
	}
	resp, err := s.TTRPCTaskService.Pause(ctx, r)
	if err != nil {
		if undo := c.gpu.Undo(context.WithoutCancel(ctx), procs); undo != nil {
			return nil, status(fmt.Errorf("pause %s: %w", r.ID, errors.Join(err, undo)))
		}
		return nil, err
	}
	c.mu.Lock()
	c.paused, c.pausedAt, c.resumed = procs, time.Now(), false
	c.mu.Unlock()
	return resp, nil
}

// lockGPUs makes the container's GPUs idle.
func (s *service) lockGPUs(ctx context.Context, c *container) ([]gpuplugin.Process, error) {
	if c.gpu.Engine() == snapshot.EngineNone {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pauseTimeout, fmt.Errorf("GPU work did not end within %s", pauseTimeout))
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
		return nil, err
	}
	pids, err := running.Cgroup.PIDs()
	if err != nil {
		return nil, err
	}
	procs, err := c.gpu.Processes(ctx, pids)
	if err != nil {
		return nil, err
	}
	return procs, c.gpu.Lock(ctx, procs)
}

// Resume undoes Pause. If a checkpoint is under way, whoever asked for it has
// given up: it is ended, and the container goes on.
func (s *service) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	c := s.container(r.ID)
	if c == nil {
		return s.TTRPCTaskService.Resume(ctx, r)
	}
	if c.busy() == opCheckpoint {
		if done := c.interrupt(fmt.Errorf("the container is being resumed: %w", errAbandoned)); done != nil {
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
	resp, err := s.TTRPCTaskService.Resume(ctx, r)
	if err != nil && len(procs) == 0 {
		return nil, err
	}
	// Processes run already if an earlier try failed at the GPUs.
	if undo := c.gpu.Undo(context.WithoutCancel(ctx), procs); undo != nil {
		return nil, fmt.Errorf("resume %s: its processes run, and their GPU calls still wait; try again: %w", c.id, undo)
	}
	c.mu.Lock()
	c.paused, c.pausedAt = nil, time.Time{}
	c.mu.Unlock()
	return resp, err
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
