// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// Check fails with [gpuplugin.ErrUnsupported] for each process that has a
// handle open, or of which that can't be told. A process alone can't import
// anything from another, so it need not be known.
func (w *Watcher) Check(_ context.Context, procs []gpuplugin.Process) error {
	var errs []error
	for _, p := range procs {
		if err := w.checkOne(p.PID, len(procs) > 1); err != nil {
			errs = append(errs, &gpuplugin.ProcessError{PID: p.PID, Op: "prepare", Err: err})
		}
	}
	return errors.Join(errs...)
}

func (w *Watcher) checkOne(pid int, shared bool) error {
	n, err := w.Open(pid)
	switch {
	case n > 0:
		return fmt.Errorf("%d legacy CUDA IPC handles are open (cuIpcOpenMemHandle); "+
			"the driver could not restore the process: %w", n, gpuplugin.ErrUnsupported)
	case !shared:
		return nil
	case err == nil:
		err = w.watched(pid)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) { // it has exited
		return nil
	}
	return fmt.Errorf("cannot tell whether legacy CUDA IPC handles are open, with which "+
		"the driver could not restore the process: %w: %w", err, gpuplugin.ErrUnsupported)
}

// watched fails if the process uses a libcuda whose calls aren't counted.
func (w *Watcher) watched(pid int) error {
	maps, err := librariesIn(w.procfs, pid)
	if err != nil {
		return err
	}
	if len(maps) == 0 {
		return errors.New("it maps no file named libcuda.so")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range maps {
		if w.libraries[m.file] == nil {
			return fmt.Errorf("%s was not there when the container was created", m.path)
		}
	}
	return nil
}

// Clean takes the breakpoints of all probes, also of other watchers, out of the
// code of the processes, which must not run meanwhile.
func (w *Watcher) Clean(procs []gpuplugin.Process) error {
	var errs []error
	for _, p := range procs {
		if err := w.cleanOne(p.PID); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, &gpuplugin.ProcessError{PID: p.PID, Op: "remove probes", Err: err})
		}
	}
	return errors.Join(errs...)
}

func (w *Watcher) cleanOne(pid int) error {
	maps, err := librariesIn(w.procfs, pid)
	if err != nil || len(maps) == 0 {
		return err
	}
	memory, err := os.OpenFile(filepath.Join(w.procfs, strconv.Itoa(pid), "mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range maps {
		lib := w.libraries[m.file]
		if lib == nil || !m.code {
			continue
		}
		for _, s := range lib.symbols {
			if s.offset < m.offset || s.offset-m.offset >= m.end-m.start {
				continue
			}
			if err := putBack(memory, int64(m.start+s.offset-m.offset), s.code); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// putBack writes code where the memory has something else.
func putBack(memory *os.File, at int64, code []byte) error {
	now := make([]byte, len(code))
	if _, err := memory.ReadAt(now, at); err != nil {
		return err
	}
	if bytes.Equal(now, code) {
		return nil
	}
	_, err := memory.WriteAt(code, at)
	return err
}

// Rearm puts the breakpoints back into processes from which Clean took them. If
// it can't, calls may go uncounted from now on, and Check will say so.
func (w *Watcher) Rearm(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lib := range w.libraries {
		if err := w.rearm(lib); err != nil {
			log.G(ctx).WithError(err).Warn("calls of the CUDA IPC functions are not counted any more")
			w.lost = true
		}
	}
}

// rearm adds a probe at each place for a moment: the kernel sets the breakpoint
// in all processes then, and leaves it while there are other probes.
func (w *Watcher) rearm(lib *library) error {
	for _, s := range lib.symbols {
		p, err := openProbe(w.pmu, lib.file, s.offset, w.rings[0])
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		// Its samples had an id that adds nothing.
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}
