// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package task is the long-lived side of the shim: containerd's stock runc task
// service, wrapped where GPUs, checkpoints and restores make a difference.
// Errors become gRPC status here and nowhere else.
//
// Lock order: service.mu, then container.mu. Both guard memory only; none is
// held across runc, CRIU, a GPU call or a call of the stock service, whose own
// locks are.
package task

import (
	"context"
	"fmt"
	"sync"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	stock "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
)

// service wraps the stock task service. What it does not override is the stock
// service's.
type service struct {
	taskapi.TTRPCTaskService

	config config.Config
	// configErr is why the configuration could not be read; tasks run without
	// it, checkpoints do not.
	configErr error
	helper    *nvidia.Helper
	// mover is a helper of its own: what it holds is lost with it, and the other
	// is killed when the driver hangs.
	mover *nvidia.Helper
	// oom returns the watch of restored containers, made when it is first
	// needed.
	oom func() (*oomWatch, error)

	mu         sync.Mutex
	containers map[string]*container // by id; guarded by mu
}

var _ shim.TTRPCService = (*service)(nil)

// New returns the shim's task service.
func New(ctx context.Context, publisher shim.Publisher, sd shutdown.Service) (shim.TTRPCService, error) {
	inner, err := stock.NewTaskService(ctx, publisher, sd)
	if err != nil {
		return nil, err
	}
	s := &service{TTRPCTaskService: inner, containers: make(map[string]*container)}
	s.config, s.configErr = config.Load()
	s.helper = nvidia.NewHelper(nvidia.HelperConfig{Binary: s.config.Helper})
	s.mover = nvidia.NewHelper(nvidia.HelperConfig{Binary: s.config.Helper, KeyFile: s.config.Encryption.KeyFile})
	s.oom = sync.OnceValues(func() (*oomWatch, error) { return newOOMWatch(ctx, publisher) })
	return s, nil
}

// RegisterTTRPC implements shim.TTRPCService.
func (s *service) RegisterTTRPC(server *ttrpc.Server) error {
	taskapi.RegisterTTRPCTaskService(server, s)
	return nil
}

// container returns what is known of a container; nil for one that it does not
// know, of which the stock service says so.
func (s *service) container(id string) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

// Create creates a container; from a checkpoint, it proves first that it can be
// restored here.
func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	c, err := s.newContainer(ctx, r)
	if err != nil {
		removeTemporary(ctx, r.Checkpoint)
		return nil, status(fmt.Errorf("create %s: %w", r.ID, err))
	}
	resp, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil {
		c.abandon(ctx)
		return nil, err
	}
	c.setPID(int(resp.Pid))
	if c.restore == nil {
		c.beginGuard(ctx, []int{int(resp.Pid)})
	}
	s.mu.Lock()
	s.containers[r.ID] = c
	s.mu.Unlock()
	return resp, nil
}

// Start starts a process. For a container that is created from a checkpoint it
// returns when all of it is back, GPU state included, or nothing is.
func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	c := s.container(r.ID)
	switch {
	case c == nil:
		return s.TTRPCTaskService.Start(ctx, r)
	case r.ExecID != "":
		end, err := c.beginExec()
		if err != nil {
			return nil, status(err)
		}
		defer end()
		return s.TTRPCTaskService.Start(ctx, r)
	case c.restore != nil:
		resp, err := s.startRestored(ctx, c, r)
		return resp, status(err)
	}
	c.waitGuard(ctx)
	resp, err := s.TTRPCTaskService.Start(ctx, r)
	if err == nil {
		c.setPID(int(resp.Pid))
	}
	return resp, err
}

// State answers from our own record while an operation makes the stock service
// hold its lock across a call of runc.
func (s *service) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	if c := s.container(r.ID); c != nil && r.ExecID == "" {
		if state := c.stateDuring(); state != nil {
			return state, nil
		}
		c.asked()
	}
	return s.TTRPCTaskService.State(ctx, r)
}

// Kill passes the signal on. A deadly one ends the operation that is under way:
// what it stopped could not die otherwise, and nobody wants its result.
func (s *service) Kill(ctx context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	const sigkill = 9
	if c := s.container(r.ID); c != nil && r.ExecID == "" && r.Signal == sigkill {
		if done := c.interrupt(checkpoint.ErrEnding); done != nil {
			// The rollback thaws what was frozen; wait for it within reason.
			select {
			case <-done:
			case <-time.After(killGrace):
			case <-ctx.Done():
			}
		}
	}
	return s.TTRPCTaskService.Kill(ctx, r)
}

// killGrace is how long a kill waits for the operation that it ended.
const killGrace = 10 * time.Second

// Delete deletes a process or the container.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	resp, err := s.TTRPCTaskService.Delete(ctx, r)
	if err != nil || r.ExecID != "" {
		return resp, err
	}
	s.mu.Lock()
	c := s.containers[r.ID]
	delete(s.containers, r.ID)
	s.mu.Unlock()
	if c != nil {
		c.abandon(ctx)
		c.endGuard(ctx)
	}
	return resp, nil
}
