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

// A process that the driver has restored to other devices can't use memory that was made
// here: what it imports the driver takes for memory of the devices that it began on (moved.h
// in libhetcuda). So it makes its memory itself and exports it, and we copy into that what
// it is to get, one chunk after the other. What was copied we let go of, so that each chunk
// makes room for the next; our descriptor is of the process's memory from then on. So
// nothing is lost if it goes wrong half-way: the next try copies from there.

// refill has a process that was moved make the memory of a parcel that it is to get, and
// fills that. Of one that was not moved it does nothing.
func (m *Mover) refill(ctx context.Context, c *hetcuda.Conn, p *parcel) error {
	h, err := c.Hello(ctx)
	if err != nil {
		return err
	}
	if !h.Makes() {
		return p.stays(c.PID())
	}
	moved, err := c.Moved(ctx)
	// Memory that others have still the process has to share with them.
	if err != nil || !moved || m.asIs(p) {
		return err
	}
	// While it is mapped here it would take its room.
	err = closeAreas(p.views)
	p.views = nil
	if !p.duplicated {
		p.repoint()
	}
	for i := 0; i < len(p.pieces) && err == nil; i++ {
		if p.pieces[i].same == nil {
			err = m.refillOne(ctx, c, &p.pieces[i])
		}
	}
	return err
}

// stays fails for a parcel whose process would get memory on another device than it had,
// and does not know how.
func (p *parcel) stays(pid int) error {
	for i := range p.pieces {
		if from := uuidOf(p.pieces[i].chunk.Device); from != p.pieces[i].device {
			return &helperapi.Error{
				Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "unpark",
				Detail: fmt.Sprintf("the libhetcuda of process %d is too old to go from %s to %s", pid, from, p.pieces[i].device),
			}
		}
	}
	return nil
}

func (m *Mover) refillOne(ctx context.Context, c *hetcuda.Conn, piece *piece) error {
	d, err := m.open(ctx, piece.device)
	if err != nil {
		return err
	}
	// There is room for one more on each device, not for one of each process.
	done, err := m.turns.take(ctx, []string{piece.device}, true)
	if err != nil {
		return err
	}
	defer done()
	fd, err := c.Make(ctx, piece.chunk)
	if err != nil {
		return err
	}
	if err := d.copyMemory(fd, piece.fd, piece.chunk.Size); err != nil {
		hetcuda.Discard([]int{fd})
		return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
	}
	m.mu.Lock()
	old := piece.fd
	piece.fd = fd
	m.mu.Unlock()
	hetcuda.Discard([]int{old})
	return nil
}

// copyMemory copies so many bytes of the memory of a descriptor into that of another one.
func (d *device) copyMemory(to, from int, size uint64) (err error) {
	a, err := newArea(d, 2*size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	for _, fd := range []int{from, to} {
		h, err := d.Import(fd)
		if err != nil {
			return err
		}
		if _, err := a.add(h, size); err != nil {
			return err
		}
	}
	if err := a.open(); err != nil {
		return err
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	err = stream.Copy(a.base+size, a.base, size)
	return errors.Join(err, stream.Wait(), stream.Close())
}
