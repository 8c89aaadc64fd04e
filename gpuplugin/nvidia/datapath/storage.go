// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Storage is a [Machine] whose driver shows the memory of other processes.
type Storage interface {
	// BeginCheckpoint and BeginRestore need all devices of the process open.
	BeginCheckpoint(pid int) (Operation, error)
	BeginRestore(pid int, devices gpuplugin.DeviceMap) (Operation, error)
}

// Operation is a checkpoint or restore of a process that is to be completed.
type Operation interface {
	// Views are the memory of the process, at most one on a device.
	Views() []View
	// Complete ends it and takes the views away; it can be called once.
	Complete() error
	// Gone tells whether the process has ended.
	Gone() bool
}

// View is all memory of a process on a device.
type View struct {
	UUID          string
	Address, Size uint64
}

// storageLanes is how many copy into one device's view at once: 2 to 4 queues
// reach its limit of 12 GB/s, and more are slower (seen by others on an A10G,
// driver 615).
const storageLanes = 4

var _ nvidia.Storer = (*Mover)(nil)

// custom is a parcel that came by custom storage.
type custom struct {
	// operation is under way: the checkpoint that shows the parcel's views, or
	// if target is not nil the restore that shows these.
	operation Operation
	target    []*area
	// host has the views' memory where neither device nor directory could take it.
	host [][]byte
	// saved is where it is in files; nil if it is not.
	saved *source
}

// source is the memory of one process in a snapshot.
type source struct {
	dir     string
	process int
	// key is the one that it was saved with here: it may be all that is left of
	// the memory, and must not depend on a file. Nil for the key file's.
	key *memfile.Key
}

// safe tells whether the views are anywhere else.
func (p *parcel) safe() bool { return p.duplicated || p.saved != nil || p.host != nil }

func (m *Mover) storage() (Storage, error) {
	s, ok := m.machine.(Storage)
	if !ok {
		return nil, &helperapi.Error{Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "custom storage"}
	}
	return s, nil
}

func (m *Mover) openAll(ctx context.Context, uuids []string) error {
	return inParallel(uuids, func(uuid string) error {
		_, err := m.open(ctx, uuid)
		return err
	})
}

// Map implements nvidia.Storer.
func (m *Mover) Map(ctx context.Context, req nvidia.MapRequest) (nvidia.Parked, error) {
	storage, err := m.storage()
	if err != nil {
		return nvidia.Parked{}, err
	}
	parcels, err := m.claim("map", req.Parcel)
	if err != nil {
		return nvidia.Parked{}, err
	}
	defer m.end(parcels)
	p := parcels[0]
	err = m.openAll(ctx, req.Devices)
	if err == nil {
		p.operation, err = storage.BeginCheckpoint(req.PID)
	}
	if err != nil {
		p.operation = nil
		return nvidia.Parked{}, errors.Join(err, m.forget(parcels))
	}
	// From here on the parcel stays, whatever is wrong with it: Fill ends it.
	if p.views, err = m.areas(ctx, p.operation.Views()); err != nil {
		return nvidia.Parked{}, err
	}
	parked := nvidia.Parked{Chunks: len(p.views), Bytes: map[string]uint64{}}
	at := uint64(0)
	for i, view := range p.views {
		id, err := memfile.ParseUUID(view.device.uuid)
		if err != nil {
			return nvidia.Parked{}, err
		}
		p.pieces = append(p.pieces, piece{
			chunk:  hetcuda.Chunk{ID: uint64(i), Address: at, Size: view.size, Device: id},
			device: view.device.uuid, fd: -1, view: i,
		})
		at += view.size
		parked.Bytes[view.device.uuid] += view.size
	}
	p.repoint()
	return parked, nil
}

// areas are views that somebody else maps and unmaps.
func (m *Mover) areas(ctx context.Context, views []View) ([]*area, error) {
	var areas []*area
	for _, v := range views {
		d, err := m.open(ctx, v.UUID)
		if err != nil {
			return nil, err
		}
		areas = append(areas, &area{device: d, base: v.Address, size: v.Size, used: v.Size, foreign: true})
	}
	return areas, nil
}

// Settle implements nvidia.Storer.
func (m *Mover) Settle(_ context.Context, name string) error {
	p, end, err := m.beginReturn("settle", name)
	if err != nil {
		return err
	}
	defer end()
	if p.operation == nil || p.target != nil || !p.safe() {
		return &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "settle", Detail: fmt.Sprintf("parcel %q is not copied, or not to be completed", name)}
	}
	return m.complete(p)
}

func (m *Mover) complete(p *parcel) error {
	op := p.operation
	p.operation = nil
	err := op.Complete()
	return errors.Join(err, m.giveUp(p))
}

// Fill implements nvidia.Storer.
func (m *Mover) Fill(ctx context.Context, req nvidia.FillRequest) error {
	storage, err := m.storage()
	if err != nil {
		return err
	}
	p, end, err := m.beginFill(req)
	if err != nil {
		return err
	}
	defer end()
	if p.operation != nil && p.target == nil {
		if err := m.rescue(ctx, p); err != nil {
			return fmt.Errorf("its memory can't be copied anywhere: %w", err)
		}
		if err := m.complete(p); err != nil {
			return err
		}
	}
	if p.operation == nil {
		if err := m.openAll(ctx, req.Devices); err != nil {
			return err
		}
		op, err := storage.BeginRestore(req.PID, req.Map)
		if errors.Is(err, helperapi.ErrIllegalState) {
			// Not the state of ours that a caller waits for.
			err = &helperapi.Error{Call: "fill", Detail: err.Error()}
		}
		if err != nil {
			return err
		}
		p.operation, p.target = op, []*area{}
	}
	if p.target, err = m.areas(ctx, p.operation.Views()); err != nil {
		return err
	}
	if p.target == nil { // of no memory at all
		p.target = []*area{}
	}
	if err := m.fill(ctx, p, req.Map); err != nil {
		return sorted(fmt.Errorf("fill device memory: %w", err))
	}
	op := p.operation
	p.operation, p.target = nil, nil
	if err := op.Complete(); err != nil {
		return err
	}
	if p.duplicated {
		return nil
	}
	if err := m.forget([]*parcel{p}); err != nil {
		log.G(ctx).WithError(err).Warn("a copy of memory that was given back is still held here")
	}
	return nil
}

// beginFill finds the parcel, or makes one of what is in files.
func (m *Mover) beginFill(req nvidia.FillRequest) (*parcel, func(), error) {
	p, end, err := m.beginReturn("fill", req.Parcel)
	if !errors.Is(err, helperapi.ErrNoState) || req.Dir == "" {
		return p, end, err
	}
	parcels, err := m.claim("fill", req.Parcel)
	if err != nil {
		return nil, nil, err
	}
	parcels[0].saved = &source{dir: req.Dir, process: req.Process}
	return parcels[0], func() { m.end(parcels) }, nil
}

// fill writes the memory of a parcel where the driver shows that of the process.
func (m *Mover) fill(ctx context.Context, p *parcel, devices gpuplugin.DeviceMap) error {
	if !p.duplicated && p.host == nil {
		return m.fillFiles(ctx, p, devices)
	}
	from := make(map[string]int, len(p.pieces))
	for i, piece := range p.pieces {
		from[piece.device] = i
	}
	if len(p.target) != len(from) {
		return fmt.Errorf("the driver shows memory on %d devices, and %d were saved", len(p.target), len(from))
	}
	return inParallel(p.target, func(to *area) error {
		i, ok := from[to.device.uuid]
		if !ok || p.pieces[i].chunk.Size != to.size {
			return fmt.Errorf("the driver shows %d bytes on %s, which is not what was saved", to.size, to.device.uuid)
		}
		if p.host != nil {
			return to.fromHost(p.host[i])
		}
		stream, err := to.device.NewStream()
		if err != nil {
			return err
		}
		return errors.Join(stream.Copy(to.base, p.copies[i].base, to.size), stream.Wait(), stream.Close())
	})
}

// fillFiles reads the files of one process, and verifies them.
func (m *Mover) fillFiles(ctx context.Context, p *parcel, devices gpuplugin.DeviceMap) (err error) {
	l := &load{mover: m, dir: p.saved.dir, key: p.saved.key, progress: newProgress(), lanes: storageLanes}
	m.show([]*parcel{p}, l.progress)
	l.progress.enter(phaseMap)
	if err := l.open(); err != nil {
		return err
	}
	defer l.close()
	if p.saved.process >= len(l.index.Processes) {
		return fmt.Errorf("%w: the index has %d processes, and number %d is asked for", memfile.ErrDamaged, len(l.index.Processes), p.saved.process)
	}
	for range l.index.Processes {
		l.parcels = append(l.parcels, &parcel{name: p.name})
	}
	l.pieces(p.saved.process, devices)
	pieces := l.parcels[p.saved.process].pieces
	if len(p.target) != len(pieces) {
		return fmt.Errorf("the driver shows memory on %d devices, and %d were saved", len(p.target), len(pieces))
	}
	for i := range pieces {
		piece := &pieces[i]
		for _, to := range p.target {
			if to.device.uuid == piece.device && to.size == piece.chunk.Size {
				piece.address = to.base
			}
		}
		if piece.address == 0 {
			return fmt.Errorf("the driver shows no memory of %d bytes on %s", piece.chunk.Size, piece.device)
		}
	}
	return l.fill(ctx)
}

// rescue copies views that are nowhere else: within the devices or, if they have
// no room, to host memory.
func (m *Mover) rescue(ctx context.Context, p *parcel) error {
	if p.safe() {
		return nil
	}
	if done, err := m.duplicateAll(ctx, []*parcel{p}); done {
		return nil
	} else if err != nil {
		log.G(ctx).WithError(err).Warn("device memory can't be copied on its device; it is copied to host memory")
	}
	need := uint64(0)
	for _, view := range p.views {
		need += view.size
	}
	if free, err := availableMemory(); err != nil || free < need {
		return fmt.Errorf("%d bytes are needed, and %d bytes of host memory are free: %w", need, free, errors.Join(helperapi.ErrNoSpace, err))
	}
	host := [][]byte{}
	for _, view := range p.views {
		mem, err := unix.Mmap(-1, 0, int(view.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err == nil {
			host = append(host, mem)
			err = view.toHost(mem)
		}
		if err != nil {
			return errors.Join(err, unmap(host))
		}
	}
	p.host = host
	return nil
}

func unmap(host [][]byte) error {
	var errs []error
	for _, mem := range host {
		errs = append(errs, unix.Munmap(mem))
	}
	return errors.Join(errs...)
}

// toHost and fromHost copy all of an area, from and to memory that is not pinned.
func (a *area) toHost(mem []byte) error {
	return a.inParts(mem, func(s Stream, at, n uint64) error { return s.ToHost(mem[at:at+n], a.base+at) })
}

func (a *area) fromHost(mem []byte) error {
	return a.inParts(mem, func(s Stream, at, n uint64) error { return s.FromHost(a.base+at, mem[at:at+n]) })
}

func (a *area) inParts(mem []byte, f func(s Stream, at, n uint64) error) error {
	stream, err := a.device.NewStream()
	if err != nil {
		return err
	}
	size, part := uint64(len(mem)), uint64(a.device.cfg.SlotSize)
	for at := uint64(0); at < size && err == nil; at += part {
		err = f(stream, at, min(part, size-at))
	}
	return errors.Join(err, stream.Wait(), stream.Close())
}

// availableMemory is how much memory can be had without swapping (proc(5)).
func availableMemory() (uint64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(text, " kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

// waitedFor sorts out the parcels of processes that wait for an operation to be
// completed. Dropped, it could only be completed, without their memory.
func waitedFor(parcels []*parcel) (free, waited []*parcel) {
	for _, p := range parcels {
		if p.operation != nil && !p.operation.Gone() {
			waited = append(waited, p)
		} else {
			free = append(free, p)
		}
	}
	return free, waited
}

// abandon lets go of what is there for a process that has ended.
func (p *parcel) abandon() error {
	op := p.operation
	p.operation, p.target = nil, nil
	err := unmap(p.host)
	p.host = nil
	if op != nil {
		_ = op.Complete() // it ends the views, also where the driver finds no process
	}
	return err
}
