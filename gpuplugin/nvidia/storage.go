// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// apiStorage is the first version of CUDA with custom storage, and
	// driverStorage the driver that brought it.
	apiStorage    = 13040
	driverStorage = 615
)

// driverEngine is [Engine] where its method of that name is wanted too.
type driverEngine = Engine

// HasStorage tells whether a kernel driver of a version brings custom storage.
func HasStorage(version string) bool {
	major, err := driverMajor(version)
	return err == nil && major >= driverStorage
}

// StorageEngine is the driver engine of one container, where the driver may have
// custom storage: then device memory is not copied into the processes, but shown
// to the [Mover], which moves it as that of the split engine. Where the driver
// has none, or refuses it to a process, it is the [Engine] alone. It satisfies
// runtime/checkpoint's GPU and Streamer.
//
// Coded against NVIDIA's documentation of CUDA 13.4, never run on a driver.
type StorageEngine struct {
	*driverEngine

	mover interface {
		Mover
		Storer
	}
	// name begins the names of the container's parcels.
	name string

	mu sync.Mutex
	// has says whether the driver has custom storage, once that is known.
	has *bool // guarded by mu
	// away are the processes that may be without their memory, by PID.
	away map[int]bool // guarded by mu
	// parcels are the names that the mover has heard.
	parcels map[string]bool // guarded by mu
	// dir has the memory of parcels in files, that of one as that of the
	// process-th process there.
	dir     string         // guarded by mu
	process map[string]int // guarded by mu
	// devices are those that the container has, by UUID.
	devices []string // guarded by mu
}

// NewStorageEngine returns the engine of a container. No other engine on the
// mover has the name.
func NewStorageEngine(driver *Engine, mover *Helper, name string) *StorageEngine {
	return newStorageEngine(driver, mover, name)
}

func newStorageEngine(driver *Engine, mover interface {
	Mover
	Storer
}, name string,
) *StorageEngine {
	return &StorageEngine{
		driverEngine: driver, mover: mover, name: name,
		away: map[int]bool{}, parcels: map[string]bool{}, process: map[string]int{},
	}
}

// Match is the driver engine's. It notes the devices that the container will use.
func (s *StorageEngine) Match(ctx context.Context, saved gpuplugin.Inventory, minors []int) (gpuplugin.DeviceMap, error) {
	devices, err := s.driverEngine.Match(ctx, saved, minors)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = nil
	for _, d := range saved.Devices {
		uuid := d.UUID
		if to, ok := devices[uuid]; ok {
			uuid = to
		}
		s.devices = append(s.devices, uuid)
	}
	return devices, nil
}

// Loads fails if memory in files can't be loaded by this driver.
func (s *StorageEngine) Loads(ctx context.Context) error {
	has, err := s.hasStorage(ctx)
	if err == nil && !has {
		err = fmt.Errorf("%w: its device memory was saved through the driver's custom storage, which needs driver 615", gpuplugin.ErrIncompatible)
	}
	return err
}

// hasStorage tells whether the driver has custom storage. It doesn't change
// while a container runs that uses the driver.
func (s *StorageEngine) hasStorage(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known := s.has
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	inv, err := s.Inventory(ctx)
	if err != nil {
		return false, err
	}
	has := inv.API >= apiStorage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has = &has
	return has, nil
}

// Processes tells which of the processes hold GPU state, and which of these can
// be mapped: any, if the driver has custom storage, but those that another tool
// has checkpointed.
func (s *StorageEngine) Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error) {
	procs, err := s.driverEngine.Processes(ctx, pids)
	if err != nil || len(procs) == 0 {
		return procs, err
	}
	s.mu.Lock()
	for _, p := range procs {
		if s.away[p.PID] {
			err = errors.Join(err, fmt.Errorf("%w: process %d: its device memory was taken out of it for an operation that failed, and is not back", gpuplugin.ErrUnknownState, p.PID))
		}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	has, err := s.hasStorage(ctx)
	if err != nil {
		return nil, err
	}
	for i := range procs {
		procs[i].Split = has && procs[i].State != gpuplugin.StateCheckpointed
	}
	return procs, nil
}

// Prepare is the driver engine's, which also is what a process falls back to.
// Meanwhile the mover gets ready, while the processes still run.
func (s *StorageEngine) Prepare(ctx context.Context, procs []gpuplugin.Process) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if p, ok := s.mover.(Preparer); ok && len(splitOf(procs)) > 0 {
		wg.Go(func() {
			used, err := s.Usage(ctx, procs)
			if err == nil {
				err = p.Prepare(ctx, slices.Sorted(maps.Keys(used)))
			}
			if err != nil {
				log.G(ctx).WithError(err).Info("the device helper could not get ready; the stop will take longer")
			}
		})
	}
	return s.driverEngine.Prepare(ctx, whole(procs))
}

// whole is for the driver engine, which asks no one else about split processes.
func whole(procs []gpuplugin.Process) []gpuplugin.Process {
	procs = slices.Clone(procs)
	for i := range procs {
		procs[i].Split = false
	}
	return procs
}

// Bound says that device memory goes with the processes' state: Suspend needs it
// copied or saved.
func (s *StorageEngine) Bound() bool { return true }

// Park maps the device memory of the locked processes. Of one that the driver
// refuses, and leaves as it was, the driver moves the memory itself: it is split
// no more, and has the reason. On any other error each process goes back to the
// state in which it was found.
func (s *StorageEngine) Park(ctx context.Context, procs []gpuplugin.Process, devices []gpuplugin.Device) error {
	s.mu.Lock()
	s.devices = nil
	for _, d := range devices {
		s.devices = append(s.devices, d.UUID)
	}
	s.mu.Unlock()
	// Prepare has asked when calls could still be made.
	err := s.checkSharing(ctx, whole(procs))
	for i := range procs {
		if err != nil {
			break
		}
		if procs[i].Split {
			err = s.park(ctx, &procs[i])
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, s.Undo(ctx, procs))
}

func (s *StorageEngine) park(ctx context.Context, p *gpuplugin.Process) error {
	step, cancel := s.outlive(ctx, s.cfg.stepTimeout)
	defer cancel()
	parcel := s.parcel(*p)
	s.mu.Lock()
	// Before it is tried: an answer can get lost.
	s.away[p.PID], s.parcels[parcel] = true, true
	req := MapRequest{PID: p.PID, Parcel: parcel, Devices: s.devices}
	s.mu.Unlock()
	start := time.Now()
	_, err := s.mover.Map(step, req)
	s.trace(ctx, p.PID, "map", start)
	if err == nil {
		return nil
	}
	state, stateErr := s.stateOf(ctx, p.PID)
	if errors.Is(stateErr, helperapi.ErrGone) {
		s.back(p.PID)
		return nil // its GPU state has gone with it
	}
	if stateErr != nil || state != gpuplugin.StateLocked || ctx.Err() != nil {
		return &gpuplugin.ProcessError{PID: p.PID, Op: "map", Err: errors.Join(err, stateErr)}
	}
	s.back(p.PID)
	log.G(ctx).WithError(err).Warn("the driver does not show device memory; it saves it itself")
	p.Split, p.Reason = false, fmt.Sprintf("the driver's custom storage: %v", err)
	return nil
}

// back notes that a process has its memory.
func (s *StorageEngine) back(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.away, pid)
}

// Suspend completes the checkpoint of the processes that are mapped, whose
// memory was copied or saved, and has the driver save the others. On error each
// process goes back to the state in which it was found.
func (s *StorageEngine) Suspend(ctx context.Context, procs []gpuplugin.Process) error {
	// First what can be taken back without a copy.
	err := s.driverEngine.Suspend(ctx, unsplit(procs))
	if err == nil {
		err = errors.Join(each(ctx, splitOf(procs), "checkpoint", s.settle)...)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, s.Undo(ctx, procs))
}

func (s *StorageEngine) settle(ctx context.Context, p gpuplugin.Process) error {
	ctx, cancel := s.outlive(ctx, s.cfg.stepTimeout)
	defer cancel()
	start := time.Now()
	err := unlessGone(s.mover.Settle(ctx, s.parcel(p)))
	s.trace(ctx, p.PID, "settle", start)
	return err
}

func unsplit(procs []gpuplugin.Process) []gpuplugin.Process {
	return slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return p.Split })
}

// Resume restores the processes to their devices or those of the map, gives
// their memory to those that were mapped, and lets those go on that are to be
// running. After a failure none goes on; the caller decides what then.
func (s *StorageEngine) Resume(ctx context.Context, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	if len(devices) > 0 {
		if err := refuseParked(procs); err != nil {
			return err
		}
	}
	errs := each(ctx, splitOf(procs), "restore", func(ctx context.Context, p gpuplugin.Process) error {
		return s.fill(ctx, p, devices)
	})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := s.driverEngine.Resume(ctx, unsplit(procs), devices); err != nil {
		return err
	}
	return errors.Join(each(ctx, running(splitOf(procs)), "unlock", func(ctx context.Context, p gpuplugin.Process) error {
		ctx, cancel := s.outlive(ctx, s.cfg.stepTimeout)
		defer cancel()
		return s.driver.Unlock(ctx, p.PID)
	})...)
}

// fill restores one process, which is locked then.
func (s *StorageEngine) fill(ctx context.Context, p gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	ctx, cancel := s.outlive(ctx, s.cfg.stepTimeout)
	defer cancel()
	req := FillRequest{PID: p.PID, Parcel: s.parcel(p), Map: devices}
	s.mu.Lock()
	req.Devices = s.devices
	if n, ok := s.process[req.Parcel]; ok {
		req.Dir, req.Process = s.dir, n
	}
	s.parcels[req.Parcel] = true
	s.mu.Unlock()
	start := time.Now()
	err := s.mover.Fill(ctx, req)
	s.trace(ctx, p.PID, "fill", start)
	if err == nil {
		s.back(p.PID)
	}
	return explained(err)
}

// Undo returns every process to the state in which it was found, whatever it is
// in now, device memory included. It goes on when ctx has ended, and after an
// error. Of a process whose memory can't be given back its error is
// [gpuplugin.ErrLost].
func (s *StorageEngine) Undo(ctx context.Context, procs []gpuplugin.Process) error {
	limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.cfg.undoTimeout,
		fmt.Errorf("not done within %v: %w", s.cfg.undoTimeout, context.DeadlineExceeded))
	defer cancel()
	s.mu.Lock()
	away := slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return !s.away[p.PID] })
	s.mu.Unlock()
	errs := each(limit, away, "undo", s.giveBack)
	return errors.Join(append(errs, s.driverEngine.Undo(limit, without(procs, errs)))...)
}

// giveBack gives a process its memory that may be without. Afterwards the driver
// serves it again.
func (s *StorageEngine) giveBack(ctx context.Context, p gpuplugin.Process) error {
	for tries := 1; ; {
		err := s.fill(ctx, p, nil)
		if err == nil {
			return nil
		}
		state, stateErr := s.stateOf(ctx, p.PID)
		switch {
		case errors.Is(stateErr, helperapi.ErrGone):
			s.back(p.PID)
			return nil
		case errors.Is(err, gpuplugin.ErrUnavailable) && state != gpuplugin.StateCheckpointed:
			// Nobody knows what the helper that died had filled.
			return fmt.Errorf("%w: the device helper that held it has died: %w", gpuplugin.ErrLost, errors.Join(err, stateErr))
		case stateErr == nil && (state == gpuplugin.StateLocked || state == gpuplugin.StateRunning):
			s.back(p.PID) // it was never taken
			return nil
		case errors.Is(err, helperapi.ErrNoState):
			return fmt.Errorf("%w: the device helper that held it has died: %w", gpuplugin.ErrLost, errors.Join(err, stateErr))
		}
		// What the helper is still busy with, a save to a slow disk for one, is
		// waited for: it has the memory.
		if !busy(err) {
			tries++
		}
		if tries > undoUnavailable {
			return fmt.Errorf("%w: the process is %s: %w", gpuplugin.ErrLost, state, errors.Join(err, stateErr))
		}
		select {
		case <-time.After(undoPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: the process is %s: %w", gpuplugin.ErrLost, state, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// Copy copies what is mapped within the devices, and tells whether there was
// room: then the processes need not wait for files.
func (s *StorageEngine) Copy(ctx context.Context, procs []gpuplugin.Process) (bool, error) {
	return duplicate(ctx, s.mover, s.parcelsOf(procs))
}

// Save writes what is mapped, or the copy of it, to files in dir, and returns
// when they are on disk. What is in those of parent, if that is not "", is left
// there. On error it has left none.
func (s *StorageEngine) Save(ctx context.Context, dir, parent string, procs []gpuplugin.Process) (gpuplugin.Stored, error) {
	stored, err := save(ctx, s.mover, SaveRequest{Dir: dir, Parcels: s.parcelsOf(procs), Parent: parent})
	if err != nil {
		return stored, err
	}
	s.inFiles(dir, procs)
	return stored, nil
}

// inFiles notes where the memory of processes is.
func (s *StorageEngine) inFiles(dir string, procs []gpuplugin.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
	clear(s.process)
	for i, p := range splitOf(procs) {
		s.process[s.parcel(p)] = i
	}
}

// Load notes where the memory is of processes that are yet to be restored: only
// when they are there has it a place on the devices. Resume reads and verifies it.
func (s *StorageEngine) Load(_ context.Context, dir string, procs []gpuplugin.Process, _ gpuplugin.DeviceMap) error {
	s.inFiles(dir, procs)
	return nil
}

// Drop forgets what is left of the memory of all processes.
func (s *StorageEngine) Drop(ctx context.Context) error {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.parcels))
	s.mu.Unlock()
	if err := drop(ctx, s.mover, names); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.parcels)
	clear(s.away)
	clear(s.process)
	s.dir = ""
	return nil
}

func (s *StorageEngine) parcel(p gpuplugin.Process) string { return parcelName(s.name, p) }

func (s *StorageEngine) parcelsOf(procs []gpuplugin.Process) []string {
	return parcelNames(s.name, procs)
}
