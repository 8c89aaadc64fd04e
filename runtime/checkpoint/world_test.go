// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// world is a container made of memory: processes with GPU state, a freezer and
// a runtime, which all write down what was asked of them, and fail on demand.
type world struct {
	t      *testing.T
	proc   string
	frozen bool
	// unified says that the freezer is of version 2.
	unified bool
	alive   bool
	states  map[int]gpuplugin.State
	calls   []string
	// fail has the error of the nth call (from 1) of a name: "dump 1".
	fail map[string]error
	// cancel is called in the named call.
	cancel map[string]context.CancelFunc
	count  map[string]int
	engine string
	dumped runc.Dump
	// criu is at work in the dump, nil for no time; killed says that its context
	// ended before it.
	criu   func(ctx context.Context) error
	killed bool
	// pages is the size of the memory image, if it is not to be tiny.
	pages int64
	memory
}

var errFault = errors.New("fault")

// newWorld has a first process, 100, and its child 101, both with GPU state.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, proc: t.TempDir(), alive: true, engine: "driver",
		states: map[int]gpuplugin.State{100: gpuplugin.StateRunning, 101: gpuplugin.StateRunning},
		fail:   map[string]error{}, cancel: map[string]context.CancelFunc{}, count: map[string]int{},
	}
	w.process(100, 1, "1")
	w.process(101, 100, "7")
	return w
}

// process makes what the kernel says of a process.
func (w *world) process(pid, parent int, ns string) {
	w.t.Helper()
	dir := filepath.Join(w.proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	text := fmt.Sprintf("Name:\tp\nPPid:\t%d\nNSpid:\t%d\t%s\nRssAnon:\t    64 kB\n", parent, pid, ns)
	for name, text := range map[string]string{"status": text, "comm": "p" + ns + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) container() *Container {
	return &Container{Init: 100, GPU: w.gpu(), Cgroup: freezer{w}, Runtime: cpu{w}, proc: procfs(w.proc)}
}

// call writes a call down and returns the error that was planned for it.
func (w *world) call(ctx context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[name]++
	w.calls = append(w.calls, name)
	nth := fmt.Sprintf("%s %d", name, w.count[name])
	if stop := w.cancel[nth]; stop != nil {
		stop()
	}
	if err := w.fail[nth]; err != nil {
		return err
	}
	return ctx.Err()
}

func (w *world) called(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.calls, name)
}

type freezer struct{ *world }

func (f freezer) Frozen() (bool, error) { return f.frozen, nil }

func (f freezer) Freeze(ctx context.Context) error {
	err := f.call(ctx, "freeze")
	f.frozen = f.frozen || err == nil
	return err
}

func (f freezer) Thaw(ctx context.Context) error {
	err := f.call(ctx, "thaw")
	f.frozen = f.frozen && err != nil
	return err
}

func (f freezer) Kill(ctx context.Context) error {
	err := f.call(ctx, "kill")
	f.alive = f.alive && err != nil
	return err
}

func (f freezer) PIDs() ([]int, error) {
	var pids []int
	for pid := range f.states {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

func (f freezer) Unified() bool { return f.unified }

type cpu struct{ *world }

func (c cpu) Checkpoint(ctx context.Context, d runc.Dump) error {
	if !c.frozen {
		c.t.Error("the dump begins while processes run")
	}
	for pid, state := range c.states {
		if state == gpuplugin.StateRunning || state == gpuplugin.StateLocked {
			c.t.Errorf("process %d is %s at the dump", pid, state)
		}
	}
	c.checkAway()
	c.dumped = d
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"core-1.img", "pages-1.img", "inventory.img"} {
		if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(name), 0o600); err != nil {
			return err
		}
	}
	if d.Parent != "" {
		if err := os.Symlink(d.Parent, filepath.Join(d.Dir, memfile.ParentName)); err != nil {
			return err
		}
	}
	if c.pages > 0 {
		if err := os.Truncate(filepath.Join(d.Dir, "pages-1.img"), c.pages); err != nil {
			return err
		}
	}
	err := c.call(ctx, "dump")
	if c.criu != nil {
		err = c.criu(ctx)
	}
	c.killed = ctx.Err() != nil
	c.alive = c.alive && (err != nil || !d.Exit)
	return err
}

// gpu0 is where the index of device memory has its chunk.
var gpu0 = memfile.UUID{}.String()

type gpu struct{ *world }

func (g gpu) Engine() string { return g.engine }

func (g gpu) Inventory(ctx context.Context) (gpuplugin.Inventory, error) {
	return gpuplugin.Inventory{Driver: "580.1", API: 13000, Devices: []gpuplugin.Device{{UUID: gpu0, Vendor: "nvidia", MemoryBytes: 2 << 20}, {UUID: "GPU-1", Vendor: "nvidia", MemoryBytes: 2 << 20, Minor: 1}}}, g.call(ctx, "inventory")
}

func (g gpu) Match(ctx context.Context, _ gpuplugin.Inventory, _ []int) (gpuplugin.DeviceMap, error) {
	return gpuplugin.DeviceMap{gpu0: "GPU-1"}, g.call(ctx, "match")
}

func (g gpu) Processes(ctx context.Context, pids []int) ([]gpuplugin.Process, error) {
	if g.frozen && g.engine != snapshot.EngineNone {
		g.t.Error("the driver is asked of a frozen process")
	}
	var procs []gpuplugin.Process
	for _, pid := range pids {
		if state := g.states[pid]; state != "" {
			procs = append(procs, gpuplugin.Process{PID: pid, State: state})
		}
	}
	return procs, g.call(ctx, "processes")
}

func (g gpu) Usage(ctx context.Context, _ []gpuplugin.Process) (map[string]uint64, error) {
	return map[string]uint64{gpu0: 1 << 20}, g.call(ctx, "usage")
}

func (g gpu) Prepare(ctx context.Context, _ []gpuplugin.Process) error { return g.call(ctx, "prepare") }

func (g gpu) Lock(ctx context.Context, procs []gpuplugin.Process) error {
	return g.to(ctx, "lock", procs, gpuplugin.StateLocked)
}

func (g gpu) Suspend(ctx context.Context, procs []gpuplugin.Process) error {
	err := g.to(ctx, "suspend", procs, gpuplugin.StateCheckpointed)
	if err != nil { // all or none: back as found
		for _, p := range procs {
			g.states[p.PID] = p.State
		}
	}
	return err
}

func (g gpu) Resume(ctx context.Context, procs []gpuplugin.Process, _ gpuplugin.DeviceMap) error {
	return g.found(ctx, "resume", procs)
}

func (g gpu) Undo(ctx context.Context, procs []gpuplugin.Process) error {
	return g.found(ctx, "undo", procs)
}

func (g gpu) to(ctx context.Context, name string, procs []gpuplugin.Process, state gpuplugin.State) error {
	err := g.call(ctx, name)
	if err == nil {
		for _, p := range procs {
			g.states[p.PID] = state
		}
	}
	return err
}

func (g gpu) found(ctx context.Context, name string, procs []gpuplugin.Process) error {
	if g.frozen {
		g.t.Errorf("%s of a frozen process", name)
	}
	err := g.call(ctx, name)
	if err == nil {
		for _, p := range procs {
			g.states[p.PID] = p.State
		}
	}
	return err
}
