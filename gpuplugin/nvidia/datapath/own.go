// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// A process that gets memory back copies it into memory that it makes (own.h in
// libhetcuda), since nobody can pass on what others have made. What was parked lives as
// long as somebody here has a descriptor of it, so to copy it meanwhile takes as much
// room again. Where there is less, the process takes it as it is, we let go of it, and
// only then it is copied, one chunk after the other: each makes room for the next.

// howTaken is the flag with which a parcel's process takes what it has made.
func (m *Mover) howTaken(p *parcel) uint32 {
	switch {
	case m.asIs(p):
		return hetcuda.AsIs
	case !m.roomForTwo(p):
		return hetcuda.Later
	}
	return 0
}

// roomForTwo tells whether all that is still to be given back on a parcel's devices can
// be copied meanwhile. Of a device that is not open that isn't known: to find out
// would cost a context, and more time than it could save.
func (m *Mover) roomForTwo(p *parcel) bool {
	m.mu.Lock()
	owed, devices := map[string]uint64{}, map[string]*device{}
	for uuid := range p.owed {
		if d := m.devices[uuid]; d != nil && d.opened() {
			devices[uuid] = d.device
		}
	}
	for _, other := range m.parcels {
		for uuid, bytes := range other.owed {
			owed[uuid] += bytes
		}
	}
	need := p.owed
	m.mu.Unlock()
	for uuid := range need {
		d := devices[uuid]
		if d == nil {
			return false
		}
		if free, err := d.Free(); err != nil || free < owed[uuid] {
			return false
		}
	}
	return true
}

// returning is the room by device that processes need at the least, beside a copy, to
// get memory back as their own: for what they share, which they have twice until each
// has its new one, and then for the largest chunk.
func returning(parcels []*parcel) map[string]uint64 {
	shared, room := map[string]uint64{}, map[string]uint64{}
	for _, p := range parcels {
		for i := range p.pieces {
			piece := &p.pieces[i]
			if piece.chunk.Flags&hetcuda.Exported != 0 {
				shared[piece.device] += piece.chunk.Size
			}
			room[piece.device] = max(room[piece.device], piece.chunk.Size, shared[piece.device])
		}
	}
	return room
}

// opened tells whether a device is ready for use.
func (d *openDevice) opened() bool {
	select {
	case <-d.ready:
		return d.device != nil
	default:
		return false
	}
}

// owe notes what the process of a parcel is to get back.
func (m *Mover) owe(p *parcel) {
	owed := map[string]uint64{}
	for i := range p.pieces {
		if piece := &p.pieces[i]; piece.same == nil && piece.chunk.Flags&hetcuda.Imported == 0 {
			owed[piece.device] += piece.chunk.Size
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.owed = owed
}

// own has a process, which has all of its memory and is held, make it its own. What is
// left as it is it can use, and is asked for again before the next park. Memory that a
// keeper lends is the keeper's until it is spent. An error is of one that was not heard to
// have done so.
func (m *Mover) own(ctx context.Context, key client, p *parcel) error {
	m.mu.Lock()
	c, lent := m.held[key], m.lenderLocked(p.name) != nil
	m.mu.Unlock()
	if c == nil || lent {
		return nil
	}
	return m.ownBy(ctx, key, c, p.devices())
}

// devices are those that a parcel has memory on.
func (p *parcel) devices() []string {
	uuids := map[string]bool{}
	for i := range p.pieces {
		uuids[p.pieces[i].device] = true
	}
	return slices.Collect(maps.Keys(uuids))
}

func (m *Mover) ownBy(ctx context.Context, key client, c *hetcuda.Conn, devices []string) error {
	logger := log.G(ctx).WithField(logfields.PID, key.pid)
	done, err := m.turns.take(ctx, devices, true)
	if err != nil {
		logger.WithError(err).Warn("device memory is not the process's own yet, for which the next checkpoint needs room")
		return nil
	}
	defer done()
	// To its end: with the connection the process would run.
	ctx = context.WithoutCancel(ctx)
	h, err := c.Hello(ctx)
	if err == nil && (!h.Owns() || h.State != hetcuda.Held) {
		return nil
	}
	var left uint64
	var why string
	if err == nil {
		left, why, err = c.Own(ctx)
	}
	switch {
	case lost(err):
		m.letGo(key, c)
		return m.unheard(ctx, key, c, err)
	case err != nil:
		logger.WithError(err).Error("device memory is not where the process looks for it")
	case left > 0:
		logger.Warnf("%d MiB of device memory are not the process's own yet, for which the next checkpoint needs room: %s", left>>20, why)
	}
	return nil // with memory that is not in its place it can't be released
}

// unheard is the error of a process that has its memory, was to make it its own, and gave
// no answer. It goes on when it has done so: its memory is whole in either case, but
// whether all of it is where the program looks for it only it could say.
func (m *Mover) unheard(ctx context.Context, key client, c *hetcuda.Conn, err error) error {
	if errors.Is(err, helperapi.ErrGone) {
		return err
	}
	goes := "goes on"
	if _, stateErr := m.stateOf(ctx, key, c.Socket()); stateErr != nil {
		goes = "may go on"
	}
	return fmt.Errorf("process %d has its memory back and %s, but it did not say whether it could make it its own: %w", key.pid, goes, err)
}
