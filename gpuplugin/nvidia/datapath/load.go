// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Load implements nvidia.Mover.
func (m *Mover) Load(ctx context.Context, req nvidia.LoadRequest) (nvidia.Loaded, error) {
	parcels, err := m.claim("load", req.Parcels...)
	if err != nil {
		return nvidia.Loaded{}, err
	}
	defer m.end(parcels)
	l := &load{mover: m, dir: req.Dir, parcels: parcels, progress: newProgress()}
	m.show(parcels, l.progress)
	if err := l.run(ctx, req.Devices); err != nil {
		return nvidia.Loaded{}, sorted(errors.Join(fmt.Errorf("load device memory from %s: %w", req.Dir, err), m.forget(parcels)))
	}
	sizes := l.index.Sizes()
	return nvidia.Loaded{Bytes: sizes.Memory, Read: sizes.Memory - sizes.Zero, Phases: l.progress.phases()}, nil
}

// load is one Load.
type load struct {
	mover    *Mover
	dir      string
	parcels  []*parcel
	progress *progress

	// lanes is how many read for each device, 0 for the mover's own number.
	lanes int
	// key is that of the files, nil for the key file's.
	key *memfile.Key

	index *memfile.Index
	files []*os.File
	// ciphers are the files', nil if they are not encrypted.
	ciphers []*memfile.Cipher
}

// open reads the index and opens the files.
func (l *load) open() (err error) {
	if l.index, err = memfile.ReadIndex(l.dir); err != nil {
		return err
	}
	if err := l.unlock(); err != nil {
		return err
	}
	for _, want := range l.index.Files {
		f, err := openData(l.dir, want)
		if err != nil {
			l.close()
			return err
		}
		l.files = append(l.files, f)
	}
	return nil
}

// unlock makes the ciphers of files that are encrypted.
func (l *load) unlock() (err error) {
	if !l.index.Encrypted() {
		return nil
	}
	if l.key == nil {
		if l.key, err = memfile.KeyFor(l.index.KeyID, l.mover.cfg.KeyFile); err != nil {
			return err
		}
	}
	if err := l.index.Unlock(l.key); err != nil {
		return err
	}
	l.ciphers, err = l.key.Ciphers(l.index.Files)
	return err
}

func (l *load) close() { memfile.CloseAll(l.files) }

func (l *load) run(ctx context.Context, devices gpuplugin.DeviceMap) error {
	l.progress.enter(phaseMap)
	if err := l.open(); err != nil {
		return err
	}
	defer l.close()
	if len(l.index.Processes) != len(l.parcels) {
		return fmt.Errorf("the snapshot has the memory of %d processes, and %d are to be restored", len(l.index.Processes), len(l.parcels))
	}
	for i := range l.parcels {
		l.pieces(i, devices)
	}
	unite(l.index, l.parcels)
	for _, p := range l.parcels {
		l.mover.owe(p)
	}
	if err := inParallel(l.parcels, func(p *parcel) error { return l.mover.create(ctx, p) }); err != nil {
		return err
	}
	if err := inParallel(l.parcels, l.mover.lend); err != nil {
		return err
	}
	return l.fill(ctx)
}

// fill reads the memory of the parcels, which are mapped, and verifies it.
func (l *load) fill(ctx context.Context) error {
	byDevice, err := cut(ctx, l.mover, l.parcels)
	if err != nil {
		return err
	}
	total := uint64(0)
	for _, blocks := range byDevice {
		for _, b := range blocks {
			total += b.size
			entry := l.index.Processes[b.process].Chunks[b.chunk].Blocks[b.index]
			b.zero, b.digest = entry.Zero(), entry.Digest
			if !b.zero {
				b.file, b.offset, b.tag = int(entry.File-1), entry.Offset, entry.Tag
			}
		}
	}
	l.progress.total.Store(total)
	l.progress.enter(phaseCopy)
	if err := l.copy(ctx, byDevice); err != nil {
		return err
	}
	l.progress.enter(phaseVerify)
	err = eachDevice(byDevice, func(d *device, blocks []*block) error { return l.verify(ctx, d, blocks) })
	if err == nil {
		l.progress.enter("")
	}
	return err
}

// openData opens a file of a snapshot and checks its size.
func openData(dir string, want memfile.DataFile) (*os.File, error) {
	f, size, err := memfile.OpenFile(dir, want.Path())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", memfile.ErrDamaged, err)
	}
	if uint64(size) != want.Size {
		return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes, and the index says %d", memfile.ErrDamaged, want.Path(), size, want.Size), f.Close())
	}
	direct(f)
	return f, nil
}

// pieces says what memory process i has.
func (l *load) pieces(i int, devices gpuplugin.DeviceMap) {
	p := l.parcels[i]
	for _, c := range l.index.Processes[i].Chunks {
		uuid := uuidOf(c.Device)
		if to, ok := devices[uuid]; ok {
			uuid = to
		}
		p.pieces = append(p.pieces, piece{
			chunk:  hetcuda.Chunk{ID: c.ID, Address: c.Address, Size: c.Size, Device: c.Device},
			device: uuid, fd: -1,
		})
	}
}

// create makes the memory of a parcel's pieces, and descriptors of it.
func (m *Mover) create(ctx context.Context, p *parcel) error {
	if err := m.makeViews(ctx, p); err != nil {
		return err
	}
	for j := range p.pieces {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := &p.pieces[j]
		if piece.same != nil {
			continue
		}
		d := p.views[piece.view].device
		h, err := d.Create(piece.chunk.Size)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
		}
		if err := p.place(j, h); err != nil {
			return err
		}
		fd, err := d.Export(h)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", piece.chunk.ID, err)
		}
		piece.fd = fd
	}
	return p.openViews()
}

// Make makes a parcel of memory that was no process's, for measurements: so many
// chunks of a size, each filled by fill.
func (m *Mover) Make(ctx context.Context, name, uuid string, chunks int, size uint64, fill func(GPU, Range) error) error {
	device, err := memfile.ParseUUID(uuid)
	if err != nil {
		return err
	}
	parcels, err := m.claim("make", name)
	if err != nil {
		return err
	}
	defer m.end(parcels)
	p := parcels[0]
	for i := range chunks {
		c := hetcuda.Chunk{ID: uint64(i), Size: size, Device: device}
		p.pieces = append(p.pieces, piece{chunk: c, device: uuid, fd: -1})
	}
	err = m.create(ctx, p)
	for i := 0; i < len(p.pieces) && err == nil; i++ {
		err = fill(p.views[0].device.GPU, Range{p.pieces[i].address, size})
	}
	if err != nil {
		return errors.Join(err, m.forget(parcels))
	}
	return nil
}

// copy reads the files into the devices.
func (l *load) copy(ctx context.Context, byDevice map[*device][]*block) error {
	g, ctx := errgroup.WithContext(ctx)
	for d, blocks := range byDevice {
		var stored, zero []*block
		for _, b := range blocks {
			if b.zero {
				zero = append(zero, b)
			} else {
				stored = append(stored, b)
			}
		}
		g.Go(func() error { return l.zero(d, zero) })
		// In the order of the files; the lanes take what is next.
		slices.SortFunc(stored, func(a, b *block) int {
			return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset))
		})
		var batches [][]*block
		for len(stored) > 0 {
			var batch []*block
			batch, stored = take(stored, d.cfg.SlotSize)
			batches = append(batches, batch)
		}
		next := &atomic.Int64{}
		for range min(cmp.Or(l.lanes, l.mover.cfg.Lanes), len(batches)) {
			g.Go(func() error { return l.lane(ctx, d, batches, next) })
		}
	}
	return g.Wait()
}

// zero writes the zeros: what memory holds when it is made is not defined.
func (l *load) zero(d *device, blocks []*block) error {
	if len(blocks) == 0 {
		return nil
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	err = runs(blocks, func(_, address, size uint64) error {
		l.progress.done.Add(size)
		return stream.Zero(address, size)
	})
	return errors.Join(err, stream.Wait(), stream.Close())
}

func (l *load) lane(ctx context.Context, d *device, batches [][]*block, next *atomic.Int64) error {
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	for err == nil {
		i := next.Add(1) - 1
		if i >= int64(len(batches)) {
			break
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		err = l.read(ctx, d, stream, batches[i])
	}
	return errors.Join(err, stream.Close())
}

func (l *load) read(ctx context.Context, d *device, stream Stream, batch []*block) error {
	slot, err := d.slot(ctx)
	if err != nil {
		return err
	}
	defer d.put(slot)
	size := uint64(0)
	for _, b := range batch {
		size += b.size
	}
	if err := readAt(l.files[batch[0].file], slot[:size], int64(batch[0].offset)); err != nil {
		return err
	}
	if err := l.decrypt(slot, batch); err != nil {
		return err
	}
	err = runs(batch, func(at, address, n uint64) error { return stream.FromHost(address, slot[at:at+n]) })
	l.progress.done.Add(size)
	return errors.Join(err, stream.Wait())
}

// decrypt decrypts the blocks of a batch where they are. None that was changed
// comes to a device.
func (l *load) decrypt(slot []byte, batch []*block) error {
	if l.ciphers == nil {
		return nil
	}
	at := uint64(0)
	for _, b := range batch {
		if !l.ciphers[b.file].Open(slot[at:at+b.size], b.offset, b.tag) {
			return l.index.Forged(b.process, &l.index.Processes[b.process].Chunks[b.chunk], b.index)
		}
		at += b.size
	}
	return nil
}

// verify compares what is on the device now with the digests.
func (l *load) verify(ctx context.Context, d *device, blocks []*block) error {
	sums, err := digests(ctx, d, blocks)
	if err != nil {
		return err
	}
	for i, b := range blocks {
		if got := memfile.NewDigest(sums[i].A, sums[i].B); got != b.digest {
			return l.index.Damage(b.process, &l.index.Processes[b.process].Chunks[b.chunk], b.index, got)
		}
	}
	return nil
}
