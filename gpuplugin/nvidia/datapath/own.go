// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"

	"github.com/containerd/log"

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
// keeper lends is the keeper's until it is spent.
func (m *Mover) own(ctx context.Context, key client, parcel string) {
	m.mu.Lock()
	c, lent := m.held[key], m.lenderLocked(parcel) != nil
	m.mu.Unlock()
	if c != nil && !lent {
		m.ownBy(ctx, key, c)
	}
}

func (m *Mover) ownBy(ctx context.Context, key client, c *hetcuda.Conn) {
	// To its end: with the connection the process would run.
	ctx = context.WithoutCancel(ctx)
	h, err := c.Hello(ctx)
	if err != nil || !h.Owns() || h.State != hetcuda.Held {
		return
	}
	left, why, err := c.Own(ctx)
	if lost(err) {
		m.letGo(key, c)
	}
	if err == nil && left == 0 {
		return
	}
	logger := log.G(ctx).WithField(logfields.PID, key.pid)
	if err != nil {
		logger = logger.WithError(err)
	}
	logger.Warnf("%d MiB of device memory are not the process's own yet, for which the next checkpoint needs room: %s", left>>20, why)
}
