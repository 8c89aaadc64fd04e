// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package datapath moves device memory in the device helper: out of processes
// that run libhetcuda, into copies on the device, to a snapshot's files and back.
// It implements nvidia.Mover on devices that [Machine] opens.
//
// Descriptors of parked memory keep it alive; a device is told of them only when
// the memory is copied. Data goes through pinned memory that is kept, by several
// lanes at once for each device: a lane copies a few blocks, waits, and reads or
// writes its file. Nothing is held in host memory twice.
//
// Mover.mu guards the tables, and is not held during any call of a device, of a
// client or of a file system: a parcel that is used is marked instead. The package
// must not know of containers, and loads no driver.
package datapath

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Config says how data is moved.
type Config struct {
	// SlotSize is what a lane moves at once, a multiple of memfile.BlockSize,
	// and Slots how many are pinned for each device.
	SlotSize, Slots int
	// Lanes is how many copy and read or write at once, for each device.
	Lanes int
	// Spare is the device memory that Duplicate leaves, beside what the processes
	// had kept to be used again.
	Spare uint64
	// Idle is how long devices stay open that nobody uses.
	Idle time.Duration
	// KeyFile has the key with which files are encrypted ([memfile.ReadKey]); "" for
	// none.
	KeyFile string
}

// DefaultConfig pins 256 MiB a device, up to 512 MiB on a machine with many
// processors. "hetgpu-gpu selftest" measures others.
func DefaultConfig() Config {
	n := lanesFor(runtime.NumCPU())
	return Config{SlotSize: 32 << 20, Slots: n, Lanes: n, Spare: 512 << 20, Idle: time.Minute}
}

// lanesFor is how many lanes a machine has for a device. One that writes to a
// tmpfs keeps a processor busy at about 2 GB/s, and rests while the device copies
// the next slot: 8 of them came to 14 to 16 GB/s where the device's bus does 55
// (docs/results/2026-11-22-h200-split). Some processors are left for CRIU.
func lanesFor(processors int) int { return min(max(8, processors*3/4), 16) }

// Mover implements nvidia.Mover.
type Mover struct {
	machine Machine
	cfg     Config
	turns   turns

	mu      sync.Mutex
	devices map[string]*openDevice
	parcels map[string]*parcel
	held    map[client]*hetcuda.Conn
	fetched map[string]*fetched
	// importers are the pieces that others stand for, until those are back; waiting
	// says of each why it can't be given back yet. unsettled are pieces of memory
	// that another process has still.
	importers map[*piece][]*piece
	waiting   map[*piece]error
	unsettled map[*piece]bool
	// places is how many nonces were made.
	places uint64
	// users is how many operations are under way, and idle ends the devices.
	users int
	idle  *time.Timer
}

var (
	_ nvidia.Mover    = (*Mover)(nil)
	_ nvidia.Preparer = (*Mover)(nil)
)

// client names a process.
type client struct {
	dir string
	pid int
}

// openDevice is a device that is being opened, or is.
type openDevice struct {
	ready chan struct{}
	*device
	err error
}

// New returns a mover that has opened nothing yet.
func New(machine Machine, cfg Config) *Mover {
	return &Mover{
		machine: machine,
		cfg:     cfg,
		devices: map[string]*openDevice{},
		parcels: map[string]*parcel{},
		held:    map[client]*hetcuda.Conn{},
		fetched: map[string]*fetched{},

		importers: map[*piece][]*piece{},
		waiting:   map[*piece]error{},
		unsettled: map[*piece]bool{},
	}
}

// begin marks parcels as used by an operation, and fails if one is used already
// or is missing. end is the way back.
func (m *Mover) begin(what string, names ...string) ([]*parcel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make([]*parcel, 0, len(names))
	for _, name := range names {
		p, ok := m.parcels[name]
		if !ok {
			return nil, &helperapi.Error{Class: helperapi.Class_CLASS_NO_STATE, Call: what, Detail: fmt.Sprintf("there is no parcel %q", name)}
		}
		if err := p.free(what); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	for i, p := range found {
		if p.busy != "" { // named twice
			for _, q := range found[:i] {
				q.busy = ""
			}
			return nil, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: what, Detail: fmt.Sprintf("parcel %q twice", p.name)}
		}
		p.busy = what
	}
	m.enterLocked()
	return found, nil
}

func (m *Mover) end(parcels []*parcel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range parcels {
		p.busy, p.progress = "", nil
	}
	m.leaveLocked()
}

// beginReturn marks a parcel that is given back. One that was copied is only
// marked as that: its copy can be saved before, meanwhile and after, as the
// process goes on.
func (m *Mover) beginReturn(what, name string) (p *parcel, end func(), err error) {
	m.mu.Lock()
	p = m.parcels[name]
	// What is not busy, or saved, has been copied by now or never is meanwhile.
	beside := p != nil && (p.busy == "" || p.busy == saving) && p.duplicated && !p.returning
	if beside {
		p.returning = true
		m.enterLocked()
	}
	m.mu.Unlock()
	if beside {
		return p, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			p.returning = false
			m.leaveLocked()
		}, nil
	}
	parcels, err := m.begin(what, name)
	if err != nil {
		return nil, nil, err
	}
	return parcels[0], func() { m.end(parcels) }, nil
}

// saving is what a parcel is busy with while it is written to files.
const saving = "save"

// claim makes the name of a parcel known, marked as used.
func (m *Mover) claim(what string, names ...string) ([]*parcel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := make([]*parcel, 0, len(names))
	for _, name := range names {
		if _, ok := m.parcels[name]; ok {
			for _, p := range made {
				delete(m.parcels, p.name)
			}
			return nil, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: what, Detail: fmt.Sprintf("there is a parcel %q already", name)}
		}
		p := &parcel{name: name, busy: what}
		m.parcels[name] = p
		made = append(made, p)
	}
	m.enterLocked()
	return made, nil
}

// forget removes parcels that are used, and what they hold.
func (m *Mover) forget(parcels []*parcel) error {
	m.mu.Lock()
	for _, p := range parcels {
		delete(m.parcels, p.name)
	}
	m.mu.Unlock()
	var errs []error
	for _, p := range parcels {
		// Nobody is there any more who could have other memory.
		errs = append(errs, m.settle(p, nil), m.close(p))
	}
	return errors.Join(errs...)
}

func (m *Mover) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enterLocked()
}

func (m *Mover) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked()
}

func (m *Mover) enterLocked() {
	m.users++
	if m.idle != nil {
		m.idle.Stop()
		m.idle = nil
	}
}

// leaveLocked has the devices closed some time after the last use: each costs
// device memory (0.5 GB for a context).
func (m *Mover) leaveLocked() {
	m.users--
	if m.users == 0 && len(m.parcels) == 0 && len(m.held) == 0 && len(m.devices) > 0 && m.idle == nil {
		m.idle = time.AfterFunc(m.cfg.Idle, m.closeIdle)
	}
}

func (m *Mover) closeIdle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = nil
	if m.users > 0 || len(m.parcels) > 0 || len(m.held) > 0 {
		return
	}
	for uuid, d := range m.devices {
		delete(m.devices, uuid)
		// Who opens it anew meanwhile gets another.
		go func() {
			if <-d.ready; d.device != nil {
				_ = d.close() // nothing is lost, and nobody is there to be told
			}
		}()
	}
}

// open returns a device, which it opens if nobody has.
func (m *Mover) open(ctx context.Context, uuid string) (*device, error) {
	m.mu.Lock()
	d, ok := m.devices[uuid]
	if !ok {
		d = &openDevice{ready: make(chan struct{})}
		m.devices[uuid] = d
	}
	m.mu.Unlock()
	if !ok {
		gpu, err := m.machine.Open(uuid)
		if d.err = err; err == nil {
			d.device = newDevice(gpu, uuid, m.cfg)
		} else {
			m.mu.Lock()
			delete(m.devices, uuid)
			m.mu.Unlock()
		}
		close(d.ready)
	}
	select {
	case <-d.ready:
		return d.device, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Prepare implements nvidia.Preparer. Memory is pinned beside what follows: a lane
// that comes before it is ready pins its own.
func (m *Mover) Prepare(ctx context.Context, devices []string) error {
	m.enter()
	defer m.leave()
	return inParallel(devices, func(uuid string) error {
		d, err := m.open(ctx, uuid)
		if err != nil {
			return err
		}
		m.enter()
		go func() {
			defer m.leave()
			if err := d.pin(); err != nil {
				log.G(ctx).WithError(err).WithField(logfields.Device, uuid).Debug("memory is not pinned yet")
			}
		}()
		return nil
	})
}

// Duplicate implements nvidia.Mover.
func (m *Mover) Duplicate(ctx context.Context, names []string) (bool, error) {
	parcels, err := m.begin("duplicate", names...)
	if err != nil {
		return false, err
	}
	defer m.end(parcels)
	return m.duplicateAll(ctx, parcels)
}

func (m *Mover) duplicateAll(ctx context.Context, parcels []*parcel) (bool, error) {
	if err := m.mapAll(ctx, parcels); err != nil {
		return false, err
	}
	trimmed, need := uint64(0), map[*device]uint64{}
	for _, p := range parcels {
		trimmed += p.trimmed // on which of the devices is not said: so on each
		if p.duplicated {
			return false, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "duplicate", Detail: fmt.Sprintf("parcel %q is duplicated already", p.name)}
		}
		for _, a := range p.views {
			need[a.device] += a.device.round(a.used)
		}
	}
	back := returning(parcels)
	for d, bytes := range need {
		free, err := d.Free()
		if err != nil {
			return false, err
		}
		if free < bytes+trimmed+max(m.cfg.Spare, back[d.uuid]) {
			log.G(ctx).Debugf("no copy on the device: %s has %d bytes free, %d are needed", d.uuid, free, bytes)
			return false, nil
		}
	}
	var made []*area
	copies := make([][]*area, len(parcels))
	for i, p := range parcels {
		for _, view := range p.views {
			a, err := p.copyArea(view)
			if err != nil {
				err = errors.Join(err, closeAreas(made))
				if errors.Is(err, helperapi.ErrNoDeviceMemory) {
					return false, nil // somebody else was faster
				}
				return false, err
			}
			made = append(made, a)
			copies[i] = append(copies[i], a)
		}
	}
	if err := duplicate(parcels, copies); err != nil {
		return false, errors.Join(err, closeAreas(made))
	}
	for i, p := range parcels {
		p.copies, p.duplicated = copies[i], true
		p.repoint()
	}
	return true, nil
}

// duplicate copies all views, each on a queue of its own.
func duplicate(parcels []*parcel, copies [][]*area) (err error) {
	var streams []Stream
	for i, p := range parcels {
		for j, view := range p.views {
			s, openErr := view.device.NewStream()
			if openErr != nil {
				err = openErr
				break
			}
			streams = append(streams, s)
			if view.used > 0 {
				err = errors.Join(err, s.Copy(copies[i][j].base, view.base, view.used))
			}
		}
	}
	for _, s := range streams {
		err = errors.Join(err, s.Wait(), s.Close())
	}
	return err
}

// Drop implements nvidia.Mover.
func (m *Mover) Drop(ctx context.Context, names []string) error {
	parcels, err := m.begin("drop", m.there(names)...)
	if err != nil {
		return err
	}
	defer m.end(parcels)
	var errs []error
	parcels, waited := waitedFor(parcels)
	for _, p := range waited {
		errs = append(errs, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "drop", Detail: fmt.Sprintf("the process of parcel %q waits for its memory", p.name)})
	}
	err = errors.Join(append(errs, m.forget(parcels), m.giveBack(ctx, names))...)
	m.bury()
	return err
}

// bury ends the connections that held processes which are gone: nobody asks for those
// again, and devices stay open for them. While there are parcels, of other containers
// too, those may still be asked for.
func (m *Mover) bury() {
	m.mu.Lock()
	held, asked := maps.Clone(m.held), len(m.parcels) > 0
	m.mu.Unlock()
	if asked {
		return
	}
	for key, c := range held {
		if hetcuda.Gone(key.pid) {
			m.hangUp(key, c)
		}
	}
}

// Progress implements nvidia.Mover.
func (m *Mover) Progress(_ context.Context, name string) (nvidia.Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.parcels[name]
	if !ok || p.progress == nil {
		return nvidia.Progress{}, nil
	}
	return p.progress.read(), nil
}

// uuidOf is how a device is named outside.
func uuidOf(raw [16]byte) string { return memfile.UUID(raw).String() }

// inParallel runs f for all, waits, and joins the errors.
func inParallel[T any](all []T, f func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() { errs[i] = f(x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
