// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// What a process says of its memory is believed within the limits of the
// devices that its container has: else it could have the helper use devices of
// others, or fill the host's disk with one piece of memory sent many times.

// admit takes note of how many descriptors a parcel is going to hold: together no
// more than half of what this process may have open, since memory that is moved
// needs another. The parcels of other containers of a pod are held here too.
func (m *Mover) admit(p *parcel, chunks int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := 0
	for _, other := range m.parcels {
		held += other.chunks
	}
	if most := limit.Cur / 2; uint64(held+chunks) > most {
		return fmt.Errorf("%d pieces of memory, each with a descriptor, beside %d: at most %d are held, half of the limit of open files", chunks, held, most)
	}
	p.chunks = chunks
	return nil
}

// bytes is the memory of a parcel that was taken out of a process, by device.
// What was imported counts where it was made.
func (p *parcel) bytes() (map[string]uint64, error) {
	sizes := map[string]uint64{}
	for i := range p.pieces {
		piece := &p.pieces[i]
		if _, ok := p.limits[piece.device]; !ok {
			return nil, &helperapi.Error{
				Call: "park", Detail: fmt.Sprintf("chunk %d is said to be on %s, which is not a device of the container (%v)",
					piece.chunk.ID, piece.device, slices.Sorted(maps.Keys(p.limits))),
			}
		}
		if piece.chunk.Flags&hetcuda.Imported == 0 {
			sizes[piece.device] += piece.chunk.Size
		}
	}
	return sizes, fits(sizes, p.limits)
}

// together fails if parcels have more memory than their devices. It is known who
// shares which of it.
func together(parcels []*parcel) error {
	sizes, limits := map[string]uint64{}, map[string]uint64{}
	for _, p := range parcels {
		maps.Copy(limits, p.limits)
		for i := range p.pieces {
			if piece := &p.pieces[i]; p.limits != nil && piece.same == nil {
				sizes[piece.device] += piece.chunk.Size
			}
		}
	}
	return fits(sizes, limits)
}

func fits(sizes, limits map[string]uint64) error {
	for uuid, size := range sizes {
		if size > limits[uuid] {
			return &helperapi.Error{
				Call: "park", Detail: fmt.Sprintf("%d bytes of memory are said to be on %s, which has %d", size, uuid, limits[uuid]),
			}
		}
	}
	return nil
}
