// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	hetoci "github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// ncclSteps is how many steps a training on several GPUs has, and ncclStops
	// how often it is saved on the way, ncclApart steps apart, before it is ended.
	ncclSteps, ncclStops, ncclApart = 200, 3, 15
	ncclRanks                       = 2
	// ncclShm is for NCCL's buffers, in KiB; a container has 64 MiB by itself.
	ncclShm = 1 << 20
)

// noMulticast keeps programs from NVLink's multicast, whose memory can't be exported
// (docs/engines.md), and which a machine with several GPUs may share with others.
var noMulticast = []string{"NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"}

// ncclEnv is what every training with NCCL is told.
var ncclEnv = []string{
	// Nor can memory of the host that the driver's VMM made; NCCL 2.24 and newer
	// takes files in /dev/shm instead.
	"NCCL_CUMEM_HOST_ENABLE=0",
	// What a container has of networks. RAS would be one more service on it.
	"NCCL_IB_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_RAS_ENABLE=0",
	// PyTorch's own watch over ranks that stand still.
	"TORCH_NCCL_ENABLE_MONITORING=0",
}

// nccl trains on two GPUs without an interruption; and once more, saved several
// times on the way, then ended and restored. Every loss has to be the same.
func nccl(env ...string) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		if n := len(t.gpu.Devices); n < ncclRanks {
			return "", skipError(fmt.Sprintf("this machine has %d GPU(s), and it takes %d", n, ncclRanks))
		}
		p, err := findPython(ctx)
		if err != nil {
			return "", err
		}
		args := []string{p.Executable, "/gpu/ddp.py", strconv.Itoa(ncclSteps)}
		switch {
		case t.gpu.machine != nil:
			args = append(args, "plain")
		case !p.Torch:
			return "", skipError("python3 has no torch")
		}
		want, err := t.uninterrupted(ctx, p, args, env)
		if err != nil {
			return "", fmt.Errorf("uninterrupted: %w", err)
		}
		t.note("%d ranks", ncclRanks)
		got, err := t.interrupted(ctx, p, args, env, want)
		if err != nil {
			return "", err
		}
		return sameSteps(got, want)
	}
}

// newRanks makes a container for a training on all GPUs that it takes.
func (t *test) newRanks(ctx context.Context, p *python, args, env []string) (*rig.Container, error) {
	opts, err := t.container(0, 1)
	if err != nil {
		return nil, err
	}
	mounts, err := p.mounts(t.scratch)
	if err != nil {
		return nil, err
	}
	netns := filepath.Join(t.work, t.id("netns"))
	remove, err := testbed.NewNetwork(netns)
	if err != nil {
		return nil, err
	}
	t.cleanup(func(context.Context) error { return remove() })
	opts = append(opts,
		oci.WithAnnotations(t.annotations()),
		// NCCL's connections have both ends in the container.
		oci.WithAnnotations(map[string]string{hetoci.AnnotationTCP: "established"}),
		oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netns}),
		oci.WithMounts(mounts), oci.WithDevShmSize(ncclShm),
		oci.WithEnv(slices.Concat([]string{"HOME=/scratch", "TMPDIR=/scratch", "PYTHONDONTWRITEBYTECODE=1"}, p.env, noMulticast, ncclEnv, env)))
	c, err := rig.New(ctx, t.d, rig.Spec{ID: t.id("ranks"), Runtime: runtimeName, Image: t.image, Args: args, Opts: opts})
	if err == nil {
		t.cleanup(c.Remove)
	}
	return c, err
}

func (t *test) startRanks(ctx context.Context, p *python, args, env []string) (*rig.Container, error) {
	c, err := t.newRanks(ctx, p, args, env)
	if err != nil {
		return nil, err
	}
	return c, errors.Join(c.NewTask(ctx, ""), c.Start(ctx))
}

func (t *test) uninterrupted(ctx context.Context, p *python, args, env []string) ([]string, error) {
	c, err := t.startRanks(ctx, p, args, env)
	if err != nil {
		return nil, err
	}
	if err := waitForLine(ctx, c, "done"); err != nil {
		return nil, err
	}
	return c.Out.Lines(), c.Kill(ctx) // the GPUs are needed
}

// interrupted trains, saves the training on the way, ends it and restores it. It
// compares what was printed up to its end with the lines that it should have, so
// that this is known also if the restore fails.
func (t *test) interrupted(ctx context.Context, p *python, args, env, want []string) (lines []string, err error) {
	c, err := t.startRanks(ctx, p, args, env)
	if err != nil {
		return nil, err
	}
	for stop := 1; ; stop++ {
		if err := waitForLine(ctx, c, fmt.Sprintf("step %d ", stop*ncclApart)); err != nil {
			return nil, err
		}
		last := stop > ncclStops
		dir := t.directory(fmt.Sprintf("ranks%d", stop))
		saved, err := c.Checkpoint(ctx, dir, last)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d: %w", stop, err)
		}
		m, err := snapshot.ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		t.note("checkpoint %d: %s (%s)", stop, seconds(saved.Total()),
			phaseList([]Sample{{CheckpointPhases: m.Phases}}, func(s Sample) phases { return s.CheckpointPhases }))
		if t.gpu.machine == nil { // or it is no program with a GPU
			if err := t.inspect(ctx, dir, ncclRanks); err != nil {
				return nil, err
			}
		}
		if !last {
			continue
		}
		if _, err := c.WaitExit(ctx); err != nil {
			return nil, err
		}
		lines = c.Out.Lines()
		if _, err := sameSteps(lines, want[:min(len(lines), len(want))]); err != nil {
			return nil, fmt.Errorf("before the restore: %w", err)
		}
		t.note("%d steps with %d checkpoints that left it running and one that ended it are equal to the last bit", len(lines), ncclStops)
		rest, err := t.newRanks(ctx, p, args, env)
		if err != nil {
			return nil, err
		}
		took, err := rest.Restore(ctx, dir)
		if err != nil {
			return nil, err
		}
		t.note("restore %s", seconds(took.Create+took.Start))
		if err := waitForLine(ctx, rest, "done"); err != nil {
			return nil, fmt.Errorf("after the restore: %w", err)
		}
		return slices.Concat(lines, rest.Out.Lines()), nil
	}
}
