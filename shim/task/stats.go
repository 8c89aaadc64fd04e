// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"fmt"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
)

// Stats returns the container's metrics. The stock service looks a container's
// cgroup up when it is created, which for a restored one is too early: it has no
// process then (containerd 2.4, runc.NewContainer).
func (s *service) Stats(ctx context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	c := s.container(r.ID)
	if c == nil || c.restore == nil {
		return s.TTRPCTaskService.Stats(ctx, r)
	}
	c.mu.Lock()
	pid := c.pid
	c.mu.Unlock()
	stats, err := metrics(pid)
	if err != nil {
		return nil, status(fmt.Errorf("metrics of %s: %w: %w", r.ID, err, errdefs.ErrNotFound))
	}
	data, err := typeurl.MarshalAnyToProto(stats)
	if err != nil {
		return nil, err
	}
	return &taskapi.StatsResponse{Stats: data}, nil
}

// metrics reads the metrics of a process's cgroup, in the form of its version.
func metrics(pid int) (any, error) {
	if cgroups.Mode() != cgroups.Unified {
		group, err := cgroup1.Load(cgroup1.PidPath(pid))
		if err != nil {
			return nil, err
		}
		return group.Stat(cgroup1.IgnoreNotExist)
	}
	path, err := cgroup2.PidGroupPath(pid)
	if err != nil {
		return nil, err
	}
	group, err := cgroup2.Load(path)
	if err != nil {
		return nil, err
	}
	return group.Stat()
}
