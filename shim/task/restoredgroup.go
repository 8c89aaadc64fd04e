// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	eventtypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/oom"
	oomv1 "github.com/containerd/containerd/v2/pkg/oom/v1"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// The stock service looks a container's cgroup up when it is created. For a
// restored one that is too early: it has no process then (containerd 2.4,
// runc.NewContainer), and so no metrics and no out-of-memory events. Both are
// done here for restored containers.

// Stats returns the container's metrics.
func (s *service) Stats(ctx context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	c := s.container(r.ID)
	if c == nil || c.restore == nil {
		return s.TTRPCTaskService.Stats(ctx, r)
	}
	if err := isStanding(s.State(ctx, &taskapi.StateRequest{ID: r.ID})); err != nil {
		return nil, status(fmt.Errorf("metrics of %s: %w", r.ID, err))
	}
	running, err := c.running()
	if err != nil {
		return nil, status(fmt.Errorf("metrics of %s: %w", r.ID, err))
	}
	group, err := c.metrics(running.Init)
	if err != nil {
		return nil, status(fmt.Errorf("metrics of %s: %w: %w", r.ID, err, errdefs.ErrNotFound))
	}
	stats, err := group.stats()
	if err != nil {
		return nil, status(fmt.Errorf("metrics of %s: %w", r.ID, err))
	}
	data, err := typeurl.MarshalAnyToProto(stats)
	if err != nil {
		return nil, err
	}
	return &taskapi.StatsResponse{Stats: data}, nil
}

// group is a container's cgroup, of the one version or the other.
type group struct {
	v1 cgroup1.Cgroup
	v2 *cgroup2.Manager
}

// metrics finds the container's cgroup: its own, wherever its first process is
// by now; with version 1, which has a hierarchy for each kind, that process's.
func (c *container) metrics(pid int) (g group, err error) {
	if cgroups.Mode() != cgroups.Unified {
		g.v1, err = cgroup1.Load(cgroup1.PidPath(pid))
		return g, err
	}
	c.mu.Lock()
	own := c.group
	c.mu.Unlock()
	if own == nil {
		return g, errdefs.ErrNotFound
	}
	g.v2, err = cgroup2.Load("/" + strings.Trim(strings.TrimPrefix(own.Path(), cgroup.Root), "/"))
	return g, err
}

func (g group) stats() (any, error) {
	if g.v1 != nil {
		return g.v1.Stat(cgroup1.IgnoreNotExist)
	}
	return g.v2.Stat()
}

// watchOOM makes the container's out-of-memory events known, as far as that is
// possible: its processes may have ended already.
func (s *service) watchOOM(ctx context.Context, c *container, pid int) {
	w, err := s.oom()
	if err == nil {
		err = w.add(c, pid)
	}
	if err != nil {
		log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Warn("out-of-memory events are not watched")
	}
}

// oomWatch publishes the out-of-memory events of restored containers.
type oomWatch struct {
	// ctx is the shim's own: the watch outlives requests.
	ctx       context.Context
	publisher shim.Publisher
	v1        oom.Watcher // nil on the unified hierarchy
}

func newOOMWatch(ctx context.Context, publisher shim.Publisher) (*oomWatch, error) {
	w := &oomWatch{ctx: ctx, publisher: publisher}
	if cgroups.Mode() == cgroups.Unified {
		return w, nil
	}
	var err error
	if w.v1, err = oomv1.New(publisher); err != nil {
		return nil, err
	}
	go w.v1.Run(ctx)
	return w, nil
}

// add watches a container until its cgroup is gone.
func (w *oomWatch) add(c *container, pid int) error {
	g, err := c.metrics(pid)
	if err != nil {
		return err
	}
	if g.v1 != nil {
		return w.v1.Add(c.id, g.v1)
	}
	events, errs := g.v2.EventChan()
	go w.forward(c.id, events, errs)
	return nil
}

func (w *oomWatch) forward(id string, events <-chan cgroup2.Event, errs <-chan error) {
	ctx := w.ctx
	var seen uint64
	for {
		select {
		case e := <-events:
			if e.OOMKill <= seen {
				continue
			}
			seen = e.OOMKill
			if err := w.publisher.Publish(ctx, runtime.TaskOOMEventTopic, &eventtypes.TaskOOM{ContainerID: id}); err != nil {
				log.G(ctx).WithError(err).WithField(logfields.ID, id).Error("publish the out-of-memory event")
			}
		case err := <-errs:
			// Closed when the cgroup is gone.
			if err != nil {
				log.G(ctx).WithError(err).WithField(logfields.ID, id).Warn("out-of-memory events are not watched any more")
			}
			return
		}
	}
}
