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

// SplitEngine is the split engine of one container: the device memory of
// processes that run libhetcuda is taken out of them and moved by the [Mover];
// what is left of their GPU state, and all of the other processes', is the
// driver engine's. It satisfies runtime/checkpoint's GPU and Streamer.
//
// The order of a stop is Lock, Park, Suspend. The library's gate stays closed
// from Lock to the end, so that no call is made while the driver has to be
// unlocked for the memory to leave or come back.
type SplitEngine struct {
	driver  *Engine
	mover   Mover
	keepers Keepers
	// dir is where the container's processes listen, as a path of the host.
	dir string
	// name begins the names of the container's parcels.
	name string

	mu sync.Mutex
	// away are the processes that may be without their memory, by PID.
	away map[int]bool // guarded by mu
	// parcels are the names that the mover has heard.
	parcels map[string]bool // guarded by mu
	// keeper is the one that was started, nil for none, and lender the name of
	// the one that parcels were fetched from.
	keeper Keeper // guarded by mu
	lender string // guarded by mu
}

// NewSplitEngine returns the engine of the container whose processes listen in
// dir. No other engine on the mover has the name.
func NewSplitEngine(driver *Engine, mover Mover, keepers Keepers, dir, name string) *SplitEngine {
	return &SplitEngine{driver: driver, mover: mover, keepers: keepers, dir: dir, name: name, away: map[int]bool{}, parcels: map[string]bool{}}
}

// Engine is the manifest's word for it.
func (s *SplitEngine) Engine() string { return "split" }

// Inventory lists driver and devices of the host.
func (s *SplitEngine) Inventory(ctx context.Context) (gpuplugin.Inventory, error) {
	return s.driver.Inventory(ctx)
}

// Match is the driver engine's: memory can go wherever the rest goes.
func (s *SplitEngine) Match(ctx context.Context, saved gpuplugin.Inventory, minors []int) (gpuplugin.DeviceMap, error) {
	return s.driver.Match(ctx, saved, minors)
}

// Usage is all device memory that the processes use.
func (s *SplitEngine) Usage(ctx context.Context, procs []gpuplugin.Process) (map[string]uint64, error) {
	return s.driver.Usage(ctx, procs)
}

// Processes tells which of the processes hold GPU state, and which of these can
// be split. If the library can't be asked, none is, rather than some: what it
// holds back could be what others of them wait for.
func (s *SplitEngine) Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error) {
	procs, err := s.driver.Processes(ctx, pids)
	if err != nil || len(procs) == 0 {
		return procs, err
	}
	if err := s.refuseAway(procs); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(procs, func(p gpuplugin.Process) bool { return p.State != gpuplugin.StateCheckpointed }) {
		return procs, nil // as CRIU has restored them
	}
	clients, err := s.clients(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Warn("libhetcuda can't be asked: the driver saves the device memory")
	}
	for i := range procs {
		p := &procs[i]
		_, known := clients[p.PID]
		switch {
		case err != nil:
			p.Reason = fmt.Sprintf("libhetcuda could not be asked: %v", err)
		case !known:
			p.Reason = "it does not run libhetcuda"
		case p.State == gpuplugin.StateCheckpointed:
			p.Reason = "another tool has suspended it"
		default:
			p.Split = true
		}
	}
	return procs, nil
}

// refuseAway keeps a process whose memory could not be given back from being
// saved without it.
func (s *SplitEngine) refuseAway(procs []gpuplugin.Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range procs {
		if s.away[p.PID] {
			return fmt.Errorf("%w: process %d: its device memory was taken out of it for an operation that failed, and is not back", gpuplugin.ErrUnknownState, p.PID)
		}
	}
	return nil
}

// clients asks for the processes that run the library, by PID.
func (s *SplitEngine) clients(ctx context.Context) (map[int]Client, error) {
	ctx, cancel := context.WithTimeout(ctx, s.driver.cfg.stateTimeout)
	defer cancel()
	list, err := s.mover.Clients(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	clients := make(map[int]Client, len(list))
	for _, c := range list {
		clients[c.PID] = c
	}
	return clients, nil
}

// Prepare is the driver engine's, which has to save what the library leaves.
// Meanwhile the mover gets ready, while the processes still run.
func (s *SplitEngine) Prepare(ctx context.Context, procs []gpuplugin.Process) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if len(splitOf(procs)) > 0 {
		wg.Go(func() {
			if err := s.warm(ctx, procs); err != nil {
				log.G(ctx).WithError(err).Info("the device helper could not get ready; the stop will take longer")
			}
		})
	}
	return s.driver.Prepare(ctx, procs)
}

// warm has the mover open the devices that the processes use.
func (s *SplitEngine) warm(ctx context.Context, procs []gpuplugin.Process) error {
	p, ok := s.mover.(Preparer)
	if !ok {
		return nil
	}
	used, err := s.driver.Usage(ctx, procs)
	if err != nil {
		return err
	}
	return p.Prepare(ctx, slices.Sorted(maps.Keys(used)))
}

// Lock closes the library's gate in all processes and then proves by the
// driver's lock that their GPUs are idle. On error each is back in the state in
// which it was found.
//
// A process at the gate may keep the kernels of the others waiting, as one does
// that is locked. Libraries that can let their processes on step by step bring
// all to rest together; otherwise tries are short. All go on between two.
func (s *SplitEngine) Lock(ctx context.Context, procs []gpuplugin.Process) error {
	if len(splitOf(procs)) == 0 {
		return s.driver.Lock(ctx, procs)
	}
	return s.driver.insist(ctx, len(procs), attempt{
		do:   func(ctx context.Context, timeout time.Duration) []error { return s.lockOnce(ctx, procs, timeout) },
		undo: func(ctx context.Context) error { return s.Undo(ctx, procs) },
	})
}

const (
	// stepFactor is how much longer processes are stepped than one is waited for
	// that is held by itself; before the first time that is 2 s for several.
	stepFactor = 80
	// maxStepSlice is the longest that they are stepped without going on freely.
	maxStepSlice = 8 * time.Second
	// stepMargin is how long an answer may be under way.
	stepMargin = time.Second
)

func (s *SplitEngine) lockOnce(ctx context.Context, procs []gpuplugin.Process, timeout time.Duration) []error {
	clients, err := s.clients(ctx)
	if err != nil {
		return []error{err}
	}
	var open, waiting []gpuplugin.Process
	steps := true
	for _, p := range splitOf(procs) {
		if clients[p.PID].State == ClientHeld { // by us, for a pause
			continue
		}
		open = append(open, p)
		steps = steps && clients[p.PID].Steps
		if p.State == gpuplugin.StateLocked {
			waiting = append(waiting, p)
		}
	}
	// A thread that waits for the end of a lock never leaves the driver.
	if errs := each(ctx, waiting, "unlock", s.unlock); len(errs) > 0 {
		return errs
	}
	hold := s.hold
	if steps {
		hold = s.holdTogether
	}
	if errs := hold(ctx, open, timeout); len(errs) > 0 {
		return errs
	}
	return s.driver.lockOnce(ctx, running(served(procs)), within(ctx, timeout))
}

// hold holds each process by itself, and succeeds between two collectives.
func (s *SplitEngine) hold(ctx context.Context, procs []gpuplugin.Process, timeout time.Duration) []error {
	return each(ctx, procs, "hold", func(ctx context.Context, p gpuplugin.Process) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+s.driver.cfg.grace)
		defer cancel()
		return unlessGone(s.mover.Hold(ctx, s.dir, p.PID, timeout))
	})
}

// holdTogether takes longer than one try of the other kind, and as a rule does it
// in one.
func (s *SplitEngine) holdTogether(ctx context.Context, procs []gpuplugin.Process, timeout time.Duration) []error {
	if len(procs) == 0 {
		return nil
	}
	timeout = within(ctx, min(stepFactor*timeout, maxStepSlice))
	// It says who was busy if it ends before the operation's time does.
	timeout -= min(timeout/4, stepMargin)
	limit, cancel := context.WithTimeout(ctx, timeout+s.driver.cfg.grace)
	defer cancel()
	if err := s.mover.HoldTogether(limit, s.dir, pidsOf(procs), timeout); err != nil {
		return []error{err}
	}
	return nil
}

// Park takes the device memory out of the locked processes that are split; it
// stays where it is on the devices, which are among those that are given. On
// error each process is back in the state in which it was found.
func (s *SplitEngine) Park(ctx context.Context, procs []gpuplugin.Process, devices []gpuplugin.Device) error {
	split := splitOf(procs)
	memory := make(map[string]uint64, len(devices))
	for _, d := range devices {
		memory[d.UUID] = d.MemoryBytes
	}
	// The library has to call the driver. That nothing else does the gate sees to.
	errs := each(ctx, split, "unlock", s.unlock)
	if len(errs) == 0 {
		errs = each(ctx, split, "park", func(ctx context.Context, p gpuplugin.Process) error { return s.park(ctx, p, memory) })
	}
	if len(errs) == 0 && ctx.Err() == nil {
		errs = append(errs, s.commit(ctx, split))
	}
	err := errors.Join(errs...)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, s.Undo(ctx, procs))
}

func (s *SplitEngine) park(ctx context.Context, p gpuplugin.Process, devices map[string]uint64) error {
	ctx, cancel := s.driver.outlive(ctx, s.driver.cfg.stepTimeout)
	defer cancel()
	parcel := s.parcel(p)
	s.mu.Lock()
	// Before it is tried: an answer can get lost.
	s.away[p.PID], s.parcels[parcel] = true, true
	s.mu.Unlock()
	start := time.Now()
	_, err := s.mover.Park(ctx, ParkRequest{Dir: s.dir, PID: p.PID, Parcel: parcel, Devices: devices})
	s.driver.trace(ctx, p.PID, "park", start)
	return unlessGone(err)
}

// commit has the processes let go of what was parked.
func (s *SplitEngine) commit(ctx context.Context, split []gpuplugin.Process) error {
	if len(split) == 0 {
		return nil
	}
	ctx, cancel := s.driver.outlive(ctx, s.driver.cfg.stepTimeout)
	defer cancel()
	start := time.Now()
	err := s.mover.Commit(ctx, s.parcelsOf(split))
	s.driver.trace(ctx, 0, "commit", start)
	return err
}

// Suspend has the driver take what is left of the processes' GPU state into
// host memory. On error each process is back in the state in which it was found.
func (s *SplitEngine) Suspend(ctx context.Context, procs []gpuplugin.Process) error {
	if err := s.driver.Suspend(ctx, served(procs)); err != nil {
		return errors.Join(err, s.Undo(ctx, procs))
	}
	return nil
}

// Resume restores the processes to their devices or those of the map, gives
// them their memory back, and lets those go on that are to be running. After a
// failure none goes on; the caller decides what then.
func (s *SplitEngine) Resume(ctx context.Context, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	if err := s.driver.Resume(ctx, stopped(served(procs), splitOf(procs)), devices); err != nil {
		return err
	}
	errs := s.unparkAll(ctx, splitOf(procs))
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := s.spend(ctx, procs); err != nil {
		return err
	}
	return errors.Join(each(ctx, procs, "release", s.settle)...)
}

// unparkAll gives processes their memory. What some share those get first who have
// made it, so the others are asked once more.
func (s *SplitEngine) unparkAll(ctx context.Context, procs []gpuplugin.Process) []error {
	one := func(ctx context.Context, p gpuplugin.Process) error {
		ctx, cancel := s.driver.outlive(ctx, s.driver.cfg.stepTimeout)
		defer cancel()
		return s.unpark(ctx, p)
	}
	errs := each(ctx, procs, "unpark", one)
	if slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, helperapi.ErrNotReady) }) {
		return errs
	}
	left := slices.DeleteFunc(slices.Clone(procs), func(p gpuplugin.Process) bool { return !concerned(p, errs) })
	return each(ctx, left, "unpark", one)
}

func (s *SplitEngine) unpark(ctx context.Context, p gpuplugin.Process) error {
	start := time.Now()
	err := s.mover.Unpark(ctx, s.dir, p.PID, s.parcel(p))
	// What a keeper lends is there once: it has to come to all or to none.
	if !s.borrows() {
		err = unlessGone(err)
	}
	s.driver.trace(ctx, p.PID, "unpark", start)
	if err == nil {
		s.back(p)
	}
	return err
}

// back notes that a process has its memory.
func (s *SplitEngine) back(p gpuplugin.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.away, p.PID)
}

// settle brings a process that has its memory into the state in which it was
// found. One that was locked is locked again before the gate opens.
func (s *SplitEngine) settle(ctx context.Context, p gpuplugin.Process) error {
	if err := s.driver.undoOne(ctx, p); err != nil || !p.Split {
		return err
	}
	err := s.mover.Release(ctx, s.dir, p.PID)
	if errors.Is(err, gpuplugin.ErrUnavailable) {
		return nil // the gate has opened with the helper's end
	}
	if errors.Is(err, helperapi.ErrDamaged) {
		err = fmt.Errorf("%w: %w", gpuplugin.ErrLost, err)
	}
	return unlessGone(err)
}

func (s *SplitEngine) unlock(ctx context.Context, p gpuplugin.Process) error {
	ctx, cancel := s.driver.outlive(ctx, s.driver.cfg.stepTimeout)
	defer cancel()
	return unlessGone(s.driver.driver.Unlock(ctx, p.PID))
}

// Copy copies what is parked within the devices, and tells whether there was
// room: then the processes can have theirs back before it is saved.
func (s *SplitEngine) Copy(ctx context.Context, procs []gpuplugin.Process) (bool, error) {
	return duplicate(ctx, s.mover, s.parcelsOf(procs))
}

// Save writes what was parked, or the copy of it, to files in dir, and returns
// when they are on disk. What is in those of parent, if that is not "", is left
// there. On error it has left none.
func (s *SplitEngine) Save(ctx context.Context, dir, parent string, procs []gpuplugin.Process) (gpuplugin.Stored, error) {
	return save(ctx, s.mover, SaveRequest{Dir: dir, Parcels: s.parcelsOf(procs), Parent: parent})
}

// Bound says that device memory stays where it is when Suspend has come and gone.
func (s *SplitEngine) Bound() bool { return false }

// Loads is always true: memory that nobody shows is made anew.
func (s *SplitEngine) Loads(context.Context) error { return nil }

// Load reads the memory of processes that are yet to be restored from the files
// in dir, to the devices of the map. Resume gives it to them.
func (s *SplitEngine) Load(ctx context.Context, dir string, procs []gpuplugin.Process, devices gpuplugin.DeviceMap) error {
	req := LoadRequest{Dir: dir, Parcels: s.parcelsOf(procs), Devices: devices}
	s.mu.Lock()
	for _, parcel := range req.Parcels {
		s.parcels[parcel] = true
	}
	s.mu.Unlock()
	loaded, err := s.mover.Load(ctx, req)
	if err != nil {
		return fmt.Errorf("load device memory: %w", explained(err))
	}
	trace(ctx, loaded.Phases)
	return nil
}

// Drop forgets what is left of the memory of all processes: the copy of what
// was given back, and what nobody is there to take. What is still away from a
// process is lost then, unless a keeper has it.
func (s *SplitEngine) Drop(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.closeKeeper()) }()
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
	return nil
}

func (s *SplitEngine) parcel(p gpuplugin.Process) string { return parcelName(s.name, p) }

func (s *SplitEngine) parcelsOf(procs []gpuplugin.Process) []string {
	return parcelNames(s.name, procs)
}

func splitOf(procs []gpuplugin.Process) []gpuplugin.Process {
	var split []gpuplugin.Process
	for _, p := range procs {
		if p.Split {
			split = append(split, p)
		}
	}
	return split
}

// served is what the driver engine is told to go back to: a process that is
// split has to be served by the driver, whatever it was found in, to get its
// memory back.
func served(procs []gpuplugin.Process) []gpuplugin.Process {
	out := make([]gpuplugin.Process, len(procs))
	for i, p := range procs {
		if p.Split {
			p.State = gpuplugin.StateRunning
		}
		out[i] = p
	}
	return out
}

// stopped keeps those that are not split locked while they could run before the
// split ones have their memory.
func stopped(procs, split []gpuplugin.Process) []gpuplugin.Process {
	if len(split) == 0 {
		return procs
	}
	for i, p := range procs {
		if !p.Split && p.State == gpuplugin.StateRunning {
			procs[i].State = gpuplugin.StateLocked
		}
	}
	return procs
}

// unlessGone forgives what failed because the process has exited: its GPU state
// has gone with it.
func unlessGone(err error) error {
	if errors.Is(err, helperapi.ErrGone) {
		return nil
	}
	return err
}
