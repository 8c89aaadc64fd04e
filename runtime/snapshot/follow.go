// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

const (
	// pollInterval is how often the growing files are looked at. At 3 GB/s,
	// more than CRIU writes, that is 150 MB. inotify would tell of every write
	// and still need the sizes to be asked for.
	pollInterval = 50 * time.Millisecond
	// settle is how far a file has to have grown past a chunk before the chunk
	// is hashed. The kernel moves the size after the data, on local file
	// systems; the distance covers those that don't promise it.
	settle = 1 << 20
	// flushStep is how much writeback is asked for at once.
	flushStep = 32 << 20
)

// Follower starts writing a dump's files to disk while they are being written,
// and on a machine with few processors also computes their digests meanwhile,
// so that little is left to do after the dump.
//
// Only pages-*.img are followed, and only those that appear after [Follow]:
// CRIU appends to them and never goes back. A chunk is hashed once the file
// has grown past it. Everything else (small, or written out of order) is
// hashed by [Follower.Seal]; so is a file that turns out to have been
// replaced, or to have shrunk.
type Follower struct {
	dir   string
	old   map[string]bool
	slots slots
	// beside says that digests are computed beside the dump.
	beside bool

	cancel context.CancelFunc
	quit   chan struct{}
	once   sync.Once
	done   sync.WaitGroup
	flush  chan *growing

	mu    sync.Mutex
	files map[string]*growing
}

// growing is a file that is followed.
type growing struct {
	f *os.File
	// size and flushed are the watcher's and the flusher's own.
	size, flushed int64

	mu      sync.Mutex
	digests map[int]string
	next    int
	shrunk  bool
}

// Follow starts following the files that appear in dir. Its goroutines end
// with the context, [Follower.Stop] or [Follower.Seal].
func Follow(ctx context.Context, dir string) (*Follower, error) {
	before, err := List(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &Follower{
		dir: dir, old: before.names, slots: make(slots, processors()), beside: runtime.NumCPU() < manyProcessors,
		cancel: cancel, quit: make(chan struct{}),
		flush: make(chan *growing, filesAtOnce), files: map[string]*growing{},
	}
	f.done.Go(func() { f.watch(ctx) })
	f.done.Go(f.flushAll)
	return f, nil
}

// Stop ends following and forgets what was found; it removes nothing. It may
// be called more than once, and after Seal.
func (f *Follower) Stop() {
	f.cancel()
	f.finish()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.files {
		// It was only read.
		_ = g.f.Close()
	}
	f.files = map[string]*growing{}
}

// finish ends the goroutines, but lets the chunks that are being hashed end.
func (f *Follower) finish() {
	f.once.Do(func() { close(f.quit) })
	f.done.Wait()
}

// watch looks for files that have grown until it is told to end.
func (f *Follower) watch(ctx context.Context) {
	defer close(f.flush)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.quit:
			return
		case <-tick.C:
		}
		// What can't be read now is Seal's to report.
		entries, err := os.ReadDir(f.dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if followable(e.Name()) && !f.old[e.Name()] {
				f.look(ctx, e.Name())
			}
		}
	}
}

// look hands out what is new of one file.
func (f *Follower) look(ctx context.Context, name string) {
	g := f.open(name)
	if g == nil {
		return
	}
	info, err := g.f.Stat()
	if err != nil || info.Size() < g.size {
		g.mu.Lock()
		g.shrunk = true
		g.mu.Unlock()
	}
	if err != nil {
		return
	}
	g.size = info.Size()
	for int64(g.next+1)*ChunkSize+settle <= g.size && f.beside && f.idle() {
		i := g.next
		g.next++
		f.done.Go(func() {
			defer f.slots.release()
			digest, err := digestChunk(ctx, g.f, int64(i+1)*ChunkSize, i)
			if err != nil {
				return // Seal does it again, and reports it
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.digests[i] = digest
		})
	}
	select {
	case f.flush <- g:
	default: // the disk is busy with what it was given
	}
}

// idle takes a slot if there is one. If not, the next look finds the same.
func (f *Follower) idle() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// open returns the file once it is worth following, so that the thousands of
// small files of a large process tree are not held open.
func (f *Follower) open(name string) *growing {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.files[name]; g != nil {
		return g
	}
	info, err := os.Lstat(filepath.Join(f.dir, name))
	if err != nil || info.Size() < flushStep {
		return nil
	}
	file, _, err := openRegular(f.dir, name)
	if err != nil {
		return nil
	}
	g := &growing{f: file, digests: map[int]string{}}
	f.files[name] = g
	return g
}

// flushAll starts the writing to disk of what the files hold, so that the
// fsync at the end has little left. It has a goroutine of its own because the
// kernel makes it wait when the disk's queue is full.
func (f *Follower) flushAll() {
	for g := range f.flush {
		info, err := g.f.Stat()
		if err != nil || info.Size()-g.flushed < flushStep {
			continue
		}
		// A file system that can't do it has the fsync still to come.
		_ = unix.SyncFileRange(int(g.f.Fd()), g.flushed, info.Size()-g.flushed, unix.SYNC_FILE_RANGE_WRITE)
		g.flushed = info.Size()
	}
}

// Seal ends following, when all files have been written: it computes the
// digests that are missing and puts the files on disk. It changes no file, so
// the container may be resumed meanwhile.
func (f *Follower) Seal(ctx context.Context) ([]File, error) {
	defer f.Stop()
	f.finish()
	if !f.beside {
		defer boost()()
		f.slots = make(slots, processors())
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("seal the snapshot: %w", err)
	}
	var (
		mu    sync.Mutex
		files = []File{}
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, e := range entries {
		if e.Name() == ManifestName || !belongs(e.Name()) {
			continue
		}
		g.Go(func() error {
			file, err := f.seal(ctx, e.Name())
			if err != nil {
				return fmt.Errorf("seal the snapshot: %s: %w", filepath.Join(f.dir, e.Name()), err)
			}
			mu.Lock()
			defer mu.Unlock()
			files = append(files, file)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return files, nil
}

// seal finishes one file.
func (f *Follower) seal(ctx context.Context, name string) (_ File, err error) {
	if err := checkName(name); err != nil {
		return File{}, err
	}
	file, size, err := openRegular(f.dir, name)
	if err != nil {
		return File{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if covered(name) {
		return File{Name: name, Size: size, CoveredBy: memfile.IndexName}, file.Sync()
	}
	digests := f.known(name, file, size)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(file.Sync)
	g.Go(func() error {
		return eachChunk(ctx, file, size, f.slots,
			func(i int) bool { return digests[i] == "" },
			func(i int, digest string) error { digests[i] = digest; return nil })
	})
	if err := g.Wait(); err != nil {
		return File{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return File{}, err
	}
	if info.Size() != size {
		return File{}, fmt.Errorf("it is still being written: %d bytes, then %d", size, info.Size())
	}
	return File{Name: name, Size: size, Digests: digests}, nil
}

// known returns the file's digests, with those in place that were computed
// while it grew, if it is the same file.
func (f *Follower) known(name string, file *os.File, size int64) []string {
	digests := make([]string, chunks(size))
	f.mu.Lock()
	g := f.files[name]
	f.mu.Unlock()
	if g == nil {
		return digests
	}
	was, err := g.f.Stat()
	if err != nil {
		return digests
	}
	is, err := file.Stat()
	if err != nil || !os.SameFile(was, is) {
		return digests
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shrunk || size < g.size {
		return digests
	}
	for i, digest := range g.digests {
		digests[i] = digest
	}
	return digests
}
