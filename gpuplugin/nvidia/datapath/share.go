// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
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
// No process has to be believed for that: each was told a number of its own, has
// written it into what it imported (hetcuda.Nonce), and puts back what was there. It
// is looked for while all of them are held, and nobody runs that has it.
//
// What nobody of the parcels has exported is of a process that isn't saved, or
// that has freed it or ended. Who else has it can't be told, so that is an error.
// Nor can it be told of what was exported and imported by nobody of them.
func (m *Mover) identify(ctx context.Context, parcels []*parcel) (err error) {
	var sharing []*parcel
	for _, p := range parcels {
		if slices.ContainsFunc(p.pieces, func(p piece) bool { return p.chunk.Flags&hetcuda.Imported != 0 }) {
			sharing = append(sharing, p)
		}
	}
	if len(sharing) == 0 {
		return nil
	}
	// Before anybody goes on who has the memory.
	defer func() {
		after := context.WithoutCancel(ctx)
		err = errors.Join(err, inParallel(sharing, func(p *parcel) error { return m.mark(after, p, 0) }))
	}()
	if err := inParallel(sharing, func(p *parcel) error { return m.mark(ctx, p, p.nonce) }); err != nil {
		return err
	}
	if err := m.findMarks(ctx, parcels); err != nil {
		return fmt.Errorf("memory that processes share: %w", err)
	}
	return inParallel(sharing, m.lend)
}

// mark has a process mark what it has imported, or put back what was there.
func (m *Mover) mark(ctx context.Context, p *parcel, nonce hetcuda.Nonce) error {
	held, err := m.mustHold(p.from, "mark")
	if err != nil {
		return err
	}
	err = held.Mark(ctx, nonce)
	if errors.Is(err, helperapi.ErrGone) && nonce == 0 {
		return nil
	}
	return m.parkFailed(p.from, held, err)
}

func (m *Mover) findMarks(ctx context.Context, parcels []*parcel) error {
	imported, exported := map[string][]importedPiece{}, map[string][]*piece{}
	for _, p := range parcels {
		for i := range p.pieces {
			piece := &p.pieces[i]
			switch {
			case piece.chunk.Flags&hetcuda.Imported != 0:
				imported[piece.device] = append(imported[piece.device], importedPiece{piece: piece, nonce: p.nonce, index: i})
			case piece.chunk.Flags&hetcuda.Exported != 0:
				exported[piece.device] = append(exported[piece.device], piece)
			}
		}
	}
	for uuid, pieces := range imported {
		d, err := m.open(ctx, uuid)
		if err != nil {
			return err
		}
		if err := d.findMarks(ctx, exported[uuid], pieces); err != nil {
			return err
		}
	}
	return nil
}

// importedPiece is one of a process that has the nonce, at a place in what it parked.
type importedPiece struct {
	piece *piece
	nonce hetcuda.Nonce
	index int
}

func (d *device) findMarks(ctx context.Context, exported []*piece, imported []importedPiece) error {
	slot, err := d.slot(ctx)
	if err != nil {
		return err
	}
	defer d.put(slot)
	for _, e := range exported {
		if err := d.find(e, imported, slot[:wordSize]); err != nil {
			return err
		}
	}
	for _, i := range imported {
		if i.piece.same == nil {
			return &helperapi.Error{
				Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "identify",
				Detail: fmt.Sprintf("chunk %d of %d bytes was made by a process that is not saved with it, or that has freed it", i.piece.chunk.ID, i.piece.chunk.Size),
			}
		}
	}
	return nil
}

const wordSize = 8

// find looks for the marks of imported memory in a piece, which is mapped if it can
// be any of that: the processes stand still meanwhile.
func (d *device) find(e *piece, imported []importedPiece, word []byte) (err error) {
	imported = slices.DeleteFunc(slices.Clone(imported), func(i importedPiece) bool {
		return i.piece.same != nil || i.piece.chunk.Size != e.chunk.Size
	})
	if len(imported) == 0 {
		return nil
	}
	a, err := newArea(d, e.chunk.Size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	h, err := d.Import(e.fd)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", e.chunk.ID, err)
	}
	address, err := a.add(h, e.chunk.Size)
	if err == nil {
		err = a.open()
	}
	if err != nil {
		return fmt.Errorf("chunk %d: %w", e.chunk.ID, err)
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	for _, i := range imported {
		number, offset := i.nonce.Mark(i.index, e.chunk.Size)
		if err := errors.Join(stream.ToHost(word, address+offset), stream.Wait()); err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(word) == number {
			i.piece.same = e
		}
	}
	return nil
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
			to.Shared, to.Imported, to.Blocks = from.Shared, true, from.Blocks
		}
	}
}

// unite has the chunk that its process has made stand for those that are the same.
// Where none is said to be, as in a snapshot of version 1.0, it is the first one.
func unite(x *memfile.Index, parcels []*parcel) {
	makers := map[uint32]*piece{}
	for _, imported := range []bool{false, true} {
		for i, p := range x.Processes {
			for j := range p.Chunks {
				c, piece := &p.Chunks[j], &parcels[i].pieces[j]
				if c.Shared == 0 || c.Imported != imported {
					continue
				}
				if maker := makers[c.Shared]; maker != nil {
					piece.same = maker
					piece.chunk.Flags = hetcuda.Imported
				} else {
					makers[c.Shared] = piece
				}
			}
		}
	}
}

// lend gives the pieces that others stand for descriptors of those, and has the
// makers' pieces know that somebody waits for what becomes of them.
func (m *Mover) lend(p *parcel) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.pieces {
		piece := &p.pieces[i]
		if piece.same == nil || piece.fd >= 0 {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(piece.same.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
		}
		piece.fd = fd
		m.waitLocked(piece)
	}
	return nil
}

// waitLocked notes that a piece comes back after the one that stands for it.
func (m *Mover) waitLocked(piece *piece) {
	m.importers[piece.same] = append(m.importers[piece.same], piece)
	m.waiting[piece] = errWaits
}

// A process that gets memory back copies it, if there is room, into memory that it
// makes (own.h in libhetcuda): nobody can pass on what others have made. So those
// that it shares it with get theirs after it, and what it has then.

// handOver gives those who share memory with a parcel's process what it has now. It
// has got all that it has made.
func (m *Mover) handOver(ctx context.Context, c *hetcuda.Conn, p *parcel) error {
	if !m.waitedFor(p) {
		return nil
	}
	if m.asIs(p) {
		return m.settle(p, nil)
	}
	chunks, fds, err := c.Share(ctx, len(p.pieces))
	if err != nil {
		return fmt.Errorf("%w: %w", errShare, err)
	}
	defer hetcuda.Discard(fds)
	now := map[uint64]int{}
	for i, c := range chunks {
		now[c.ID] = fds[i]
	}
	p.handedOver = true
	return m.settle(p, now)
}

// errShare means that a process has what it has made, and did not say what others
// get of it.
var errShare = errors.New("what the process shares")

// settle says to those that wait for a parcel's memory that they can have it: as it is
// now, by descriptors for chunks, or else as it was.
func (m *Mover) settle(p *parcel, now map[uint64]int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.pieces {
		from := &p.pieces[i]
		for _, to := range m.importers[from] {
			// Without one there was no room: all of them have what was parked.
			if fd, ok := now[from.chunk.ID]; ok && to.fd >= 0 {
				if err := unix.Dup3(fd, to.fd, unix.O_CLOEXEC); err != nil {
					return err
				}
			}
			delete(m.waiting, to)
		}
		delete(m.importers, from)
		delete(m.unsettled, from)
	}
	return nil
}

// breakOff says to those that wait for a parcel's memory that it runs with another
// than they could be given.
func (m *Mover) breakOff(p *parcel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.pieces {
		from := &p.pieces[i]
		for _, to := range m.importers[from] {
			m.waiting[to] = &helperapi.Error{
				Class: helperapi.Class_CLASS_DAMAGED, Call: "unpark",
				Detail: fmt.Sprintf("chunk %d is memory that parcel %q has made, whose process has gone on without saying what it has now", to.chunk.ID, p.name),
			}
		}
		delete(m.importers, from)
	}
}

// unsettle says that a process keeps what it has imported, since it did not let go of
// it: who has made that must get it back as it was.
func (m *Mover) unsettle(p *parcel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.pieces {
		if same := p.pieces[i].same; same != nil {
			m.unsettled[same] = true
		}
	}
}

// asIs tells whether somebody has memory of a parcel still.
func (m *Mover) asIs(p *parcel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(indices(p.pieces), func(i int) bool { return m.unsettled[&p.pieces[i]] })
}

// waitedFor tells whether others wait for memory of a parcel.
func (m *Mover) waitedFor(p *parcel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(indices(p.pieces), func(i int) bool { return len(m.importers[&p.pieces[i]]) > 0 })
}

// waits is nil, or why a parcel can't have yet what others have made.
func (m *Mover) waits(p *parcel) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.pieces {
		if err := m.waiting[&p.pieces[i]]; err != nil {
			return err
		}
	}
	return nil
}
