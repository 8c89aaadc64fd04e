// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

const (
	// guardTimeout bounds the wait for the probes, which takes some milliseconds.
	guardTimeout = 5 * time.Second
	// aloneTimeout bounds it for a container that is restored with one GPU
	// process: that has nobody to share with, so it isn't worth more.
	aloneTimeout = 250 * time.Millisecond
)

// uprobesVersion is the first CRIU that dumps processes that have hit a probe.
var uprobesVersion = criu.Version{4, 2, 0}

// sharing asks the guard, and says what to do where it can't tell.
type sharing struct{ guard *ipcwatch.Guard }

// Check implements nvidia.Sharing.
func (s sharing) Check(ctx context.Context, procs []gpuplugin.Process) error {
	err := s.guard.Check(ctx, procs)
	if errors.Is(err, ipcwatch.ErrUnwatched) {
		err = fmt.Errorf("%w; if the container's programs use none, say so by the annotation %s=none", err, oci.AnnotationNVIDIAIPC)
	}
	return err
}

// beginGuard begins to count calls in the container's libraries. The first of
// the processes sees them at their places.
func (c *container) beginGuard(ctx context.Context, pids []int) {
	if c.guard != nil {
		c.guard.Attach(context.WithoutCancel(ctx), pids, c.libraryDirs...)
	}
}

// guardRestored begins to count calls in a container that runs already. Those
// to the driver wait until its GPU state is back.
func (c *container) guardRestored(ctx context.Context) {
	if c.guard == nil {
		return
	}
	running, err := c.running()
	if err != nil {
		return // it has ended
	}
	pids, err := running.Cgroup.PIDs()
	if err != nil {
		c.guard.Blind(fmt.Errorf("list the restored processes: %w", err))
		return
	}
	c.beginGuard(ctx, append([]int{running.Init}, pids...))
	timeout := guardTimeout
	if m := c.restore.Manifest(); m != nil && len(m.Processes) < 2 {
		timeout = aloneTimeout
	}
	c.waitGuardFor(ctx, timeout)
}

// waitGuard returns when the container's processes may run. That calls can't be
// counted keeps no container from it.
func (c *container) waitGuard(ctx context.Context) { c.waitGuardFor(ctx, guardTimeout) }

func (c *container) waitGuardFor(ctx context.Context, timeout time.Duration) {
	if c.guard == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("its probes were not set within %s", timeout))
	defer cancel()
	c.guard.Wait(ctx)
}

// endGuard takes the probes off, which takes longer than anybody should wait.
func (c *container) endGuard(ctx context.Context) {
	if c.guard == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		if err := c.guard.Close(); err != nil {
			log.G(ctx).WithError(err).WithField(logfields.ID, c.id).Warn("probes could not be taken off")
		}
	}()
}

// unprobed dumps processes, which stand still, as they would be without probes.
type unprobed struct {
	checkpoint.Runtime
	processes checkpoint.Freezer
	guard     *ipcwatch.Guard // may be nil
}

// Checkpoint implements checkpoint.Runtime.
func (u unprobed) Checkpoint(ctx context.Context, d runc.Dump) error {
	pids, err := u.processes.PIDs()
	if err != nil {
		return err
	}
	undo, err := ipcwatch.Clean(pids)
	if err != nil {
		return err
	}
	err = u.Runtime.Checkpoint(ctx, d)
	if undoErr := undo(); undoErr != nil {
		log.G(ctx).WithError(undoErr).Warn("legacy CUDA IPC can't be watched any more")
		if u.guard != nil {
			u.guard.Blind(undoErr)
		}
	}
	return err
}

// libraryDirs are the directories of a container that may have libcuda besides
// the usual ones: what is mounted into it, and what its loader is told of. Mounts
// that are libcuda are among them as they are.
func libraryDirs(spec *oci.Spec) []string {
	var dirs []string
	add := func(dir string) {
		if dir = filepath.Clean(dir); filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, m := range spec.Mounts {
		switch {
		case m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind"):
		case strings.HasPrefix(filepath.Base(m.Destination), "libcuda.so"):
			add(m.Destination)
			add(filepath.Dir(m.Destination))
		default:
			add(m.Destination)
		}
	}
	for _, env := range spec.Process.Env {
		if list, ok := strings.CutPrefix(env, "LD_LIBRARY_PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				add(dir)
			}
		}
	}
	return dirs
}
