// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// fetched is a connection to a keeper whose memory is in parcels here. Its
// fields are guarded by Mover.mu.
//
// The keeper can lend the memory anew when the connection ends, but not if it may
// have been changed: so it is told before it can be, and when it was not (use).
type fetched struct {
	conn    *keeper.Conn
	parcels []string
	// devices are those that it is on.
	devices []string
	// clients are the processes that were given some of it.
	clients map[client]gate
	// used says that the keeper was told, and changed that it may have been.
	used, changed bool
}

// gate says what a process can do that was given memory.
type gate int

const (
	// stillParked can't go on before it has the rest, and has nothing without its connection.
	stillParked gate = iota
	// gateClosed goes on with the end of its connection.
	gateClosed
	// gateOpen may have gone on.
	gateOpen
)

// lenderLocked is where a parcel was fetched from, nil for nowhere.
func (m *Mover) lenderLocked(parcel string) *fetched {
	for _, f := range m.fetched {
		if slices.Contains(f.parcels, parcel) {
			return f
		}
	}
	return nil
}

// use has the keeper know whether the memory of a parcel may be changing.
func (m *Mover) use(ctx context.Context, parcel string, used bool) error {
	m.mu.Lock()
	f := m.lenderLocked(parcel)
	if f == nil || f.used == used || f.changed {
		m.mu.Unlock()
		return nil
	}
	m.mu.Unlock()
	err := f.conn.Use(ctx, used)
	if errors.Is(err, gpuplugin.ErrNotKept) {
		err = nil // nobody else has it any more
	}
	if err == nil {
		m.mu.Lock()
		f.used = used
		m.mu.Unlock()
	}
	return err
}

// given notes that a process has the memory of a parcel.
func (m *Mover) given(parcel string, key client, at gate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.lenderLocked(parcel); f != nil {
		f.clients[key] = max(f.clients[key], at)
		f.changed = f.changed || at == gateOpen
	}
}

// lentTo tells whether a process has memory of a keeper.
func (m *Mover) lentTo(key client) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.fetched {
		if _, ok := f.clients[key]; ok {
			return true
		}
	}
	return false
}

// free notes that a process is not held any more.
func (m *Mover) free(key client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.fetched {
		f.changed = f.changed || f.clients[key] >= gateClosed
	}
}

// without notes that a process has no memory of a keeper any more, and has changed none.
func (m *Mover) without(key client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.fetched {
		delete(f.clients, key)
	}
}

// Keep implements nvidia.Keeping.
func (m *Mover) Keep(ctx context.Context, req nvidia.KeepRequest) (kept nvidia.Kept, err error) {
	parcels, err := m.begin("keep", req.Parcels...)
	if err != nil {
		return kept, err
	}
	defer m.end(parcels)
	memory := keeper.Memory{Processes: len(parcels), Pieces: []keeper.Piece{}}
	var fds []int
	numbers := map[*piece]int{}
	for _, p := range parcels {
		for i := range p.pieces {
			numbers[&p.pieces[i]] = len(numbers) + 1
		}
	}
	for i, p := range parcels {
		if p.damage != nil {
			return kept, p.damage
		}
		for _, piece := range p.pieces {
			if piece.fd < 0 {
				return kept, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "keep", Detail: fmt.Sprintf("parcel %q was given back already", p.name)}
			}
			memory.Pieces = append(memory.Pieces, keeper.Piece{
				Process: i, ID: piece.chunk.ID, Address: piece.chunk.Address, Size: piece.chunk.Size, Device: piece.device, Flags: piece.chunk.Flags,
				Maker: numbers[piece.same],
			})
			fds = append(fds, piece.fd)
		}
	}
	kept.Bytes = memory.Devices()
	if kept.Digest, err = memory.Digest(); err != nil {
		return kept, err
	}
	conn, err := keeper.Home(req.Home).Connect(ctx, req.Keeper)
	if err == nil {
		err = errors.Join(conn.Give(ctx, memory, fds), conn.Close())
	}
	if err != nil {
		return nvidia.Kept{}, fmt.Errorf("leave device memory to a keeper: %w", err)
	}
	return kept, nil
}

// Fetch implements nvidia.Keeping.
func (m *Mover) Fetch(ctx context.Context, req nvidia.FetchRequest) (kept nvidia.Kept, err error) {
	parcels, err := m.claim("fetch", req.Parcels...)
	if err != nil {
		return kept, err
	}
	defer m.end(parcels)
	conn, err := keeper.Home(req.Home).Connect(ctx, req.Keeper)
	if err != nil {
		return kept, errors.Join(err, m.forget(parcels))
	}
	memory, fds, err := conn.Take(ctx, req.Digest, req.By)
	if err == nil {
		err = m.adopt(parcels, memory, fds)
	}
	for _, p := range parcels {
		m.owe(p)
	}
	if err != nil {
		return nvidia.Kept{}, errors.Join(err, m.forget(parcels), conn.Close())
	}
	kept = nvidia.Kept{Digest: req.Digest, Bytes: memory.Devices()}
	m.mu.Lock()
	m.fetched[req.Keeper] = &fetched{conn: conn, parcels: slices.Clone(req.Parcels), devices: slices.Collect(maps.Keys(kept.Bytes)), clients: map[client]gate{}}
	m.mu.Unlock()
	return kept, nil
}

// adopt makes parcels of what a keeper gave. The descriptors are the parcels'
// then, also after an error.
func (m *Mover) adopt(parcels []*parcel, memory keeper.Memory, fds []int) (err error) {
	if memory.Processes != len(parcels) {
		hetcuda.Discard(fds)
		return fmt.Errorf("the keeper has the memory of %d processes, and %d are to be restored", memory.Processes, len(parcels))
	}
	for i, p := range memory.Pieces {
		device, bad := memfile.ParseUUID(p.Device)
		if p.Flags&hetcuda.Imported != 0 && p.Maker == 0 {
			bad = fmt.Errorf("the keeper does not say who has made chunk %d of process %d", p.ID, p.Process)
		}
		err = errors.Join(err, bad)
		to := parcels[p.Process]
		to.pieces = append(to.pieces, piece{
			chunk:  hetcuda.Chunk{ID: p.ID, Address: p.Address, Size: p.Size, Device: device, Flags: p.Flags},
			device: p.Device, fd: fds[i],
		})
	}
	var all []*piece
	for _, p := range parcels {
		for i := range p.pieces {
			all = append(all, &p.pieces[i])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range memory.Pieces {
		if p.Maker == 0 {
			continue
		}
		all[i].same = all[p.Maker-1]
		m.waitLocked(all[i])
	}
	return err
}

// Spend implements nvidia.Keeping.
func (m *Mover) Spend(ctx context.Context, name, by string) error {
	m.mu.Lock()
	f := m.fetched[name]
	delete(m.fetched, name)
	m.mu.Unlock()
	if f == nil {
		return &helperapi.Error{Class: helperapi.Class_CLASS_NO_STATE, Call: "spend", Detail: fmt.Sprintf("nothing was fetched from keeper %s", name)}
	}
	// After an error the end of the connection says that it was not spent.
	err := errors.Join(f.conn.Spend(ctx, by), f.conn.Close())
	if errors.Is(err, gpuplugin.ErrNotKept) {
		err = nil // the processes have the memory, and nobody else
	}
	if err != nil {
		return err
	}
	// Nor does the keeper have it any more. Who is not heard goes on: there is nothing
	// that it could be given instead.
	_ = inParallel(slices.Collect(maps.Keys(f.clients)), func(key client) error {
		c := m.holding(key)
		if c == nil {
			return nil
		}
		if err := m.ownBy(ctx, key, c, f.devices); err != nil {
			log.G(ctx).WithError(err).Warn("a process was not heard")
		}
		return nil
	})
	return nil
}

// deathTimeout is how long processes that die may take to end: the driver takes
// their memory apart first.
const deathTimeout = 20 * time.Second

// abandoned waits until no process has the memory any more.
func (f *fetched) abandoned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	for key := range f.clients {
		if err := hetcuda.AwaitEnd(ctx, key.pid); err != nil {
			return fmt.Errorf("it still has memory that is kept: %w", err)
		}
	}
	return nil
}

// giveBack ends what was fetched into any of these parcels.
func (m *Mover) giveBack(ctx context.Context, names []string) error {
	m.mu.Lock()
	var ended, back []*fetched
	for name, f := range maps.Clone(m.fetched) {
		if !slices.ContainsFunc(f.parcels, func(p string) bool { return slices.Contains(names, p) }) {
			continue
		}
		delete(m.fetched, name)
		if ended = append(ended, f); f.used && !f.changed {
			back = append(back, f)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, f := range back {
		if err := f.abandoned(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f.conn.Use(ctx, false))
	}
	for _, f := range ended {
		errs = append(errs, f.conn.Close())
	}
	return errors.Join(errs...)
}
