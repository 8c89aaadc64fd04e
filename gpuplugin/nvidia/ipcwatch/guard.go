// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// errNotAttached is what a guard has to say before it is attached.
var errNotAttached = errors.New("nobody has watched the container")

// Guard is the watch of one container, from before its first process runs. It
// makes its [Watcher] in the background, and where none can be made, refuses
// what could not be told. It satisfies nvidia.Sharing.
type Guard struct {
	attach sync.Once
	ready  chan struct{}
	// watcher or err are set when ready is closed.
	watcher *Watcher
	err     error
}

// NewGuard returns a guard that watches nothing yet.
func NewGuard() *Guard { return &Guard{ready: make(chan struct{}), err: errNotAttached} }

// Attach begins to watch the libraries of a container whose files are below
// root: those in the usual directories and in dirs. It returns at once; see
// Wait. Only the first call counts.
func (g *Guard) Attach(ctx context.Context, root string, dirs ...string) {
	g.attach.Do(func() {
		go func() {
			defer close(g.ready)
			if g.watcher, g.err = attach(root, dirs); g.err != nil {
				log.G(ctx).WithError(g.err).Warn("legacy CUDA IPC can't be watched; " +
					"a checkpoint of several GPU processes will be refused")
			}
		}()
	})
}

func attach(root string, dirs []string) (*Watcher, error) {
	w, err := New()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, lib := range Libraries(root, dirs...) {
		errs = append(errs, w.Add(lib))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Wait returns when everything is watched that will be. Whether it can be is
// for Check to say.
func (g *Guard) Wait(ctx context.Context) error {
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Check is [Watcher.Check]. Without a watcher it refuses several processes.
func (g *Guard) Check(ctx context.Context, procs []gpuplugin.Process) error {
	if w := g.current(); w != nil {
		return w.Check(ctx, procs)
	}
	if len(procs) < 2 {
		return nil
	}
	return fmt.Errorf("cannot tell whether processes share GPU memory through legacy CUDA IPC, with which "+
		"the driver could not restore them: %w: %w", g.err, gpuplugin.ErrUnsupported)
}

// Clean is [Watcher.Clean].
func (g *Guard) Clean(procs []gpuplugin.Process) error {
	if w := g.current(); w != nil {
		return w.Clean(procs)
	}
	return nil
}

// Rearm is [Watcher.Rearm].
func (g *Guard) Rearm(ctx context.Context) {
	if w := g.current(); w != nil {
		w.Rearm(ctx)
	}
}

// Close ends the watch; one that is still being attached is waited for.
func (g *Guard) Close() error {
	if w := g.current(); w != nil {
		return w.Close()
	}
	return nil
}

// current is the watcher, for which it waits; nil if there is none.
func (g *Guard) current() *Watcher {
	// A guard that nobody has attached by now is not attached any more.
	g.attach.Do(func() { close(g.ready) })
	<-g.ready
	return g.watcher
}
