// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package gputest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// The calls of a [Library].
const (
	OpClients   Op = "clients"
	OpHold      Op = "hold"
	OpRelease   Op = "release"
	OpPark      Op = "park"
	OpCommit    Op = "commit"
	OpUnpark    Op = "unpark"
	OpDuplicate Op = "duplicate"
	OpSave      Op = "save"
	OpLoad      Op = "load"
	OpDrop      Op = "drop"
)

// Library is libhetcuda in processes of a [Machine], and the device helper that
// holds what is taken out of them. It satisfies nvidia.Mover; its calls are
// recorded among the machine's, and the machine's faults strike them.
//
// Library.mu guards it and is held neither while a call hangs nor across calls
// of the machine that may hang.
type Library struct {
	tb testing.TB
	m  *Machine

	mu sync.Mutex
	// clients are the processes that run the library, by PID.
	clients map[int]*client
	// parcels are what the helper holds, files what was saved.
	parcels map[string]*parcel
	files   []Memory
	room    bool
	// steps says that the library can step.
	steps bool
	// kept are keepers, by their names, which are numbers up to keepers.
	kept    map[string]*kept
	keepers int
}

type client struct {
	state nvidia.ClientState
	// memory is what it owns, wherever it is.
	memory Memory
}

type parcel struct {
	memory Memory
	// from is the process that has not let go of it yet.
	from int
	// copied says that there is a copy, given that the original was given back.
	copied, given bool
}

var _ nvidia.Mover = (*Library)(nil)

// NewLibrary returns a library that no process runs yet, on devices with room
// for a copy.
func NewLibrary(m *Machine) *Library {
	return &Library{tb: m.tb, m: m, clients: map[int]*client{}, parcels: map[string]*parcel{}, kept: map[string]*kept{}, room: true, steps: true}
}

// SetRoom says whether the devices have room for a copy.
func (l *Library) SetRoom(room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room = room
}

// Join has a process run the library, which owns all of its memory so far.
func (l *Library) Join(pids ...int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pid := range pids {
		l.clients[pid] = &client{state: nvidia.ClientRunning, memory: l.m.MemoryOf(pid)}
	}
}

// Die is the end of the helper: what it holds is lost, and the next call finds
// another one.
func (l *Library) Die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.parcels)
	for _, c := range l.clients {
		if c.state == nvidia.ClientHeld {
			c.state = nvidia.ClientRunning
		}
	}
}

// StateOf returns the state of a process that runs the library.
func (l *Library) StateOf(pid int) nvidia.ClientState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clients[pid]; c != nil {
		return c.state
	}
	return ""
}

// Held are the names of the parcels.
func (l *Library) Held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.parcels))
}

// LibraryImage is a process that runs the library, on disk.
type LibraryImage struct {
	image  Image
	client client
}

// Dump is what CRIU's dump has of a process. Device memory in it fails the test.
func (l *Library) Dump(pid int) LibraryImage {
	l.tb.Helper()
	image := l.m.Dump(pid)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := *l.clients[pid]
	if c.state != nvidia.ClientParked {
		l.tb.Fatalf("process %d was dumped with its device memory", pid)
	}
	return LibraryImage{image, c}
}

// Revive is CRIU's restore of an image, as another process or the same.
func (l *Library) Revive(pid int, image LibraryImage) {
	l.tb.Helper()
	l.m.Revive(pid, image.image)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := image.client
	l.clients[pid] = &c
}

func (l *Library) find(pid int, want ...nvidia.ClientState) (*client, error) {
	c := l.clients[pid]
	switch {
	case l.m.StateOf(pid) == "":
		return nil, driverError(OpClients, helperapi.Class_CLASS_GONE, 0, "")
	case c == nil:
		return nil, driverError(OpClients, helperapi.Class_CLASS_NO_STATE, 0, "")
	case !slices.Contains(want, c.state):
		return nil, driverError(OpClients, helperapi.Class_CLASS_ILLEGAL_STATE, 0, string(c.state))
	}
	return c, nil
}

// serve makes one call, on which a fault may strike.
func (l *Library) serve(ctx context.Context, op Op, pid int, work func() error) error {
	fault := l.m.fault(op, pid)
	if !fault.After {
		if err := fault.strike(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	err := work()
	l.mu.Unlock()
	if err == nil && fault.After {
		err = fault.strike(ctx)
	}
	return err
}

// Clients implements nvidia.Mover.
func (l *Library) Clients(ctx context.Context, _ string) (list []nvidia.Client, err error) {
	err = l.serve(ctx, OpClients, 0, func() error {
		for pid, c := range l.clients {
			if l.m.StateOf(pid) != "" {
				list = append(list, nvidia.Client{PID: pid, State: c.state, Steps: l.steps})
			}
		}
		return nil
	})
	return list, err
}

// Hold implements nvidia.Mover.
func (l *Library) Hold(ctx context.Context, _ string, pid int, _ time.Duration) error {
	return l.serve(ctx, OpHold, pid, func() error {
		c, err := l.find(pid, nvidia.ClientRunning, nvidia.ClientHeld)
		if err == nil {
			c.state = nvidia.ClientHeld
		}
		return err
	})
}

// HoldTogether implements nvidia.Mover. Each process is a call of its own to
// what is recorded, and to faults.
func (l *Library) HoldTogether(ctx context.Context, dir string, pids []int, timeout time.Duration) error {
	var held []int
	for _, pid := range pids {
		before := l.StateOf(pid)
		err := l.Hold(ctx, dir, pid, timeout)
		switch {
		case errors.Is(err, helperapi.ErrGone):
		case err != nil:
			l.letGo(held)
			return &gpuplugin.ProcessError{PID: pid, Op: "hold", Err: err}
		case before == nvidia.ClientRunning:
			held = append(held, pid)
		}
	}
	return nil
}

// letGo is what becomes of some if another can't be held.
func (l *Library) letGo(pids []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pid := range pids {
		if c := l.clients[pid]; c != nil && c.state == nvidia.ClientHeld {
			c.state = nvidia.ClientRunning
		}
	}
}

// SetSteps says whether the library can let processes on step by step.
func (l *Library) SetSteps(steps bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = steps
}

// Release implements nvidia.Mover.
func (l *Library) Release(ctx context.Context, _ string, pid int) error {
	return l.serve(ctx, OpRelease, pid, func() error {
		if c := l.clients[pid]; c != nil && c.state == nvidia.ClientHeld {
			c.state = nvidia.ClientRunning
		}
		maps.DeleteFunc(l.parcels, func(_ string, p *parcel) bool { return p.from == pid })
		return nil
	})
}

// Park implements nvidia.Mover. The driver has to serve the process for it, which
// has its memory still.
func (l *Library) Park(ctx context.Context, req nvidia.ParkRequest) (parked nvidia.Parked, err error) {
	err = l.serve(ctx, OpPark, req.PID, func() error {
		c, err := l.find(req.PID, nvidia.ClientHeld)
		if err != nil {
			return err
		}
		for uuid, bytes := range c.memory {
			if bytes > req.Devices[uuid] {
				return driverError(OpPark, helperapi.Class_CLASS_OTHER, 0, fmt.Sprintf("%d bytes on %s, of %v", bytes, uuid, req.Devices))
			}
		}
		l.parcels[req.Parcel] = &parcel{memory: c.memory, from: req.PID}
		parked = nvidia.Parked{Chunks: len(c.memory), Bytes: c.memory}
		return nil
	})
	return parked, err
}

// Commit implements nvidia.Mover. Each process is a call of its own to what is
// recorded, and to faults; the driver has to serve it.
func (l *Library) Commit(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		l.mu.Lock()
		p := l.parcels[name]
		l.mu.Unlock()
		if p == nil {
			continue // its process is gone
		}
		err := l.serve(ctx, OpCommit, p.from, func() error {
			c, err := l.find(p.from, nvidia.ClientHeld)
			if err == nil {
				err = l.m.take(p.from, c.memory)
			}
			if err != nil {
				delete(l.parcels, name)
				return err
			}
			c.state, p.from = nvidia.ClientParked, 0
			return nil
		})
		if !errors.Is(err, helperapi.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Duplicate implements nvidia.Mover.
func (l *Library) Duplicate(ctx context.Context, parcels []string) (done bool, err error) {
	err = l.serve(ctx, OpDuplicate, 0, func() error {
		found, err := l.all(parcels)
		for _, p := range found {
			p.copied = l.room
		}
		done = l.room
		return err
	})
	return done, err
}

// all finds parcels, each with its memory in it.
func (l *Library) all(names []string) ([]*parcel, error) {
	var found []*parcel
	for _, name := range names {
		p := l.parcels[name]
		if p == nil || p.given && !p.copied {
			return nil, driverError(OpSave, helperapi.Class_CLASS_NO_STATE, 0, name)
		}
		found = append(found, p)
	}
	return found, nil
}

// Unpark implements nvidia.Mover. The driver has to serve the process for it.
func (l *Library) Unpark(ctx context.Context, _ string, pid int, name string) error {
	return l.serve(ctx, OpUnpark, pid, func() error {
		if p := l.parcels[name]; p != nil && p.from == pid {
			delete(l.parcels, name)
			return nil
		}
		c, err := l.find(pid, nvidia.ClientParked)
		if err != nil {
			return err
		}
		p := l.parcels[name]
		if p == nil || p.given {
			return driverError(OpUnpark, helperapi.Class_CLASS_NO_STATE, 0, name)
		}
		if err := l.m.give(pid, p.memory); err != nil {
			return err
		}
		c.state, c.memory = nvidia.ClientHeld, p.memory
		if p.given = true; !p.copied {
			delete(l.parcels, name)
		}
		return nil
	})
}

// Save implements nvidia.Mover.
func (l *Library) Save(ctx context.Context, req nvidia.SaveRequest) (saved nvidia.Saved, err error) {
	err = l.serve(ctx, OpSave, 0, func() error {
		found, err := l.all(req.Parcels)
		for _, p := range found {
			l.files = append(l.files, maps.Clone(p.memory))
			for _, bytes := range p.memory {
				saved.Bytes += bytes
			}
		}
		saved.Stored = saved.Bytes
		saved.Files = []nvidia.SavedFile{{Name: "hetgpu-mem-0.img"}, {Name: "hetgpu-mem.img"}}
		return err
	})
	return saved, err
}

// Load implements nvidia.Mover.
func (l *Library) Load(ctx context.Context, req nvidia.LoadRequest) (loaded nvidia.Loaded, err error) {
	err = l.serve(ctx, OpLoad, 0, func() error {
		if len(req.Parcels) != len(l.files) {
			return driverError(OpLoad, helperapi.Class_CLASS_DAMAGED, 0, fmt.Sprint(req.Parcels))
		}
		for i, name := range req.Parcels {
			memory := Memory{}
			for uuid, bytes := range l.files[i] {
				if to, ok := req.Devices[uuid]; ok {
					uuid = to
				}
				memory[uuid] = bytes
				loaded.Bytes += bytes
			}
			l.parcels[name] = &parcel{memory: memory}
		}
		return nil
	})
	return loaded, err
}

// Drop implements nvidia.Mover.
func (l *Library) Drop(ctx context.Context, parcels []string) error {
	return l.serve(ctx, OpDrop, 0, func() error {
		for _, name := range parcels {
			delete(l.parcels, name)
		}
		l.giveBack(parcels)
		return nil
	})
}

// Progress implements nvidia.Mover.
func (l *Library) Progress(context.Context, string) (nvidia.Progress, error) {
	return nvidia.Progress{}, nil
}

// take takes memory out of a process, by calls of its own.
func (m *Machine) take(pid int, memory Memory) error {
	return m.remap(pid, memory, func(has, bytes uint64) uint64 { return has - bytes })
}

// give is the way back.
func (m *Machine) give(pid int, memory Memory) error {
	return m.remap(pid, memory, func(has, bytes uint64) uint64 { return has + bytes })
}

func (m *Machine) remap(pid int, memory Memory, change func(has, bytes uint64) uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(pid)
	if err != nil {
		return err
	}
	if p.state != gpuplugin.StateRunning {
		return driverError(OpPark, helperapi.Class_CLASS_ILLEGAL_STATE, 0, "its calls wait: "+strings.ToUpper(string(p.state)))
	}
	for uuid, bytes := range memory {
		p.memory[uuid] = change(p.memory[uuid], bytes)
	}
	return nil
}
