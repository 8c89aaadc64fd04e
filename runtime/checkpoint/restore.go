// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// beforehandBytes of memory images are verified before CRIU starts: at some
	// gigabytes a second that can't be felt. More are verified while CRIU, which
	// reads one after the other what we read side by side, works on them.
	beforehandBytes = 1 << 30
	// beforehandGPUBytes are so many where there is GPU state, whose calls wait
	// until all is verified: the 0.5 GB of a process with its GPU's control state
	// took 0.2 s of a restore of 1.0 s (docs/results/2026-11-22-h200-split).
	beforehandGPUBytes = 64 << 20
)

// Target is the container into which a snapshot is restored, before it is there.
type Target struct {
	GPU GPU
	// Minors are the numbers of the GPUs' device nodes that it can see.
	Minors []int
	// Library is what it has in front of the driver's library, nil for nothing.
	Library *snapshot.Library
	// KeyFile has the key of device memory in files; "" for none.
	KeyFile string
}

// Restore is a restore under way.
type Restore struct {
	snap    *snapshot.Snapshot // nil for a snapshot of the stock shim
	target  Target
	devices gpuplugin.DeviceMap
	// holds says that device memory may be held for the processes.
	holds bool

	// beside is what goes on beside CRIU, nil if there is nothing: its context
	// ends with the reason when it fails or is abandoned.
	beside  context.Context
	abandon context.CancelCauseFunc
	done    chan struct{}
}

// Open proves that the snapshot in dir is whole and that this host can take it,
// before anything starts. A snapshot with GPU state needs a container with
// GPUs; one without a manifest, which the stock shim made, has none, or its GPU
// state is lost, so it is refused for a container with GPUs.
//
// Large memory images are still being verified when Open returns, and device
// memory is being loaded: the caller runs CRIU under [Restore.Context] and then
// calls [Restore.Finish]; and in any case [Restore.Close].
func Open(ctx context.Context, dir string, t Target) (*Restore, error) {
	snap, err := snapshot.Open(dir)
	if errors.Is(err, snapshot.ErrNoManifest) && t.GPU.Engine() == snapshot.EngineNone {
		return &Restore{target: t}, nil
	}
	if errors.Is(err, snapshot.ErrNoManifest) {
		return nil, fmt.Errorf("%w: it was made without GPU state, and the container has a GPU; "+
			"if its programs really used none, say so by the annotation io.hetgpu.engine=none", err)
	}
	if err != nil {
		return nil, err
	}
	r := &Restore{snap: snap, target: t}
	err = t.fits(ctx, snap.Manifest)
	if err == nil {
		err = t.unlock(snap)
	}
	if err == nil {
		err = r.match(ctx)
	}
	if err == nil {
		err = r.verify(ctx)
	}
	if err != nil {
		r.Close(ctx)
		return nil, err
	}
	return r, nil
}

// fits tells whether this host and the container's engine can take m.
func (t Target) fits(ctx context.Context, m *snapshot.Manifest) error {
	if m.Host.Arch != runtime.GOARCH {
		return fmt.Errorf("%w: it was made on %s, and this is %s", ErrArchitecture, m.Host.Arch, runtime.GOARCH)
	}
	if err := t.matchLibrary(m.Library); err != nil {
		return err
	}
	switch {
	case m.Engine == snapshot.EngineNone:
		return nil
	case m.Engine == t.GPU.Engine(), m.Engine == snapshot.EngineDriver && m.Memory == nil && t.GPU.Engine() == snapshot.EngineSplit:
		if m.Memory != nil && m.Kept() == nil {
			return streamer(t.GPU).Loads(ctx)
		}
		return nil
	}
	return fmt.Errorf("%w: the snapshot has the GPU state of %d processes (engine %q), and the container's engine is %q: give it the GPUs that the saved one had, and the same engine",
		gpuplugin.ErrIncompatible, len(m.Processes), m.Engine, t.GPU.Engine())
}

// match finds devices for those of the snapshot.
func (r *Restore) match(ctx context.Context) (err error) {
	m := r.snap.Manifest
	if m.Engine == snapshot.EngineNone {
		return nil
	}
	saved := gpuplugin.Inventory{Driver: m.Host.Driver, API: m.Host.API, Devices: m.Devices}
	if kept := m.Kept(); kept != nil {
		there, err := r.fetch(ctx, kept)
		if err != nil {
			return fmt.Errorf("%s: %w", PhaseLoad, err)
		}
		saved.Devices = without(saved.Devices, there)
	}
	if r.devices, err = r.target.GPU.Match(ctx, saved, r.target.Minors); err != nil {
		return err
	}
	if from, to, moves := r.moves(); moves && m.Kept() != nil {
		return fmt.Errorf("%w: its device memory was left on %s, and the container has %s instead: give it the GPUs that the saved one had, or write the memory to files first (hetgpu drain %s)",
			gpuplugin.ErrIncompatible, from, to, r.snap.Dir)
	}
	return nil
}

// moves tells whether a device has another's place, and one for which that is so.
func (r *Restore) moves() (from, to string, moves bool) {
	for _, from := range slices.Sorted(maps.Keys(r.devices)) {
		if to := r.devices[from]; from != to {
			return from, to, true
		}
	}
	return "", "", false
}

// fetch takes back what was left on the devices.
func (r *Restore) fetch(ctx context.Context, kept *snapshot.Keeper) (map[string]uint64, error) {
	k, err := keeper(r.target.GPU)
	if err != nil {
		return nil, err
	}
	r.holds = true
	return k.Fetch(ctx, gpuplugin.Kept{Boot: kept.BootID, Keeper: kept.ID, Digest: kept.Digest, Bytes: r.snap.Manifest.Memory.KeptBytes}, r.unplaced())
}

// without are devices of which less is needed: what is there already.
func without(devices []gpuplugin.Device, there map[string]uint64) []gpuplugin.Device {
	devices = slices.Clone(devices)
	for i, d := range devices {
		devices[i].UsedBytes -= min(d.UsedBytes, there[d.UUID])
	}
	return devices
}

// unplaced are the snapshot's processes, which are not there yet.
func (r *Restore) unplaced() []gpuplugin.Process {
	var procs []gpuplugin.Process
	for _, p := range r.snap.Manifest.Processes {
		procs = append(procs, unplaced(p))
	}
	return procs
}

// matchLibrary refuses what CRIU would refuse later, in other words: the
// processes have the library's code in their memory, and its file mapped.
func (t Target) matchLibrary(saved *snapshot.Library) error {
	switch {
	case saved == nil, t.Library != nil && *t.Library == *saved:
		return nil
	case t.Library == nil:
		return fmt.Errorf("%w: its processes run libhetcuda (build %s), and the container has none: choose the split engine by the annotation io.hetgpu.engine, and install the library", ErrLibrary, saved.BuildID)
	}
	return fmt.Errorf("%w: its processes run libhetcuda's build %s, and build %s is installed: install the hetGPU that the snapshot was made with", ErrLibrary, saved.BuildID, t.Library.BuildID)
}

// verify checks the digests: all of them now, but for large memory images and
// device memory.
func (r *Restore) verify(ctx context.Context) error {
	var pages int64
	for _, f := range r.snap.Manifest.Files {
		if snapshot.IsPages(f) && f.CoveredBy == "" {
			pages += f.Size
		}
	}
	now, beforehand := func(snapshot.File) bool { return true }, int64(beforehandBytes)
	if r.HasGPU() {
		beforehand = beforehandGPUBytes
	}
	var beside []func(context.Context) error
	if pages > beforehand {
		now = snapshot.IsMetadata
		beside = append(beside, func(ctx context.Context) error { return r.snap.Verify(ctx, snapshot.IsPages) })
	}
	if err := r.snap.Verify(ctx, now); err != nil {
		return err
	}
	index, err := whole(r.snap)
	if err != nil {
		return err
	}
	if index != nil {
		if err := errors.Join(onDevices(index, r.snap.Manifest.Devices), r.movable(ctx, index)); err != nil {
			return err
		}
		r.holds = true
		beside = append(beside, r.load)
	}
	r.begin(ctx, beside)
	return nil
}

// onDevices fails for device memory on others than the snapshot's devices, for
// which places were found: it would be loaded to devices of other containers.
func onDevices(index *memfile.Index, devices []gpuplugin.Device) error {
	for i, p := range index.Processes {
		for _, c := range p.Chunks {
			uuid := c.Device.String()
			if !slices.ContainsFunc(devices, func(d gpuplugin.Device) bool { return d.UUID == uuid }) {
				return fmt.Errorf("%w: memory of process %d is on %s, which is not one of its devices", snapshot.ErrCorrupt, i, uuid)
			}
		}
	}
	return nil
}

// movable fails for memory of the split engine that can't come to other devices. What
// processes share is such: one that was moved can't take what another one has made (driver
// 580.159). Each makes its own, chunk by chunk, so there has to be room for one more: the
// devices are those that have it.
func (r *Restore) movable(ctx context.Context, index *memfile.Index) error {
	from, to, moves := r.moves()
	m := r.snap.Manifest
	if !moves || m.Engine != snapshot.EngineSplit {
		return nil
	}
	largest := map[string]uint64{}
	for i, p := range index.Processes {
		for _, c := range p.Chunks {
			largest[c.Device.String()] = max(largest[c.Device.String()], c.Size)
		}
		if slices.ContainsFunc(p.Chunks, func(c memfile.Chunk) bool { return c.Shared != 0 }) {
			return fmt.Errorf("%w: its process %d shares device memory with another one, it was saved on %s, and the container has %s instead, where the driver does not let processes share it: give it the GPUs that the saved one had",
				gpuplugin.ErrIncompatible, i, from, to)
		}
	}
	saved := gpuplugin.Inventory{Driver: m.Host.Driver, API: m.Host.API, Devices: slices.Clone(m.Devices)}
	for i, d := range saved.Devices {
		saved.Devices[i].UsedBytes += largest[d.UUID]
	}
	devices, err := r.target.GPU.Match(ctx, saved, r.target.Minors)
	if err != nil {
		return fmt.Errorf("its memory would come to another GPU, for which there has to be room for one chunk more: %w", err)
	}
	r.devices = devices
	return nil
}

// begin does what is done beside CRIU.
func (r *Restore) begin(ctx context.Context, beside []func(context.Context) error) {
	if len(beside) == 0 {
		return
	}
	// It outlives the request that began it: containerd's Start follows.
	r.beside, r.abandon = context.WithCancelCause(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		var group errgroup.Group
		for _, do := range beside {
			group.Go(func() error {
				err := do(r.beside)
				if err != nil {
					r.abandon(err)
				}
				return err
			})
		}
		_ = group.Wait() // the first error is the context's cause
	}()
}

// load reads the device memory, for processes that are not there yet.
func (r *Restore) load(ctx context.Context) error {
	var p phases
	return p.run(ctx, PhaseLoad, func(ctx context.Context) error {
		return streamer(r.target.GPU).Load(ctx, r.snap.Dir, r.unplaced(), r.devices)
	})
}

// Manifest returns the snapshot's manifest, nil if it has none.
func (r *Restore) Manifest() *snapshot.Manifest {
	if r.snap == nil {
		return nil
	}
	return r.snap.Manifest
}

// Context returns a context that ends with ctx, and at once when a memory image
// turns out to be damaged, or device memory can't be loaded: nothing must come
// out of it then.
func (r *Restore) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if r.beside != nil {
		context.AfterFunc(r.beside, func() { cancel(context.Cause(r.beside)) })
	}
	return ctx, func() { cancel(context.Canceled) }
}

// Close abandons the restore, and frees the device memory that no process has
// taken; what was kept on the devices is kept on. It is harmless after Finish.
func (r *Restore) Close(ctx context.Context) {
	if r.beside != nil {
		r.abandon(errors.New("the restore was abandoned"))
		<-r.done
	}
	if r.holds {
		drop(ctx, streamer(r.target.GPU))
	}
}

// HasGPU tells whether the snapshot has GPU state, so that [Restore.Finish] has
// something to do.
func (r *Restore) HasGPU() bool {
	return r.snap != nil && r.snap.Manifest.Engine != snapshot.EngineNone
}

// Verified waits until all images have proved to be whole, and device memory is
// where it belongs. On error the container must be ended: what came out of them
// is not what was saved.
func (r *Restore) Verified(ctx context.Context) error {
	if r.beside == nil {
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
		return r.besideErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// besideErr is why what came out of CRIU can't be used, nil if it can.
func (r *Restore) besideErr() error { return context.Cause(r.beside) }

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
