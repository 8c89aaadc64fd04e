// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package ipcwatch knows which processes have legacy CUDA IPC handles open
// (cuIpcOpenMemHandle). The driver checkpoints such a process and then can't
// restore it, and nothing tells of a handle afterwards, so the calls are
// counted as they are made: by uprobes on the container's libcuda, which cost
// nothing until one of the functions is called.
//
// A probe is a breakpoint in the code of every process that maps the library.
// CRIU would dump it, and whoever calls the function after a restore without
// the probe would die of it: [Watcher.Clean] takes it out before a dump, and
// [Watcher.Rearm] puts it back.
//
// The package must not know of containers or of the driver. Watcher.mu guards
// the list of libraries and the tally; it is held during system calls on the
// probes and never while one waits.
package ipcwatch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// functions are the names under which libcuda has what is counted, and what a
// call adds to the open handles of its process. A call that fails counts too:
// the probe sees its beginning.
var functions = map[string]int{
	"cuIpcOpenMemHandle":    1, // CUDA 4.1
	"cuIpcOpenMemHandle_v2": 1, // CUDA 11
	"cuIpcCloseMemHandle":   -1,
}

// ErrLost means that calls were made which could not be counted.
var ErrLost = errors.New("some calls of the CUDA IPC functions were not counted")

// inode names a file, whatever its path.
type inode struct{ dev, ino uint64 }

// library is one watched file.
type library struct {
	file *os.File
	// symbols are what is probed in it.
	symbols []symbol
	probes  []*probe
}

// Watcher counts the calls that processes make in the libraries that it was
// given, until it is closed. It holds the libraries open, so one that watches a
// container's has to be closed before the container's files can be unmounted.
type Watcher struct {
	procfs string
	pmu    uint32
	rings  []*ring
	stop   int // an eventfd
	done   chan struct{}
	close  func() error

	mu        sync.Mutex
	libraries map[inode]*library
	adds      map[uint64]int // what a sample of a probe's id adds
	tallies   map[int]*tally
	lost      bool
}

// tally is what one process has open. Its start tells it from another that got
// the same PID later.
type tally struct {
	start uint64
	open  int
}

// New returns a watcher that watches nothing yet. It fails where the kernel has
// no uprobes or doesn't let this process use them.
func New() (*Watcher, error) {
	pmu, err := uprobePMU()
	if err != nil {
		return nil, fmt.Errorf("the kernel has no uprobes: %w", err)
	}
	cpus, err := onlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	w := &Watcher{
		procfs: "/proc", pmu: pmu, done: make(chan struct{}),
		libraries: map[inode]*library{}, adds: map[uint64]int{}, tallies: map[int]*tally{},
	}
	w.close = sync.OnceValue(w.closeOnce)
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	for _, cpu := range cpus {
		r, err := newRing(cpu)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a ring for CPU %d: %w", cpu, err), w.release())
		}
		w.rings = append(w.rings, r)
	}
	go w.drainForever()
	return w, nil
}

// Close ends the watch. Nothing is known afterwards: Open says [ErrLost].
func (w *Watcher) Close() error { return w.close() }

func (w *Watcher) closeOnce() error {
	one := [8]byte{1}
	if _, err := unix.Write(w.stop, one[:]); err != nil {
		return fmt.Errorf("stop the reader of probes: %w", err)
	}
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	return w.release()
}

func (w *Watcher) release() error {
	var errs []error
	for _, lib := range w.libraries {
		errs = append(errs, lib.close())
	}
	for _, r := range w.rings {
		errs = append(errs, r.close())
	}
	w.libraries, w.rings = nil, nil
	return errors.Join(append(errs, unix.Close(w.stop))...)
}

// Add watches a library from now on. One that is watched already, under
// whatever path, is no error, nor is one that has none of the functions.
func (w *Watcher) Add(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	lib := &library{file: f}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rings) == 0 {
		return errors.Join(ErrLost, lib.close())
	}
	id, err := inodeOf(f)
	if err != nil || w.libraries[id] != nil {
		return errors.Join(err, lib.close())
	}
	if lib.symbols, err = symbolsOf(f); err == nil {
		err = w.arm(lib)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("probe %s: %w", path, err), lib.close())
	}
	w.libraries[id] = lib
	return nil
}

func (l *library) close() error {
	errs := []error{l.file.Close()}
	for _, p := range l.probes {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// arm sets the probes of a library, each on every CPU. The kernel takes the
// path of the open file, so it's the same file whatever happens to its name.
// Each takes 1.5 ms, most of it in waiting (16 CPUs, Linux 6.18), so all are
// set at the same time.
func (w *Watcher) arm(lib *library) error {
	var group errgroup.Group
	var mu sync.Mutex
	for _, s := range lib.symbols {
		for _, r := range w.rings {
			group.Go(func() error {
				p, err := openProbe(w.pmu, lib.file, s.offset, r)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				lib.probes = append(lib.probes, p)
				w.adds[p.id] = functions[s.name]
				return nil
			})
		}
	}
	return group.Wait()
}

// Open returns how many handles a process has opened and not closed.
func (w *Watcher) Open(pid int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drain()
	if w.lost {
		return 0, ErrLost
	}
	t := w.tallies[pid]
	if t == nil {
		return 0, nil
	}
	start, err := startTime(w.procfs, pid)
	switch {
	case errors.Is(err, os.ErrNotExist) || err == nil && start != t.start:
		delete(w.tallies, pid) // that process has exited
		return 0, nil
	case err != nil:
		return 0, err
	}
	return max(t.open, 0), nil
}

// drainForever empties the rings before they are full.
func (w *Watcher) drainForever() {
	defer close(w.done)
	fds := []unix.PollFd{{Fd: int32(w.stop), Events: unix.POLLIN}}
	for _, r := range w.rings {
		fds = append(fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, syscall.EINTR) {
			w.mu.Lock()
			w.lost = true
			w.mu.Unlock()
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		w.mu.Lock()
		w.drain()
		w.mu.Unlock()
	}
}

// drain counts what the rings have.
func (w *Watcher) drain() {
	for _, r := range w.rings {
		if !r.read(w.count) {
			w.lost = true
		}
	}
}

// count takes one call into account. It may be read long after it was made.
func (w *Watcher) count(s sample) {
	pid := int(s.pid)
	start, err := startTime(w.procfs, pid)
	if err != nil || s.time+sleptFor() < start {
		return // the process has exited, and its handles with it
	}
	t := w.tallies[pid]
	if t == nil || t.start != start {
		t = &tally{start: start}
		w.tallies[pid] = t
	}
	t.open += w.adds[s.id]
}

func inodeOf(f *os.File) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return inode{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}
