// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"fmt"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Exec adds a process to the container. Its client took the environment from the
// container as the client made it, so it is told here what the container's first
// process is told by the spec.
func (s *service) Exec(ctx context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	if c := s.container(r.ID); c != nil && c.injected != nil && r.Spec != nil {
		process, err := c.injected.environment.AddToProcess(r.Spec.Value)
		if err != nil {
			return nil, status(fmt.Errorf("exec %s in %s: %w: %w", r.ExecID, r.ID, err, errdefs.ErrInvalidArgument))
		}
		r.Spec = &anypb.Any{TypeUrl: r.Spec.TypeUrl, Value: process}
	}
	return s.TTRPCTaskService.Exec(ctx, r)
}
