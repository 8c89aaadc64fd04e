// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/layout"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/record"
)

// unpackedName is where a snapshot is before it is packed.
const unpackedName = "snapshot.tmp"

// pack makes the OCI layout of a snapshot.
func pack(ctx context.Context, client *containerd.Client, dir string, kept *record.Container, opts Options) (name, digest string, err error) {
	name = opts.Name
	if name == "" {
		name = "containerd.io/checkpoint/" + opts.ID + ":" + time.Now().UTC().Format("20060102-150405")
	}
	if to := opts.Progress; to.To != nil {
		start(to, "pack")
	}
	desc, err := layout.Write(ctx, opts.Layout, layout.Checkpoint{
		Name: name, Snapshot: dir, Container: kept, Exit: opts.Shim.Exit, TCPEstablished: opts.Shim.TCPEstablished, NoRW: opts.NoRW,
	}, client.ContentStore())
	return name, desc.Digest.String(), err
}
