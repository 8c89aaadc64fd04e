// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// patch is where a process had a breakpoint.
type patch struct {
	pid int
	at  int64
	// breakpoint is what was there.
	breakpoint []byte
}

// Clean takes the breakpoints of all guards, of other shims' too, out of the
// code of processes, which must be stopped until undo has put them back. For
// the kernel the probes stay set all the while: to take one off would take
// longer than many a checkpoint, and calls of others would not be counted.
func Clean(pids []int) (undo func() error, err error) {
	var done []patch
	undo = func() error {
		var errs []error
		for _, p := range done {
			errs = append(errs, p.undo())
		}
		return errors.Join(errs...)
	}
	c := cleaner{procfs: "/proc", known: make(map[inode][]symbol)}
	for _, pid := range pids {
		patches, err := c.clean(pid)
		done = append(done, patches...)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("take the probes out of process %d: %w", pid, err), undo())
		}
	}
	return undo, nil
}

// cleaner knows where the functions are in the libraries that it has met.
type cleaner struct {
	procfs string
	known  map[inode][]symbol
}

func (c *cleaner) clean(pid int) (done []patch, err error) {
	maps, err := librariesIn(c.procfs, pid)
	if err != nil || len(maps) == 0 {
		return nil, err
	}
	memory, err := os.OpenFile(filepath.Join(c.procfs, strconv.Itoa(pid), "mem"), os.O_RDWR, 0)
	if err != nil {
		return nil, gone(err)
	}
	defer memory.Close()
	for _, m := range maps {
		symbols, err := c.symbols(m)
		if err != nil {
			return done, err
		}
		for _, s := range symbols {
			at, ok := m.at(s.offset)
			if !ok {
				continue
			}
			now := make([]byte, len(s.code))
			if _, err := memory.ReadAt(now, at); err != nil {
				return done, gone(err)
			}
			if bytes.Equal(now, s.code) || !isBreakpoint(now) {
				continue // what else differs is the program's own doing
			}
			if _, err := memory.WriteAt(s.code, at); err != nil {
				return done, fmt.Errorf("%s: %w", s.name, gone(err))
			}
			done = append(done, patch{pid: pid, at: at, breakpoint: now})
		}
	}
	return done, nil
}

func (c *cleaner) symbols(m mapping) ([]symbol, error) {
	if s, ok := c.known[m.file]; ok || !m.code {
		return s, nil
	}
	f, err := os.Open(m.link)
	if err != nil {
		return nil, gone(err)
	}
	defer f.Close()
	s, err := symbolsOf(f)
	if err != nil {
		// Nobody can have set a probe in what is no library.
		s = nil
	}
	c.known[m.file] = s
	return s, nil
}

func (p patch) undo() error {
	memory, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(p.pid), "mem"), os.O_RDWR, 0)
	if err == nil {
		defer memory.Close()
		_, err = memory.WriteAt(p.breakpoint, p.at)
	}
	if err = gone(err); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put the probes back into process %d: %w", p.pid, err)
	}
	return nil
}
