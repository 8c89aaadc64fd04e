// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package ipcwatch knows which processes have legacy CUDA IPC handles open
// (cuIpcOpenMemHandle). The driver checkpoints such a process and then can't
// restore it, and nothing tells of a handle afterwards, so the calls are
// counted as they are made: BPF programs on uprobes in the container's libcuda
// do it, which cost nothing until one of the functions is called.
//
// A probe is a breakpoint in the code of every process that maps the library.
// CRIU would dump it, and whoever calls the function after a restore without
// the probe would die of it, so [Clean] takes it out of a container that is
// dumped. docs/legacy-ipc.md says what is seen and what isn't.
//
// The package must not know of containerd, annotations or the driver. Guard.mu
// guards memory only.
package ipcwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/containerd/log"
)

var (
	// ErrUnwatched means that calls could be made without being counted.
	ErrUnwatched = errors.New("calls of CUDA's IPC functions are not counted")

	errNotAttached = errors.New("nobody has watched the container")
	errClosed      = errors.New("the watch has ended")
)

// closeTimeout is how long Close waits for files to be found and opened.
const closeTimeout = 10 * time.Second

// Guard is the watch of one container, from before its first process runs or,
// for a restored one, from before its GPU state is back. It satisfies
// nvidia.Sharing.
type Guard struct {
	procfs  string
	attach  sync.Once
	release sync.Once
	ready   chan struct{}
	// closeTimeout bounds Close's wait for ready.
	closeTimeout time.Duration
	// programs and libraries are set when ready is closed. Both may be nil.
	programs  *programs
	libraries map[inode]*library

	mu sync.Mutex
	// err is why calls aren't counted, or not any more.
	err error // guarded by mu
}

// library is one file that is watched, or why it can't be.
type library struct {
	symbols []symbol
	links   []link.Link
	err     error
}

// NewGuard returns a guard that watches nothing yet.
func NewGuard() *Guard {
	return &Guard{procfs: "/proc", closeTimeout: closeTimeout, ready: make(chan struct{}), err: errNotAttached}
}

// Attach begins to watch the libraries of a container: those that its processes
// map, and those that the first of them finds in the usual directories and in
// dirs. It returns at once; see Wait. Only the first call counts.
func (g *Guard) Attach(ctx context.Context, pids []int, dirs ...string) {
	g.attach.Do(func() {
		go func() {
			defer close(g.ready)
			g.attached(ctx, g.watch(ctx, pids, dirs))
		}()
	})
}

// attached notes how it went.
func (g *Guard) attached(ctx context.Context, err error) {
	if err != nil {
		log.G(ctx).WithError(err).Warn("legacy CUDA IPC can't be watched; a checkpoint of several GPU processes will be refused")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(g.err, errNotAttached) {
		g.err = err
	}
}

// Wait returns when everything is watched that will be, or when ctx ends, from
// when on Check trusts nothing. It's for Check to say whether there is anything
// to trust.
func (g *Guard) Wait(ctx context.Context) {
	select {
	case <-g.ready:
		return // even if ctx has ended
	default:
	}
	select {
	case <-g.ready:
	case <-ctx.Done():
		g.Blind(context.Cause(ctx))
	}
}

// Blind makes Check say that calls were made and not counted, for a reason.
func (g *Guard) Blind(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// Close ends the watch. The kernel takes a tenth of a second and more to take
// probes off, so nobody should wait for it. Where a file system of the container
// hangs, Close gives up after a while, and the rest is done if it ever goes on.
func (g *Guard) Close() error {
	// A guard that nobody has attached by now is not attached any more.
	g.attach.Do(func() { close(g.ready) })
	g.Blind(errClosed)
	select {
	case <-g.ready:
		return g.free()
	case <-time.After(g.closeTimeout):
	}
	go func() {
		<-g.ready
		_ = g.free() // nobody is there any more to be told
	}()
	return fmt.Errorf("the search for the container's libcuda did not end within %v; does a file system hang?", g.closeTimeout)
}

// free takes the probes off, once.
func (g *Guard) free() (err error) {
	g.release.Do(func() {
		var errs []error
		for _, lib := range g.libraries {
			errs = append(errs, lib.close())
		}
		if g.programs != nil {
			errs = append(errs, g.programs.close())
		}
		err = errors.Join(errs...)
	})
	return err
}

// broken returns why calls aren't counted.
func (g *Guard) broken(ctx context.Context) error {
	g.attach.Do(func() { close(g.ready) })
	g.Wait(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *Guard) watch(ctx context.Context, pids []int, dirs []string) error {
	files, err := librariesOf(g.procfs, pids, dirs)
	if err != nil {
		return fmt.Errorf("find the container's libcuda: %w", err)
	}
	defer closeAll(files)
	if len(files) == 0 {
		return nil // what a process may use later is found out by Check
	}
	if g.programs, err = loadPrograms(); err != nil {
		return err
	}
	g.libraries = make(map[inode]*library)
	for _, f := range files {
		id, err := inodeOf(f)
		if err != nil {
			return err
		}
		if g.libraries[id] != nil {
			continue // under another name
		}
		lib := &library{}
		if lib.err = lib.watch(f, g.programs); lib.err != nil {
			log.G(ctx).WithError(lib.err).Debug("a file is named like libcuda and can't be watched")
		}
		g.libraries[id] = lib
	}
	return nil
}

// watch sets the probes.
func (l *library) watch(f *os.File, p *programs) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("probe %q: %w", f.Name(), err), l.close())
		}
	}()
	if l.symbols, err = symbolsOf(f); err != nil || len(l.symbols) == 0 {
		return err
	}
	// The open file, whatever happens to its name.
	file, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	l.links, err = p.attach(file, l.symbols)
	return err
}

func (l *library) close() error {
	err := closeLinks(l.links)
	l.links = nil
	return err
}
