// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// parcel is the device memory of one process.
type parcel struct {
	name string
	// busy and progress are guarded by Mover.mu, the rest belongs to whoever
	// made it busy.
	busy     string
	progress *progress
	// owed is the memory by device that its process has made and is to get back.
	// Guarded by Mover.mu.
	owed map[string]uint64
	// returning says that it is given back, and that the copy of it may be saved;
	// the pieces' descriptors and the views belong to who does that. chunks is how
	// many a process has sent. Guarded by Mover.mu.
	returning bool
	chunks    int

	pieces []piece
	// limits is the memory of the devices on which the process may have some; nil
	// for what was loaded.
	limits map[string]uint64
	// socket is where the process listens that it was taken from.
	socket hetcuda.Socket
	// trimmed is what the process gave back to its devices beside the pieces, in
	// bytes, and takes again when it goes on.
	trimmed uint64
	// from is the process that it is being taken from, and nonce what that marks
	// imported memory with; the process has it still while parked is false.
	from   client
	nonce  hetcuda.Nonce
	parked bool
	// givenBy is the connection by which the process got what it has made, and
	// handedOver says that others have some of that.
	givenBy    *hetcuda.Conn
	handedOver bool
	// damage is why it can't be given back any more.
	damage error
	// views map the memory of the process, once it is to be read, and copies
	// the copy of it.
	views, copies []*area
	// duplicated says that the copy is there, also of no memory at all.
	duplicated bool
	custom
}

// piece is one chunk of a parcel.
type piece struct {
	chunk hetcuda.Chunk
	// device is where it is.
	device string
	// fd is a descriptor of the memory, -1 if it was given back.
	fd int
	// view is which of the views it is in, and offset where.
	view   int
	offset uint64
	// address is where it can be read, 0 for nowhere.
	address uint64
	// same is the piece of another process that is the same memory, and that
	// stands for it; nil for one that stands for itself.
	same *piece
}

// free fails for a parcel that is used. Mover.mu: held.
func (p *parcel) free(what string) error {
	by := p.busy
	if by == "" && p.returning && what != saving {
		by = "unpark"
	}
	if by == "" {
		return nil
	}
	return &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: what, Detail: fmt.Sprintf("%s of parcel %q is under way", by, p.name)}
}

// close lets go of everything that a parcel has.
func (m *Mover) close(p *parcel) error {
	err := errors.Join(p.abandon(), m.giveUp(p))
	err = errors.Join(err, closeAreas(p.copies))
	p.copies = nil
	return err
}

// giveUp lets go of the memory itself, and keeps a copy.
func (m *Mover) giveUp(p *parcel) error {
	var fds []int
	m.mu.Lock()
	p.owed = nil
	for i := range p.pieces {
		if p.pieces[i].fd >= 0 {
			fds = append(fds, p.pieces[i].fd)
			p.pieces[i].fd = -1
		}
		delete(m.waiting, &p.pieces[i])
	}
	m.mu.Unlock()
	hetcuda.Discard(fds)
	err := closeAreas(p.views)
	p.views = nil
	// A copy stays where it is, and may be read just now.
	if !p.duplicated {
		p.repoint()
	}
	return err
}

// repoint sets where the pieces are read: in the copy, if there is one.
func (p *parcel) repoint() {
	areas := p.copies
	if !p.duplicated {
		areas = p.views
	}
	for i := range p.pieces {
		piece := &p.pieces[i]
		piece.address = 0
		if len(areas) > 0 && piece.same == nil {
			piece.address = areas[piece.view].base + piece.offset
		}
	}
}

// copyArea makes memory for a copy of a view.
func (p *parcel) copyArea(view *area) (*area, error) {
	size := view.device.round(view.used)
	a, err := newArea(view.device, view.device.round(view.size))
	if err != nil || size == 0 {
		return a, err
	}
	h, err := view.device.Create(size)
	if err == nil {
		_, err = a.add(h, size)
	}
	if err == nil {
		err = a.open()
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// mapAll maps the memory of parcels so that it can be read.
func (m *Mover) mapAll(ctx context.Context, parcels []*parcel) error {
	if err := together(parcels); err != nil {
		return err
	}
	return inParallel(parcels, func(p *parcel) error {
		// A copy is there; the views may just be given back.
		if p.duplicated || len(p.views) > 0 {
			return nil
		}
		err := m.mapOne(ctx, p)
		if err != nil {
			err = errors.Join(fmt.Errorf("map parked memory (%s): %w", p.name, err), closeAreas(p.views))
			p.views = nil
			p.repoint()
		}
		return err
	})
}

func (m *Mover) mapOne(ctx context.Context, p *parcel) error {
	if err := m.makeViews(ctx, p); err != nil {
		return err
	}
	for i := range p.pieces {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.pieces[i].same != nil {
			continue
		}
		a := p.views[p.pieces[i].view]
		h, err := a.device.Import(p.pieces[i].fd)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", p.pieces[i].chunk.ID, err)
		}
		if err := p.place(i, h); err != nil {
			return err
		}
	}
	return p.openViews()
}

// makeViews takes addresses for all pieces of a parcel, on their devices.
func (m *Mover) makeViews(ctx context.Context, p *parcel) error {
	sizes, index := map[string]uint64{}, map[string]int{}
	var order []string
	for i := range p.pieces {
		if p.pieces[i].same != nil {
			continue
		}
		uuid := p.pieces[i].device
		if _, ok := index[uuid]; !ok {
			index[uuid] = len(order)
			order = append(order, uuid)
		}
		p.pieces[i].view = index[uuid]
		sizes[uuid] += p.pieces[i].chunk.Size
	}
	for _, uuid := range order {
		d, err := m.open(ctx, uuid)
		if err != nil {
			return err
		}
		a, err := newArea(d, sizes[uuid])
		if err != nil {
			return err
		}
		p.views = append(p.views, a)
	}
	return nil
}

// place maps the memory of piece i.
func (p *parcel) place(i int, handle uint64) error {
	piece := &p.pieces[i]
	a := p.views[piece.view]
	address, err := a.add(handle, piece.chunk.Size)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
	}
	piece.offset = address - a.base
	return nil
}

func (p *parcel) openViews() error {
	for _, a := range p.views {
		if err := a.open(); err != nil {
			return err
		}
	}
	p.repoint()
	return nil
}
