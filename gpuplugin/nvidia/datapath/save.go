// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/durable"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// The names of the phases.
const (
	phaseMap    = "mem-map"
	phaseScan   = "mem-scan"
	phaseCopy   = "mem-copy"
	phaseSync   = "mem-sync"
	phaseVerify = "mem-verify"
)

// block is one block that is moved.
type block struct {
	process, chunk, index int
	address, size         uint64
	// file and offset are where it is.
	file   int
	offset uint64
	digest memfile.Digest
	// tag and sum are of what is in the file, if it is encrypted.
	tag    memfile.Tag
	sum    uint32
	zero   bool
	reused bool
}

// Save implements nvidia.Mover.
func (m *Mover) Save(ctx context.Context, req nvidia.SaveRequest) (nvidia.Saved, error) {
	parcels, err := m.begin(saving, req.Parcels...)
	if err != nil {
		return nvidia.Saved{}, err
	}
	defer m.end(parcels)
	s := &save{mover: m, dir: req.Dir, parcels: parcels, progress: newProgress()}
	m.show(parcels, s.progress)
	if err := s.run(ctx, req.Parent); err != nil {
		s.remove()
		return nvidia.Saved{}, sorted(fmt.Errorf("save device memory to %s: %w", req.Dir, err))
	}
	for i, p := range parcels {
		p.saved = &source{dir: req.Dir, process: i, key: s.key}
	}
	sizes := s.index.Sizes()
	saved := nvidia.Saved{
		Bytes: sizes.Memory, Stored: sizes.Stored, Zero: sizes.Zero, Reused: sizes.Reused, Phases: s.progress.phases(),
		KeyID: s.index.KeyID,
	}
	for _, f := range s.files {
		saved.Files = append(saved.Files, nvidia.SavedFile{Name: f.name, Size: int64(f.size)})
	}
	saved.Files = append(saved.Files, nvidia.SavedFile{Name: memfile.IndexName, Size: s.indexSize})
	return saved, nil
}

// sorted gives an error the class that the shim goes by.
func sorted(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", helperapi.ErrNoSpace, err)
	case errors.Is(err, memfile.ErrDamaged):
		return fmt.Errorf("%w: %w", helperapi.ErrDamaged, err)
	}
	return err
}

// save is one Save.
type save struct {
	mover    *Mover
	dir      string
	parcels  []*parcel
	progress *progress

	index     *memfile.Index
	indexSize int64
	files     []*laneFile
	lanes     []*saveLane
	// key encrypts the files, if it is not nil.
	key *memfile.Key
}

// laneFile is a file that one lane writes.
type laneFile struct {
	name string
	size uint64
	f    *os.File
}

type saveLane struct {
	device *device
	file   *laneFile
	blocks []*block
	// cipher is the file's, nil if it is not encrypted.
	cipher *memfile.Cipher
}

func (s *save) run(ctx context.Context, parent string) error {
	s.index = &memfile.Index{}
	if err := s.encrypt(); err != nil {
		return err
	}
	s.progress.enter(phaseMap)
	if err := s.mover.mapAll(ctx, s.parcels); err != nil {
		return err
	}
	shared, err := sharedIn(s.parcels)
	if err != nil {
		return err
	}
	s.progress.enter(phaseScan)
	byDevice, err := s.scan(ctx)
	if err != nil {
		return err
	}
	if parent != "" {
		if err := s.reuse(parent, byDevice); err != nil {
			return err
		}
	}
	if err := s.plan(byDevice); err != nil {
		return err
	}
	s.progress.enter(phaseCopy)
	if err := s.create(ctx); err != nil {
		return err
	}
	if err := s.copy(ctx); err != nil {
		return err
	}
	s.enter(byDevice)
	shared.enter(s.index)
	s.progress.enter(phaseSync)
	if err := inParallel(s.files, func(f *laneFile) error {
		return errors.Join(f.f.Sync(), f.f.Close())
	}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.indexSize, err = memfile.WriteIndex(s.dir, s.index, s.key); err != nil {
		return err
	}
	s.progress.enter("")
	return durable.SyncDir(s.dir)
}

// encrypt has all files encrypted, if there is a key file.
func (s *save) encrypt() (err error) {
	if s.mover.cfg.KeyFile == "" {
		return nil
	}
	if s.key, err = memfile.ReadKey(s.mover.cfg.KeyFile); err != nil {
		return err
	}
	s.index.KeyID, s.index.Salt = s.key.ID(), memfile.NewSalt()
	return nil
}

// unlock reads the index of the snapshot before, which has to be encrypted as
// this one: what is left there must not be less protected, and be readable with
// the same key.
func (s *save) unlock(before *memfile.Index) error {
	if before.KeyID != s.index.KeyID {
		return fmt.Errorf("it is %s, and this one %s: make one that is complete", encryption(before), encryption(s.index))
	}
	return before.Unlock(s.key)
}

func encryption(x *memfile.Index) string {
	if x.Encrypted() {
		return "encrypted with the key " + x.KeyID
	}
	return "not encrypted"
}

// remove removes what was written. Only files that were made here are known.
func (s *save) remove() {
	for _, f := range s.files {
		if f.f != nil {
			_ = f.f.Close() // closed already, or of no use any more
			_ = os.Remove(filepath.Join(s.dir, f.name))
		}
	}
	if s.indexSize > 0 {
		_ = os.Remove(filepath.Join(s.dir, memfile.IndexName))
	}
}

// scan makes the blocks, with their digests, of all devices at once.
func (s *save) scan(ctx context.Context) (map[*device][]*block, error) {
	byDevice, err := cut(ctx, s.mover, s.parcels)
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, blocks := range byDevice {
		for _, b := range blocks {
			total += b.size
		}
	}
	s.progress.total.Store(total)
	err = eachDevice(byDevice, func(d *device, blocks []*block) error {
		sums, err := digests(ctx, d, blocks)
		for i := range sums {
			blocks[i].digest, blocks[i].zero = memfile.NewDigest(sums[i].A, sums[i].B), sums[i].Seen == 0
		}
		return err
	})
	return byDevice, err
}

// cut makes the blocks of parcels that are mapped, in the order of processes,
// chunks and addresses.
func cut(ctx context.Context, m *Mover, parcels []*parcel) (map[*device][]*block, error) {
	byDevice := map[*device][]*block{}
	for i, p := range parcels {
		for j := range p.pieces {
			piece := &p.pieces[j]
			if piece.same != nil {
				continue
			}
			d, err := m.open(ctx, piece.device)
			if err != nil {
				return nil, err
			}
			for k := range memfile.NumBlocks(piece.chunk.Size) {
				at := k * memfile.BlockSize
				byDevice[d] = append(byDevice[d], &block{
					process: i, chunk: j, index: int(k),
					address: piece.address + at, size: min(memfile.BlockSize, piece.chunk.Size-at),
				})
			}
		}
	}
	return byDevice, nil
}

func eachDevice(byDevice map[*device][]*block, f func(*device, []*block) error) error {
	var g errgroup.Group
	for d, blocks := range byDevice {
		g.Go(func() error { return f(d, blocks) })
	}
	return g.Wait()
}

// scanBatch is how many blocks a device computes the digests of before the
// context is looked at: 32 GiB, some 20 ms.
const scanBatch = 16384

func digests(ctx context.Context, d *device, blocks []*block) ([]Sum, error) {
	sums := make([]Sum, len(blocks))
	ranges := make([]Range, len(blocks))
	for i, b := range blocks {
		ranges[i] = Range{b.address, b.size}
	}
	for first := 0; first < len(blocks); first += scanBatch {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		end := min(first+scanBatch, len(blocks))
		if err := d.Digest(ranges[first:end], sums[first:end]); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// reuse finds the blocks that a snapshot before has with the same contents, at
// the same place of the same chunk: libhetcuda never uses a number twice.
func (s *save) reuse(dir string, byDevice map[*device][]*block) error {
	before, err := memfile.ReadIndex(dir)
	if err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	if err := s.unlock(before); err != nil {
		return fmt.Errorf("the snapshot before: %w", err)
	}
	far := make([]bool, len(before.Files)) // cannot be referred to
	for i, f := range before.Files {
		if err := present(dir, f); err != nil {
			return fmt.Errorf("the snapshot before: %w", err)
		}
		f.Generation++
		far[i] = f.Generation > memfile.MaxGeneration
		s.index.Files = append(s.index.Files, f)
	}
	chunks := make([]map[uint64]*memfile.Chunk, len(before.Processes))
	for i, p := range before.Processes {
		chunks[i] = map[uint64]*memfile.Chunk{}
		for j := range p.Chunks {
			chunks[i][p.Chunks[j].ID] = &p.Chunks[j]
		}
	}
	used := make([]bool, len(before.Files))
	for _, blocks := range byDevice {
		for _, b := range blocks {
			if b.zero || b.process >= len(chunks) {
				continue
			}
			now := s.parcels[b.process].pieces[b.chunk].chunk
			old := chunks[b.process][now.ID]
			if old == nil || old.Size != now.Size {
				continue
			}
			if o := old.Blocks[b.index]; !o.Zero() && o.Digest == b.digest && !far[o.File-1] {
				b.reused, b.file, b.offset, b.tag, b.sum = true, int(o.File), o.Offset, o.Tag, o.Sum
				used[o.File-1] = true
			}
		}
	}
	s.keepUsed(used, byDevice)
	return nil
}

// present fails if a file is missing or has another size: what is left in it would
// be missed at a restore only.
func present(dir string, want memfile.DataFile) error {
	f, err := openData(dir, want)
	if err != nil {
		return err
	}
	return f.Close()
}

// keepUsed leaves out the files that nothing refers to.
func (s *save) keepUsed(used []bool, byDevice map[*device][]*block) {
	number := make([]int, len(used))
	var kept []memfile.DataFile
	for i, f := range s.index.Files {
		if used[i] {
			kept = append(kept, f)
			number[i] = len(kept)
		}
	}
	s.index.Files = kept
	for _, blocks := range byDevice {
		for _, b := range blocks {
			if b.reused {
				b.file = number[b.file-1]
			}
		}
	}
}

// plan shares what is to be stored out to lanes, each with a file of its own:
// tmpfs takes one writer a file.
func (s *save) plan(byDevice map[*device][]*block) error {
	for _, p := range s.parcels {
		process := memfile.Process{}
		for i := range p.pieces {
			piece := &p.pieces[i] // whose descriptor may be closed meanwhile
			chunk := memfile.Chunk{ID: piece.chunk.ID, Address: piece.chunk.Address, Size: piece.chunk.Size, Device: piece.chunk.Device}
			if piece.same == nil { // else those of another stand for it
				chunk.Blocks = make([]memfile.Block, memfile.NumBlocks(piece.chunk.Size))
			}
			process.Chunks = append(process.Chunks, chunk)
		}
		s.index.Processes = append(s.index.Processes, process)
	}
	devices := slices.SortedFunc(keys(byDevice), func(a, b *device) int { return cmp.Compare(a.uuid, b.uuid) })
	for _, d := range devices {
		var stored []*block
		bytes := uint64(0)
		for _, b := range byDevice[d] {
			if !b.zero && !b.reused {
				stored = append(stored, b)
				bytes += b.size
				continue
			}
			s.progress.done.Add(b.size)
		}
		s.share(d, stored, bytes)
	}
	for _, lane := range s.lanes {
		if s.key == nil {
			break
		}
		var err error
		if lane.cipher, err = s.key.Cipher(memfile.DataFile{Name: lane.file.name, Salt: s.index.Salt}); err != nil {
			return err
		}
	}
	return nil
}

// enter notes in the index where the blocks are, when they have been written.
func (s *save) enter(byDevice map[*device][]*block) {
	for _, blocks := range byDevice {
		for _, b := range blocks {
			entry := memfile.Block{Digest: b.digest}
			if !b.zero {
				entry.File, entry.Offset, entry.Tag, entry.Sum = uint32(b.file), b.offset, b.tag, b.sum
			}
			s.index.Processes[b.process].Chunks[b.chunk].Blocks[b.index] = entry
		}
	}
}

func keys[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// share makes the lanes of a device.
func (s *save) share(d *device, stored []*block, bytes uint64) {
	slot := uint64(s.mover.cfg.SlotSize)
	lanes := min(uint64(s.mover.cfg.Lanes), (bytes+slot-1)/slot)
	if lanes == 0 {
		return
	}
	each := (bytes + lanes - 1) / lanes
	var lane *saveLane
	for _, b := range stored {
		if lane == nil || lane.file.size >= each {
			lane = &saveLane{device: d, file: &laneFile{name: memfile.DataName(len(s.files))}}
			s.files = append(s.files, lane.file)
			s.lanes = append(s.lanes, lane)
			s.index.Files = append(s.index.Files, memfile.DataFile{Name: lane.file.name, Salt: s.index.Salt})
		}
		b.file, b.offset = len(s.index.Files), lane.file.size
		lane.blocks = append(lane.blocks, b)
		lane.file.size += b.size
		s.index.Files[len(s.index.Files)-1].Size = lane.file.size
	}
}

// create makes the files, of their size, where there is room for all of them.
func (s *save) create(ctx context.Context) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	need := uint64(0)
	for _, f := range s.files {
		need += f.size
	}
	// Some network file systems say 0 of everything.
	if free := st.Bavail * uint64(st.Bsize); st.Blocks > 0 && free < need {
		return fmt.Errorf("%d bytes are free, and %d are needed: %w", free, need, unix.ENOSPC)
	}
	for _, f := range s.files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.create(s.dir, st.Type == unix.TMPFS_MAGIC); err != nil {
			return err
		}
	}
	return nil
}

func (f *laneFile) create(dir string, tmpfs bool) error {
	file, err := openDirect(filepath.Join(dir, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	f.f = file
	// A tmpfs would do half of the writer's work now, with nobody beside it.
	if tmpfs {
		return file.Truncate(int64(f.size))
	}
	err = retry(func() error { return unix.Fallocate(int(file.Fd()), 0, 0, int64(f.size)) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = file.Truncate(int64(f.size))
	}
	if err != nil {
		return fmt.Errorf("%s: %d bytes: %w", f.name, f.size, err)
	}
	return nil
}

// copy runs the lanes; the first error ends all.
func (s *save) copy(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, lane := range s.lanes {
		g.Go(func() error { return lane.run(ctx, s.progress) })
	}
	return g.Wait()
}

func (l *saveLane) run(ctx context.Context, progress *progress) error {
	stream, err := l.device.NewStream()
	if err != nil {
		return err
	}
	blocks := l.blocks
	for len(blocks) > 0 && err == nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		var batch []*block
		batch, blocks = take(blocks, l.device.cfg.SlotSize)
		err = l.write(ctx, stream, batch)
		for _, b := range batch {
			progress.done.Add(b.size)
		}
	}
	return errors.Join(err, stream.Close())
}

// take returns the first blocks that fit, which follow one another in the file,
// and the rest.
func take(blocks []*block, size int) (batch, rest []*block) {
	bytes, n := uint64(0), 0
	for n < len(blocks) && bytes+blocks[n].size <= uint64(size) &&
		(n == 0 || blocks[n].file == blocks[0].file && blocks[n].offset == blocks[0].offset+bytes) {
		bytes += blocks[n].size
		n++
	}
	return blocks[:n], blocks[n:]
}

// runs calls f for the pieces of a batch that follow one another on the device,
// with where they are in the batch. Those of two processes may lie side by side
// and are two mappings all the same, which no copy may go over.
func runs(batch []*block, f func(at, address, size uint64) error) error {
	at := uint64(0)
	for i := 0; i < len(batch); {
		size, j := batch[i].size, i+1
		for j < len(batch) && batch[j].process == batch[i].process && batch[j].address == batch[i].address+size {
			size += batch[j].size
			j++
		}
		if err := f(at, batch[i].address, size); err != nil {
			return err
		}
		at += size
		i = j
	}
	return nil
}

func (l *saveLane) write(ctx context.Context, stream Stream, batch []*block) error {
	slot, err := l.device.slot(ctx)
	if err != nil {
		return err
	}
	defer l.device.put(slot)
	size := uint64(0)
	err = runs(batch, func(at, address, n uint64) error {
		size = at + n
		return stream.ToHost(slot[at:at+n], address)
	})
	// Also after an error: nothing may be on its way into the slot.
	if err = errors.Join(err, stream.Wait()); err != nil {
		return err
	}
	l.encrypt(slot, batch)
	return writeAt(l.file.f, slot[:size], int64(batch[0].offset))
}

// encrypt encrypts the blocks of a batch where they are, each once.
func (l *saveLane) encrypt(slot []byte, batch []*block) {
	if l.cipher == nil {
		return
	}
	at := uint64(0)
	for _, b := range batch {
		contents := slot[at : at+b.size]
		b.tag = l.cipher.Seal(contents, b.offset)
		b.sum = memfile.Sum(contents)
		at += b.size
	}
}
