// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/rootfs"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

// companion saves what `hetgpu checkpoint` wants beside the processes.
type companion struct {
	// upper is the container's writable layer, "" if it is not wanted.
	upper string
	dir   string
	// layer says that there is to be one, if only an empty one.
	layer bool
	// record describes the container; nil for none.
	record []byte

	taken *rootfs.Layer
}

var _ checkpoint.Companion = (*companion)(nil)

// companion finds what is to be saved.
func (c *container) companion(dir string, opts *shortstop.Options) (*companion, error) {
	with := &companion{dir: dir, layer: opts.Layer, record: opts.Container}
	if !opts.Layer {
		return with, nil
	}
	var err error
	with.upper, err = rootfs.Upper(filepath.Join(c.bundle, "rootfs"))
	if err != nil {
		return nil, fmt.Errorf("%w; without its writable layer the container can be saved by --no-rw: %w", err, errdefs.ErrFailedPrecondition)
	}
	return with, nil
}

// Capture implements [checkpoint.Companion].
func (w *companion) Capture(ctx context.Context) (err error) {
	if w.upper == "" {
		return nil
	}
	w.taken, err = rootfs.Capture(ctx, w.upper, w.dir, filepath.Dir(w.upper))
	if err != nil {
		return err
	}
	stats := w.taken.Stats()
	log.G(ctx).WithField(logfields.Bytes, stats.Bytes).Infof("writable layer: %d files, %d bytes shared", stats.Files, stats.Cloned)
	return nil
}

// Write implements [checkpoint.Companion].
func (w *companion) Write(ctx context.Context, dir string) error {
	if w.record != nil {
		if err := os.WriteFile(filepath.Join(dir, snapshot.RecordName), w.record, 0o600); err != nil {
			return err
		}
	}
	if !w.layer {
		return nil
	}
	layer := w.taken
	if layer == nil {
		layer = &rootfs.Layer{} // nothing could be written
	}
	f, err := os.OpenFile(filepath.Join(dir, snapshot.LayerName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(layer.WriteTar(ctx, f), f.Close(), w.close())
}

// close frees what was taken.
func (w *companion) close() error {
	if w.taken == nil {
		return nil
	}
	return w.taken.Close()
}

// progress tells a client by a file how far its checkpoint is.
type progress struct {
	mu   sync.Mutex
	file *os.File // guarded by mu
}

var _ checkpoint.Progress = (*progress)(nil)

// openProgress opens the file that the client made; without one nobody is told.
func openProgress(dir string) (*progress, error) {
	name := filepath.Join(dir, shortstop.ProgressName)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return &progress{}, nil
	}
	return &progress{file: f}, err
}

// Begin implements [checkpoint.Progress].
func (p *progress) Begin(phase string) { p.write(shortstop.Event{Phase: phase}) }

// Expect implements [checkpoint.Progress].
func (p *progress) Expect(bytes uint64) { p.write(shortstop.Event{Expect: bytes}) }

// write adds a line. What can't be told must not end the checkpoint.
func (p *progress) write(e shortstop.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = p.file.Write(append(line, '\n'))
	}
	if err != nil {
		_ = p.file.Close() // nobody reads it any more, or the disk is full
		p.file = nil
	}
}

// close removes the file: a client that was killed leaves it.
func (p *progress) close(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		_ = p.file.Close() // what could not be written there does not matter
		p.file = nil
	}
	_ = os.Remove(filepath.Join(dir, shortstop.ProgressName))
}
