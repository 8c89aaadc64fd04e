// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

const (
	// settleTime is how long a call that is under way is waited for.
	settleTime  = time.Second
	settlePause = 10 * time.Millisecond
)

// Check fails with [gpuplugin.ErrUnsupported] for each process that has a
// handle open. Where that can't be told it fails too, with [ErrUnwatched]
// besides, but for a process alone, which can't import anything from another.
func (g *Guard) Check(ctx context.Context, procs []gpuplugin.Process) error {
	broken := g.broken(ctx)
	if broken == nil {
		broken = g.prune()
	}
	if broken != nil {
		if len(procs) < 2 {
			return nil
		}
		return unwatched("processes share GPU memory", broken)
	}
	var errs []error
	for _, p := range procs {
		if err := g.checkOne(ctx, p.PID, len(procs) > 1); err != nil {
			errs = append(errs, &gpuplugin.ProcessError{PID: p.PID, Op: "prepare", Err: err})
		}
	}
	return errors.Join(errs...)
}

func unwatched(what string, err error) error {
	return fmt.Errorf("cannot tell whether %s by legacy CUDA IPC, with which the driver could not restore them: %w: %w: %w",
		what, ErrUnwatched, err, gpuplugin.ErrUnsupported)
}

func (g *Guard) checkOne(ctx context.Context, pid int, several bool) error {
	c, err := g.settled(ctx, pid)
	switch {
	case err == nil && c.open() != "":
		return fmt.Errorf("%s; the driver could not restore the process: %w", c.open(), gpuplugin.ErrUnsupported)
	case !several || errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && c.Memory < 0:
		err = errors.New("it has closed handles that it was not seen to open")
	case err == nil:
		err = g.watched(pid)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return unwatched("it shares GPU memory", err)
}

// open says what is open, "" for nothing.
func (c calls) open() string {
	var parts []string
	if c.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%d legacy CUDA IPC handles are open (cuIpcOpenMemHandle)", c.Memory))
	}
	if c.Events > 0 {
		parts = append(parts, fmt.Sprintf("%d legacy CUDA IPC events were opened (cuIpcOpenEventHandle), and whether they still are can't be told", c.Events))
	}
	if c.Under > 0 {
		parts = append(parts, fmt.Sprintf("%d calls of CUDA's legacy IPC functions are under way, so try again", c.Under))
	}
	return strings.Join(parts, ", ")
}

// settled returns what the process has called, if possible at a moment when no
// call is under way.
func (g *Guard) settled(ctx context.Context, pid int) (calls, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		c, err := g.callsOf(pid)
		if err != nil || c.Under <= 0 {
			return c, err
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return c, nil
		}
	}
}

// callsOf returns what the process has called.
func (g *Guard) callsOf(pid int) (c calls, err error) {
	if g.programs == nil {
		return c, nil
	}
	start, err := startTime(g.procfs, pid)
	if err != nil {
		return c, err
	}
	err = g.programs.table.Lookup(uint32(pid), &c)
	switch {
	case err == nil && !c.of(start):
		return calls{}, nil // made by another, before this one got its PID
	case err == nil:
		return c, nil
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		return c, fmt.Errorf("look up its calls: %w", err)
	}
	var lost calls
	if err := g.programs.table.Lookup(lostKey, &lost); err != nil {
		return c, fmt.Errorf("look up what was lost: %w", err)
	}
	if lost.of(start) {
		return c, fmt.Errorf("more than %d processes made such calls, and some were not counted", maxProcesses)
	}
	return calls{}, nil
}

// of tells whether a process that was started at a time can have made the
// calls: they are younger.
func (c calls) of(start uint64) bool { return c.Since != 0 && c.Since >= start }

// watched fails if the process uses a libcuda whose calls aren't counted.
func (g *Guard) watched(pid int) error {
	maps, err := librariesIn(g.procfs, pid)
	if err != nil {
		return err
	}
	if len(maps) == 0 {
		return errors.New("it maps no file named libcuda.so")
	}
	memory, err := os.Open(filepath.Join(g.procfs, strconv.Itoa(pid), "mem"))
	if err != nil {
		return gone(err)
	}
	defer memory.Close()
	for _, m := range maps {
		lib := g.libraries[m.file]
		if lib == nil {
			return fmt.Errorf("%s was not there when the container was created", shown(m.path))
		}
		if lib.err != nil {
			return lib.err
		}
		if err := lib.armed(memory, m); err != nil {
			return fmt.Errorf("%s: %w", shown(m.path), err)
		}
	}
	return nil
}

// armed fails if the process's code lacks a breakpoint.
func (l *library) armed(memory *os.File, m mapping) error {
	for _, s := range l.symbols {
		at, ok := m.at(s.offset)
		if !ok {
			continue
		}
		now := make([]byte, len(s.code))
		if _, err := memory.ReadAt(now, at); err != nil {
			return gone(err)
		}
		if !isBreakpoint(now) {
			return fmt.Errorf("the probe of %s is missing", s.name)
		}
	}
	return nil
}

// prune makes room in the table: it removes the entries of processes that have
// exited.
func (g *Guard) prune() error {
	if g.programs == nil {
		return nil
	}
	var pid uint32
	var c calls
	var dead []uint32
	entries := g.programs.table.Iterate()
	for entries.Next(&pid, &c) {
		if pid == lostKey {
			continue
		}
		start, err := startTime(g.procfs, int(pid))
		if errors.Is(err, os.ErrNotExist) || err == nil && !c.of(start) {
			dead = append(dead, pid)
		}
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("read the BPF map: %w", err)
	}
	for _, pid := range dead {
		if err := g.programs.table.Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear the BPF map: %w", err)
		}
	}
	return nil
}
