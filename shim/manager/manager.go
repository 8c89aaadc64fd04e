// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package manager is the short-lived side of the shim: containerd runs the
// program to start a shim, to clean up after one, and to ask what it can do.
// All three are the stock runc shim's, with the options in either form, and for
// daemons that speak the old bootstrap protocol.
//
// It must not know of GPUs, and of checkpoints only what one that was cut short
// leaves.
package manager

import (
	"bytes"
	"context"
	"fmt"
	"io"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hetgpu/containerd-shim-hetgpu/shim/runcopts"
)

// Runtime is the name by which containerd knows this shim. The program's name
// follows from it.
const Runtime = "io.hetgpu.v2"

// mostOptions bounds what is read of the options.
const mostOptions = 10 << 20

type hetgpu struct {
	shim.Shim
}

var _ shim.Shim = (*hetgpu)(nil)

// New returns the shim's manager.
func New() shim.Shim { return &hetgpu{Shim: manager.NewShimManager(Runtime)} }

// Start starts the shim's server, or finds the one of the container's group.
func (h *hetgpu) Start(ctx context.Context, params *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	var generic runtimeoptions.Options
	found, err := params.FindExtension(&generic)
	if err != nil {
		return nil, fmt.Errorf("runtime options: %w", err)
	}
	if found {
		packed, err := anypb.New(&generic)
		if err != nil {
			return nil, err
		}
		opts, err := runcopts.Decode(packed)
		if err != nil {
			return nil, err
		}
		if err := params.AddExtension(opts); err != nil {
			return nil, err
		}
	}
	return h.Shim.Start(ctx, params)
}

// Info tells what the shim can do, with the options that r has.
func (h *hetgpu) Info(ctx context.Context, r io.Reader) (*types.RuntimeInfo, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostOptions))
	if err != nil {
		return nil, fmt.Errorf("read the runtime options: %w", err)
	}
	if len(data) > 0 {
		var packed anypb.Any
		if err := proto.Unmarshal(data, &packed); err != nil {
			return nil, fmt.Errorf("read the runtime options: %w", err)
		}
		opts, err := runcopts.Decode(&packed)
		if err != nil {
			return nil, err
		}
		runc, err := runcopts.Encode(opts)
		if err != nil {
			return nil, err
		}
		if data, err = proto.Marshal(runc); err != nil {
			return nil, err
		}
	}
	return h.Shim.Info(ctx, bytes.NewReader(data))
}
