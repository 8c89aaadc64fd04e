// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint takes a container through a checkpoint and through a
// restore, all or nothing: the order of the steps, their time-outs, and the way
// back when one fails (docs/architecture.md).
//
// It must not know of containerd's API or a vendor's driver. It holds no lock:
// its caller sees to it that there is one operation on a container at a time.
package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Freezer stops and lists the processes of a container.
type Freezer interface {
	// Frozen tells whether the processes stand still.
	Frozen() (bool, error)
	// Freeze returns once they all do.
	Freeze(ctx context.Context) error
	// Thaw lets them run.
	Thaw(ctx context.Context) error
	// Kill ends them all, frozen or not.
	Kill(ctx context.Context) error
	// PIDs lists them, in the host's PID namespace.
	PIDs() ([]int, error)
	// Unified says that it is a cgroup of version 2.
	Unified() bool
}

// Runtime dumps the processes of a container.
type Runtime interface {
	Checkpoint(ctx context.Context, d runc.Dump) error
}

// DefaultTimeout bounds a checkpoint and a restore, each, where nobody says
// otherwise: driver 580 moves 2 GB/s and CRIU 1 GB/s, so a card of 141 GB takes
// four minutes.
const DefaultTimeout = 10 * time.Minute

// dumpGrace is how long CRIU may go on when the time is up. Its code is in the
// processes while it works, and one that it leaves there when it is killed may
// not survive. To take it out again takes milliseconds; a dump that had less
// than some 10 GB to go ends too.
const dumpGrace = 10 * time.Second

// spareBytes is kept free beside what a dump is known to need.
const spareBytes = 16 << 20

// Container is the container that is saved or restored.
type Container struct {
	// Init is the PID of its first process on the host.
	Init    int
	GPU     GPU
	Cgroup  Freezer
	Runtime Runtime
	// Minors are the numbers of the GPUs' device nodes that it can see.
	Minors []int
	// Timeout bounds the operation, and each step of the way back.
	Timeout time.Duration
	// Ending is closed when the container is being ended: then nothing waits for
	// CRIU, whatever the operation's context has ended for. It may be nil.
	Ending <-chan struct{}
	// Encryption is that of device memory in files.
	Encryption Encryption

	proc  procfs
	grace time.Duration
}

// Request is what a checkpoint is to do.
type Request struct {
	runc.Dump
	// MemoryParent is an earlier snapshot of the container, relative to Dir, in
	// which device memory is left that has not changed; "" for none but
	// Dump.Parent, in which CRIU leaves other memory.
	MemoryParent string
	// Manifest has what the caller knows: container, host and options.
	Manifest snapshot.Manifest
	// Keep, only with Exit, has device memory stay on its devices for a restore on
	// this host, and in no file.
	Keep bool
	// Companion may be nil, and so may Progress.
	Companion Companion
	Progress  Progress
}

func (c *Container) procfs() procfs {
	if c.proc == "" {
		return "/proc"
	}
	return c.proc
}

func (c *Container) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return context.WithTimeoutCause(ctx, c.Timeout, c.late())
}

// late is the cause with which an operation ends whose time is up.
func (c *Container) late() error {
	return fmt.Errorf("%w of %s (annotation io.hetgpu.checkpoint.timeout)", errTimeout, c.Timeout)
}

// onEnding calls do when the container is being ended, if that is before stop.
func (c *Container) onEnding(do func()) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-c.Ending:
			do()
		case <-stopped:
		}
	}()
	return func() { close(stopped) }
}

// errTimeout is the cause with which an operation ends that takes too long.
var errTimeout error = timedOut{}

type timedOut struct{}

func (timedOut) Error() string {
	return context.DeadlineExceeded.Error() + ": the operation took longer than its time-out"
}

func (timedOut) Unwrap() error { return context.DeadlineExceeded }

// saving is one checkpoint under way.
type saving struct {
	*Container
	Request
	phases
	undo rollback
	// until is when its time is up.
	until  time.Time
	frozen bool
	procs  []gpuplugin.Process
	stream Streamer
	before *snapshot.Listing
	// previous is the snapshot before, nil if nothing is left in one.
	previous *previous
	// key is that of the files with device memory, nil if they are not encrypted.
	key *memfile.Key
	// apart says that processes may be without their device memory.
	apart bool
	// stopped is when the first process could not go on; zero for a container
	// that was found so.
	stopped time.Time
	// memory takes device memory into files, from when there is any to take.
	memory *drain
	// trouble is why the container came back only at the second try.
	trouble error
}

// Checkpoint fills r.Dir with a snapshot. On error the container is in the
// state in which it was found, and the directory as it was: the error says
// which step failed, and what of the way back did, if anything.
func (c *Container) Checkpoint(ctx context.Context, r Request) (_ *snapshot.Manifest, err error) {
	ctx, cancel := c.timeout(ctx)
	defer cancel()
	s := &saving{Container: c, Request: r, undo: rollback{timeout: c.Timeout}, until: time.Now().Add(c.Timeout), stream: streamer(c.GPU)}
	if s.Companion == nil {
		s.Companion = nothing{}
	}
	if s.Progress == nil {
		s.Progress = silence{}
	}
	s.progress = s.Progress
	defer func() {
		if s.memory != nil {
			s.memory.stop()
		}
		if err != nil {
			err = errors.Join(err, s.undo.run(ctx))
		}
		s.drop(ctx)
	}()
	if s.before, err = snapshot.List(r.Dir); err != nil {
		return nil, fmt.Errorf("%s: %w", PhasePreflight, err)
	}
	if s.before.HasSnapshot() {
		return nil, fmt.Errorf("%s: %s %w: name a directory without", PhasePreflight, r.Dir, ErrExists)
	}
	s.undo.add("remove the images", func(context.Context) error { return snapshot.Remove(s.before) })
	if err := s.stop(ctx); err != nil {
		return nil, err
	}
	return s.save(ctx)
}

// stop brings the container to a stand with no GPU state outside its
// processes' memory.
func (s *saving) stop(ctx context.Context) error {
	var err error
	if s.frozen, err = s.Cgroup.Frozen(); err != nil {
		return fmt.Errorf("%s: %w", PhasePreflight, err)
	}
	if s.frozen {
		// Whether we thaw it or not: CRIU does, and leaves it so if it is killed.
		s.undo.add(PhaseFreeze, s.refreeze)
	}
	// The driver answers for a process only while it runs.
	if s.frozen && s.GPU.Engine() != snapshot.EngineNone {
		if err := s.run(ctx, PhaseThaw, s.Cgroup.Thaw); err != nil {
			return err
		}
	}
	if err := s.run(ctx, PhasePreflight, s.preflight); err != nil {
		return err
	}
	if len(s.procs) > 0 {
		if err := s.suspend(ctx); err != nil {
			return err
		}
	}
	return s.freeze(ctx)
}

// refreeze makes a container that was found frozen so again. One whose first
// process has ended meanwhile is left to end: frozen, it could not be deleted.
func (s *saving) refreeze(ctx context.Context) error {
	if err := s.Cgroup.Freeze(ctx); err != nil || s.procfs().alive(s.Init) {
		return err
	}
	return s.Cgroup.Thaw(ctx)
}

// freeze stops the container for the dump. CRIU could do it too; but between
// the driver's checkpoint and the dump nothing of the processes should change,
// and a container that is to end must not run once its state was taken.
func (s *saving) freeze(ctx context.Context) error {
	// Before it is tried: one that did not end in time leaves some of the
	// processes frozen. A container without GPU state that was found frozen was
	// never thawed.
	if !s.frozen || len(s.procs) > 0 {
		s.undo.add(PhaseThaw, s.Cgroup.Thaw)
	}
	s.begins()
	return s.run(ctx, PhaseFreeze, s.Cgroup.Freeze)
}

// begins notes that processes are made to wait from now on.
func (s *saving) begins() {
	if s.stopped.IsZero() && !s.frozen {
		s.stopped = time.Now()
	}
}

// ends notes that they all go on.
func (s *saving) ends() {
	if !s.stopped.IsZero() {
		s.Manifest.StopSeconds = time.Since(s.stopped).Seconds()
	}
}

// suspend takes the GPU state out of the devices, but for the device memory of
// processes that are split: that stays there, and out of the processes.
func (s *saving) suspend(ctx context.Context) error {
	s.begins()
	if err := s.run(ctx, PhaseLock, func(ctx context.Context) error { return s.GPU.Lock(ctx, s.procs) }); err != nil {
		return err
	}
	s.undo.add(PhaseResume, s.giveBack)
	if s.split() {
		s.apart = true
		if err := s.run(ctx, PhasePark, func(ctx context.Context) error { return s.stream.Park(ctx, s.procs, s.Manifest.Devices) }); err != nil {
			return err
		}
		// Some may have proved to be none to split.
		if err := s.refusePlain(); err != nil {
			return fmt.Errorf("%s: %w", PhasePark, err)
		}
		if err := s.secure(ctx); err != nil {
			return err
		}
	}
	err := s.run(ctx, PhaseSuspend, func(ctx context.Context) error { return s.GPU.Suspend(ctx, s.procs) })
	if err == nil && s.memory != nil {
		close(s.memory.suspended)
	}
	return err
}

// secure has the memory copied or saved that would end with its processes' state.
func (s *saving) secure(ctx context.Context) error {
	if !s.stream.Bound() {
		return nil
	}
	// Some may have proved to be none to split.
	if err := s.list(); err != nil {
		return err
	}
	s.memory = s.drain(ctx)
	return s.memory.free(ctx)
}

// list fills in what the manifest says of processes.
func (s *saving) list() (err error) {
	apart := ""
	if s.split() {
		apart = snapshot.MemoryStorage
	}
	if apart != "" && s.GPU.Engine() == snapshot.EngineSplit {
		apart = snapshot.MemorySplit
	}
	m := &s.Manifest
	if m.Processes, err = s.procfs().describe(s.procs, apart); err != nil {
		return err
	}
	m.EngineReason = cmp.Or(reason(s.procs), m.EngineReason)
	return nil
}

// split tells whether there is device memory that is moved apart from its
// process.
func (s *saving) split() bool {
	return slices.ContainsFunc(s.procs, func(p gpuplugin.Process) bool { return p.Split })
}

// giveBack returns the GPU state to where it was found. Processes whose device
// memory is lost would wait for it for ever, so they are ended.
func (s *saving) giveBack(ctx context.Context) error {
	err := s.GPU.Undo(ctx, s.procs)
	if errors.Is(err, gpuplugin.ErrLost) {
		log.G(ctx).WithError(err).Error("the container is ended: its device memory can't be given back")
		if killed := s.Cgroup.Kill(ctx); killed != nil {
			return errors.Join(err, killed)
		}
		s.apart = false
		return fmt.Errorf("the container was ended: %w", err)
	}
	s.apart = s.apart && err != nil
	return err
}

// drop frees device memory that no process waits for any more. What could not
// be given back is kept as long as the container is there.
func (s *saving) drop(ctx context.Context) {
	if s.apart {
		return
	}
	drop(ctx, s.stream)
}

// preflight finds every reason why the container can't be saved, before
// anything is changed.
func (s *saving) preflight(ctx context.Context) error {
	pids, err := s.Cgroup.PIDs()
	if err != nil {
		return err
	}
	if s.procs, err = s.GPU.Processes(ctx, pids); err != nil {
		return err
	}
	var reasons []error
	if !s.Cgroup.Unified() {
		reasons = append(reasons, s.procfs().stopped(pids))
	}
	for _, p := range s.procs {
		switch inside, err := s.procfs().descends(p.PID, s.Init); {
		case err != nil:
			reasons = append(reasons, err)
		case !inside:
			reasons = append(reasons, fmt.Errorf("process %d holds GPU state and %w", p.PID, ErrEntered))
		}
	}
	var used uint64
	if len(s.procs) > 0 {
		reasons = append(reasons, s.GPU.Prepare(ctx, s.procs))
		if used, err = s.describe(ctx); err != nil {
			reasons = append(reasons, err)
		}
	}
	if s.Keep {
		reasons = append(reasons, s.mayKeep())
		if used, err = s.unsplitUsage(ctx); err != nil {
			reasons = append(reasons, err)
		}
	}
	reasons = append(reasons, s.checkParent(), s.checkEncryption(), s.space(pids, used))
	return errors.Join(reasons...)
}

// mayKeep tells whether there is device memory that can stay where it is.
func (s *saving) mayKeep() error {
	if !s.Exit {
		return errors.New("device memory stays on the GPUs only for a container that ends: it is the container's otherwise")
	}
	if s.MemoryParent != "" {
		return errors.New("device memory that stays on the GPUs can't be left in an earlier snapshot")
	}
	if _, err := keeper(s.GPU); err != nil {
		return err
	}
	if s.split() {
		return nil
	}
	return fmt.Errorf("no device memory can stay on the GPUs (%s); save it to files: %w", cmp.Or(s.Manifest.EngineReason, "no process holds any"), gpuplugin.ErrUnsupported)
}

// unsplitUsage is the device memory that goes into the processes' memory.
func (s *saving) unsplitUsage(ctx context.Context) (uint64, error) {
	rest := slices.DeleteFunc(slices.Clone(s.procs), func(p gpuplugin.Process) bool { return p.Split })
	if len(rest) == 0 {
		return 0, nil
	}
	usage, err := s.GPU.Usage(ctx, rest)
	sum := uint64(0)
	for _, bytes := range usage {
		sum += bytes
	}
	return sum, err
}

// describe fills in what the manifest says of GPUs, and returns the device
// memory in use.
func (s *saving) describe(ctx context.Context) (uint64, error) {
	m := &s.Manifest
	if err := s.list(); err != nil {
		return 0, err
	}
	host, err := s.GPU.Inventory(ctx)
	if err != nil {
		return 0, err
	}
	usage, err := s.GPU.Usage(ctx, s.procs)
	if err != nil {
		return 0, err
	}
	m.Host.Driver, m.Host.API = host.Driver, host.API
	var sum uint64
	for _, d := range visible(host.Devices, s.Minors) {
		d.UsedBytes = usage[d.UUID]
		sum += d.UsedBytes
		m.Devices = append(m.Devices, d)
	}
	return sum, nil
}

// visible picks the devices of a container, in the order in which the library
// lists them; without numbers it sees them all.
func visible(devices []gpuplugin.Device, minors []int) []gpuplugin.Device {
	if len(minors) == 0 {
		return devices
	}
	return slices.DeleteFunc(slices.Clone(devices), func(d gpuplugin.Device) bool { return !slices.Contains(minors, d.Minor) })
}

// space compares what the dump needs at the least with what is free.
func (s *saving) space(pids []int, used uint64) error {
	anonymous, err := s.procfs().anonymous(pids)
	if err != nil {
		return err
	}
	free, err := snapshot.FreeSpace(s.Dir)
	if err != nil {
		return err
	}
	s.Progress.Expect(anonymous + used)
	// An incremental dump writes what changed, which nobody knows yet.
	if s.MemoryParent != "" {
		used = 0
	}
	if need := anonymous + used + spareBytes; s.Parent == "" && free < need {
		return fmt.Errorf("%w: %s has %d MiB free, and at least %d MiB are needed (%d MiB of memory and %d MiB of GPU memory); free some, or name another directory",
			ErrNoSpace, s.Dir, free>>20, need>>20, anonymous>>20, used>>20)
	}
	return nil
}
