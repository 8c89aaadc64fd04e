// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// beforehandBytes of memory images are verified before CRIU starts: at some
// gigabytes a second that can't be felt. More are verified while CRIU, which
// reads one after the other what we read side by side, works on them.
const beforehandBytes = 1 << 30

// Restore is a restore under way.
type Restore struct {
	snap    *snapshot.Snapshot // nil for a snapshot of the stock shim
	devices gpuplugin.DeviceMap

	// images is the verification that goes on beside CRIU, nil if there is
	// none: its context ends with the reason when it fails or is abandoned.
	images  context.Context
	abandon context.CancelCauseFunc
	done    chan struct{}
}

// Open proves that the snapshot in dir is whole and that this host can take it,
// before anything starts. A snapshot with GPU state needs a container with
// GPUs; one without a manifest, which the stock shim made, has none, or its GPU
// state is lost, so it is refused for a container with GPUs.
//
// Large memory images are still being verified when Open returns: the caller
// runs CRIU under [Restore.Context] and then calls [Restore.Finish] or, on
// failure, [Restore.Close].
func Open(ctx context.Context, dir string, gpu GPU, minors []int) (*Restore, error) {
	snap, err := snapshot.Open(dir)
	if errors.Is(err, snapshot.ErrNoManifest) && gpu.Engine() == snapshot.EngineNone {
		return &Restore{}, nil
	}
	if errors.Is(err, snapshot.ErrNoManifest) {
		return nil, fmt.Errorf("%w: it was made without GPU state, and the container has a GPU; "+
			"if its programs really used none, say so by the annotation io.hetgpu.engine=none", err)
	}
	if err != nil {
		return nil, err
	}
	r := &Restore{snap: snap}
	if r.devices, err = match(ctx, snap.Manifest, gpu, minors); err != nil {
		return nil, err
	}
	if err := r.verify(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// match tells whether this host and the container's devices can take m.
func match(ctx context.Context, m *snapshot.Manifest, gpu GPU, minors []int) (gpuplugin.DeviceMap, error) {
	if m.Host.Arch != runtime.GOARCH {
		return nil, fmt.Errorf("%w: it was made on %s, and this is %s", ErrArchitecture, m.Host.Arch, runtime.GOARCH)
	}
	switch m.Engine {
	case snapshot.EngineNone:
		return nil, nil
	case gpu.Engine():
		saved := gpuplugin.Inventory{Driver: m.Host.Driver, API: m.Host.API, Devices: m.Devices}
		return gpu.Match(ctx, saved, minors)
	}
	return nil, fmt.Errorf("%w: the snapshot has the GPU state of %d processes (engine %q), and the container's engine is %q: give it the GPUs that the saved one had",
		gpuplugin.ErrIncompatible, len(m.Processes), m.Engine, gpu.Engine())
}

// verify checks the digests: all of them now, but for large memory images.
func (r *Restore) verify(ctx context.Context) error {
	var pages int64
	for _, f := range r.snap.Manifest.Files {
		if snapshot.IsPages(f) {
			pages += f.Size
		}
	}
	if pages <= beforehandBytes {
		return r.snap.Verify(ctx, nil)
	}
	if err := r.snap.Verify(ctx, snapshot.IsMetadata); err != nil {
		return err
	}
	// It outlives the request that began it: containerd's Start follows.
	r.images, r.abandon = context.WithCancelCause(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		if err := r.snap.Verify(r.images, snapshot.IsPages); err != nil {
			r.abandon(err)
		}
	}()
	return nil
}

// Manifest returns the snapshot's manifest, nil if it has none.
func (r *Restore) Manifest() *snapshot.Manifest {
	if r.snap == nil {
		return nil
	}
	return r.snap.Manifest
}

// Context returns a context that ends with ctx, and at once when a memory image
// turns out to be damaged: nothing must come out of it then.
func (r *Restore) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if r.images != nil {
		context.AfterFunc(r.images, func() { cancel(context.Cause(r.images)) })
	}
	return ctx, func() { cancel(context.Canceled) }
}

// Close abandons the restore. It is harmless after Finish.
func (r *Restore) Close() {
	if r.images != nil {
		r.abandon(errors.New("the restore was abandoned"))
	}
}

// HasGPU tells whether the snapshot has GPU state, so that [Restore.Finish] has
// something to do.
func (r *Restore) HasGPU() bool {
	return r.snap != nil && r.snap.Manifest.Engine != snapshot.EngineNone
}

// Verified waits until all images have proved to be whole. On error the
// container must be ended: what came out of them is not what was saved.
func (r *Restore) Verified(ctx context.Context) error {
	if r.images == nil {
		return nil
	}
	var p phases
	return p.run(ctx, PhaseVerify, r.wait)
}

// Finish puts the GPU state back into the processes that CRIU restored. On
// error the container must be ended: it is never left running without its GPU
// state, or from images that are damaged.
func (r *Restore) Finish(ctx context.Context, c *Container) error {
	ctx, cancel := c.timeout(ctx)
	defer cancel()
	if err := r.Verified(ctx); err != nil || !r.HasGPU() {
		return err
	}
	var p phases
	procs, err := r.processes(ctx, c)
	if err != nil {
		return fmt.Errorf("%s: %w", PhaseResume, err)
	}
	return p.run(ctx, PhaseResume, func(ctx context.Context) error { return c.GPU.Resume(ctx, procs, r.devices) })
}

func (r *Restore) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.imagesErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// imagesErr is why the memory images can't be used, nil if they can.
func (r *Restore) imagesErr() error { return context.Cause(r.images) }

// processes finds the snapshot's processes among the restored ones, and checks
// that the driver knows exactly these, each with its GPU state in its memory.
func (r *Restore) processes(ctx context.Context, c *Container) ([]gpuplugin.Process, error) {
	pids, err := c.Cgroup.PIDs()
	if err != nil {
		return nil, err
	}
	procs, err := c.procfs().find(r.snap.Manifest.Processes, pids)
	if err != nil {
		return nil, err
	}
	known, err := c.GPU.Processes(ctx, pids)
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		i := slices.IndexFunc(known, func(k gpuplugin.Process) bool { return k.PID == p.PID })
		switch {
		case i < 0:
			return nil, fmt.Errorf("%w: process %d held GPU state, and the driver knows of none now", ErrProcesses, p.PID)
		case known[i].State != gpuplugin.StateCheckpointed:
			return nil, fmt.Errorf("%w: process %d is %s for the driver, want %s", ErrProcesses, p.PID, known[i].State, gpuplugin.StateCheckpointed)
		}
	}
	if len(known) != len(procs) {
		return nil, fmt.Errorf("%w: the driver knows of %d with GPU state, and the snapshot has %d", ErrProcesses, len(known), len(procs))
	}
	return procs, nil
}
