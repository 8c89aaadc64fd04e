// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// identify finds out which of the memory that processes have imported is which
// that others have exported; from then on the exporter's piece stands for both.
//
// No process has to be believed for that, and descriptors of one memory don't
// look alike: a number is written through one and read through the other, while
// nobody runs that has it, and what was there is put back.
//
// What nobody of the parcels has exported is of a process that isn't saved, or
// that has freed it or ended. Who else has it can't be told, so that is an error.
// Nor can it be told of what was exported and imported by nobody of them: a
// process outside that has it would see the number.
//
// Memory in which the number stays, since it can't be put back, must not be given
// back.
func (m *Mover) identify(ctx context.Context, parcels []*parcel) error {
	imported, exported := map[string][]*piece{}, map[string][]*piece{}
	for _, p := range parcels {
		if p.duplicated {
			continue // it is known by now, and may just be given back
		}
		for i := range p.pieces {
			piece := &p.pieces[i]
			switch {
			case piece.same != nil: // known
			case piece.chunk.Flags&hetcuda.Imported != 0:
				imported[piece.device] = append(imported[piece.device], piece)
			case piece.chunk.Flags&hetcuda.Exported != 0:
				exported[piece.device] = append(exported[piece.device], piece)
			}
		}
	}
	if len(imported) == 0 {
		return nil
	}
	if err := m.useAll(ctx, parcels, true); err != nil {
		return err
	}
	for uuid, pieces := range imported {
		d, err := m.open(ctx, uuid)
		if err != nil {
			return err
		}
		if err := d.identify(ctx, exported[uuid], pieces); err != nil {
			err = fmt.Errorf("memory that processes share: %w", err)
			for _, p := range parcels {
				if errors.Is(err, helperapi.ErrDamaged) && !p.duplicated {
					p.damage = err
				}
			}
			if errors.Is(err, helperapi.ErrDamaged) {
				m.suspect(parcels)
			}
			return err
		}
	}
	return m.useAll(ctx, parcels, false)
}

func (m *Mover) useAll(ctx context.Context, parcels []*parcel, used bool) error {
	for _, p := range parcels {
		if err := m.use(ctx, p.name, used); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) identify(ctx context.Context, exported, imported []*piece) (err error) {
	p, err := d.newProbe(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	marked := make(map[uint64]*piece, len(exported))
	for _, e := range exported {
		number, err := p.mark(e)
		if err != nil {
			return err
		}
		marked[number] = e
	}
	// What was exported twice has the number of the last.
	for _, m := range p.marks {
		number, err := p.get(m.address)
		if err != nil {
			return err
		}
		if same := marked[number]; same != nil && same != m.piece && same.chunk.Size == m.piece.chunk.Size {
			m.piece.same = same
		}
	}
	for _, i := range imported {
		number, err := p.read(i)
		if err != nil {
			return err
		}
		same := marked[number]
		if same == nil || same.chunk.Size != i.chunk.Size {
			return &helperapi.Error{
				Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "identify",
				Detail: fmt.Sprintf("chunk %d of %d bytes was made by a process that is not saved with it, or that has freed it", i.chunk.ID, i.chunk.Size),
			}
		}
		i.same = same
	}
	return nil
}

// probe reads and writes the first word of pieces.
type probe struct {
	device *device
	stream Stream
	slot   []byte
	areas  []*area
	// marks are what is to be put back.
	marks []mark
}

type mark struct {
	piece           *piece
	address, before uint64
}

const wordSize = 8

func (d *device) newProbe(ctx context.Context) (*probe, error) {
	slot, err := d.slot(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := d.NewStream()
	if err != nil {
		d.put(slot)
		return nil, err
	}
	return &probe{device: d, stream: stream, slot: slot}, nil
}

// show maps a piece.
func (p *probe) show(piece *piece) (address uint64, err error) {
	a, err := newArea(p.device, piece.chunk.Size)
	if err != nil {
		return 0, err
	}
	p.areas = append(p.areas, a)
	h, err := p.device.Import(piece.fd)
	if err != nil {
		return 0, fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
	}
	if address, err = a.add(h, piece.chunk.Size); err != nil {
		return 0, fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
	}
	return address, a.open()
}

// mark writes a number that is nowhere else.
func (p *probe) mark(piece *piece) (number uint64, err error) {
	address, err := p.show(piece)
	if err != nil {
		return 0, err
	}
	before, err := p.get(address)
	if err != nil {
		return 0, err
	}
	var random [wordSize]byte
	_, _ = rand.Read(random[:]) // never fails
	number = binary.LittleEndian.Uint64(random[:])
	p.marks = append(p.marks, mark{piece, address, before})
	return number, p.set(address, number)
}

// read returns what is there.
func (p *probe) read(piece *piece) (uint64, error) {
	address, err := p.show(piece)
	if err != nil {
		return 0, err
	}
	return p.get(address)
}

func (p *probe) get(address uint64) (uint64, error) {
	err := errors.Join(p.stream.ToHost(p.slot[:wordSize], address), p.stream.Wait())
	return binary.LittleEndian.Uint64(p.slot), err
}

func (p *probe) set(address, value uint64) error {
	binary.LittleEndian.PutUint64(p.slot, value)
	return errors.Join(p.stream.FromHost(address, p.slot[:wordSize]), p.stream.Wait())
}

// close puts back what was there.
func (p *probe) close() error {
	var errs []error
	// What was exported twice was marked twice: the last one first.
	for _, m := range slices.Backward(p.marks) {
		if err := p.set(m.address, m.before); err != nil {
			errs = append(errs, fmt.Errorf("the first word of chunk %d (%#x) was overwritten to tell who shares it, and can't be put back: %w: %w",
				m.piece.chunk.ID, m.before, helperapi.ErrDamaged, err))
		}
	}
	errs = append(errs, closeAreas(p.areas), p.stream.Close())
	p.device.put(p.slot)
	return errors.Join(errs...)
}

// place is a piece, as the index counts.
type place struct{ process, chunk int }

// shared is which pieces are the same memory, by the first of them.
type shared map[place]place

// sharedIn fails if a piece is stood for by one that is not among the parcels.
func sharedIn(parcels []*parcel) (shared, error) {
	places := map[*piece]place{}
	for i, p := range parcels {
		for j := range p.pieces {
			places[&p.pieces[j]] = place{i, j}
		}
	}
	s := shared{}
	for i, p := range parcels {
		for j := range p.pieces {
			same := p.pieces[j].same
			if same == nil {
				continue
			}
			first, ok := places[same]
			if !ok {
				return nil, &helperapi.Error{
					Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "save",
					Detail: fmt.Sprintf("chunk %d of parcel %q is memory of a parcel that is not saved with it", p.pieces[j].chunk.ID, p.name),
				}
			}
			s[place{i, j}] = first
		}
	}
	return s, nil
}

// enter says in an index that is complete otherwise which chunks are the same.
func (s shared) enter(x *memfile.Index) {
	last := uint32(0)
	for i := range x.Processes {
		for j := range x.Processes[i].Chunks {
			first, ok := s[place{i, j}]
			if !ok {
				continue
			}
			from, to := &x.Processes[first.process].Chunks[first.chunk], &x.Processes[i].Chunks[j]
			if from.Shared == 0 {
				last++
				from.Shared = last
			}
			to.Shared, to.Blocks = from.Shared, from.Blocks
		}
	}
}

// unite has the first of the chunks that are the same stand for the others.
func unite(x *memfile.Index, parcels []*parcel) {
	first := map[uint32]*piece{}
	for i, p := range x.Processes {
		for j := range p.Chunks {
			number, piece := p.Chunks[j].Shared, &parcels[i].pieces[j]
			if number == 0 {
				continue
			}
			if first[number] == nil {
				first[number] = piece
				continue
			}
			piece.same = first[number]
		}
	}
}

// lend gives the pieces that others stand for descriptors of those.
func (p *parcel) lend() error {
	for i := range p.pieces {
		piece := &p.pieces[i]
		if piece.same == nil {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(piece.same.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
		}
		piece.fd = fd
	}
	return nil
}
