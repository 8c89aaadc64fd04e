// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// held is a checkpoint that CRIU is in the middle of.
type held struct {
	*patient
	hold
	// done has the result of the checkpoint.
	done <-chan error
}

// held starts a checkpoint and returns once CRIU has all processes in its
// hands. Until it is released, it waits.
func (d *daemon) held(ctx context.Context, t *testing.T, checkpoint func(*patient) error) held {
	t.Helper()
	return d.toBeHeld(ctx, t, "network-lock").start(ctx, checkpoint)
}

// toBeHeld is a patient in whose next checkpoint CRIU will be held.
type toBeHeld struct {
	*patient
	hook
	hold
}

// toBeHeld runs a container, and has CRIU held at a stage.
func (d *daemon) toBeHeld(ctx context.Context, t *testing.T, stage string, opts ...oci.SpecOpts) toBeHeld {
	t.Helper()
	h, withHook := newHook(t)
	s := d.toy("-n", "2")
	s.opts = append(append(s.opts, withHook), opts...)
	p := d.patient(ctx, t, s, 2)
	o := h.holdAt(t, stage)
	t.Cleanup(o.release)
	return toBeHeld{p, h, o}
}

// start starts the checkpoint and returns once CRIU is at the stage.
func (h toBeHeld) start(ctx context.Context, checkpoint func(*patient) error) held {
	h.patient.t.Helper()
	done := make(chan error, 1)
	go func() { done <- checkpoint(h.patient) }()
	h.wait(ctx)
	h.hook.at(h.patient.t, "", "")
	return held{h.patient, h.hold, done}
}

// result waits for the end of the checkpoint.
func (h held) result(ctx context.Context) error {
	h.t.Helper()
	select {
	case err := <-h.done:
		return err
	case <-ctx.Done():
		h.t.Fatal(context.Cause(ctx))
		return nil
	}
}

// Whoever asked for a checkpoint goes away in the middle of it. CRIU is let come
// to its end; then the container goes on, and nothing is left.
func TestFaultsClientGone(t *testing.T) {
	// A shell's background job ignores it, and so would ctr.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	defer signal.Reset(os.Interrupt)
	for name, sig := range map[string]syscall.Signal{"context canceled": 0, "ctr interrupted": syscall.SIGINT, "ctr killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			clientCtx, cancel := context.WithCancel(ctx)
			defer cancel()
			program := make(chan *exec.Cmd, 1)
			h := d.held(ctx, t, func(p *patient) error {
				if sig == 0 {
					_, err := p.task.Checkpoint(clientCtx)
					return err
				}
				ctr, err := d.Command(ctx, "ctr", d.CtrArgs("task", "checkpoint", p.id)...)
				if err == nil {
					err = ctr.Start()
				}
				if err != nil {
					return err
				}
				program <- ctr
				return ctr.Wait()
			})
			if sig == 0 {
				cancel()
			} else if err := (<-program).Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := h.result(ctx); err == nil {
				t.Error("the checkpoint succeeded")
			}
			h.release()
			h.waitRunning(ctx)
			h.expectRecovered(ctx)
		})
	}
}

// What was paused before the checkpoint stays so, also if the client of the
// checkpoint goes away: somebody else has paused it, and will resume it.
func TestFaultsClientGoneFromPaused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	clientCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := d.held(ctx, t, func(p *patient) error {
		if err := p.task.Pause(ctx); err != nil {
			return err
		}
		_, err := p.task.Checkpoint(clientCtx)
		return err
	})
	cancel()
	if err := h.result(ctx); err == nil {
		t.Error("the checkpoint succeeded")
	}
	h.release()
	// A pause is refused while the checkpoint ends, then since it is paused.
	err := testbed.Eventually(ctx, "the checkpoint has ended", func() error {
		err := h.task.Pause(ctx)
		if err != nil && !strings.Contains(err.Error(), "is under way") {
			return nil
		}
		if err == nil {
			err = testbed.Permanent(errors.New("the container was resumed"))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	h.expectStatus(ctx, containerd.Paused)
	if state := h.freezerState(); state != "frozen" {
		t.Errorf("the freezer is %s", state)
	}
	if err := h.task.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	h.expectRecovered(ctx)
}

// A container that is killed during its checkpoint ends at once, and can be
// deleted.
func TestFaultsContainerKilled(t *testing.T) {
	for name, kill := range map[string]func(ctx context.Context, h held, leave func()) error{
		"by containerd": func(ctx context.Context, h held, _ func()) error { return h.task.Kill(ctx, syscall.SIGKILL) },
		"by containerd, its client gone": func(ctx context.Context, h held, leave func()) error {
			leave()
			h.waitLetGo(ctx)
			return h.task.Kill(ctx, syscall.SIGKILL)
		},
		"by the kernel": func(_ context.Context, h held, _ func()) error {
			defer h.release()
			return syscall.Kill(int(h.task.Pid()), syscall.SIGKILL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			client, leave := context.WithCancel(ctx)
			defer leave()
			h := d.held(ctx, t, func(p *patient) error {
				_, err := p.task.Checkpoint(client)
				return err
			})
			if err := kill(ctx, h, leave); err != nil {
				t.Fatal(err)
			}
			if err := h.result(ctx); err == nil {
				t.Error("the checkpoint succeeded")
			}
			h.expectKilled(ctx)
			d.expectNothingLeft(t)
			for _, gpu := range usual.GPUs {
				d.expectUsed(t, gpu, 0)
			}
		})
	}
}

// expectKilled fails unless the container was killed, can be deleted, and has left
// no files.
func (p *patient) expectKilled(ctx context.Context) {
	p.t.Helper()
	if status := p.waitExit(ctx); status != 137 {
		p.t.Errorf("exit status %d, not 137", status)
	}
	p.delete(ctx)
	p.remove()
	if left := list(p.dir); len(left) != 0 {
		p.t.Errorf("%s has %v", p.dir, left)
	}
}

// waitLetGo returns once the shim knows that nobody wants the dump any more, and
// lets CRIU come to its end.
func (p *patient) waitLetGo(ctx context.Context) {
	p.t.Helper()
	err := testbed.Eventually(ctx, "CRIU is let come to its end", func() error {
		log, err := os.ReadFile(p.d.LogPath())
		if err != nil {
			return testbed.Permanent(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "CRIU is let come to its end") && strings.Contains(line, p.id) {
				return nil
			}
		}
		return errors.New("the log does not say so")
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// The shim is killed in the middle of a checkpoint, with the processes frozen,
// the GPU state in their memory and CRIU at work. containerd cleans up.
func TestFaultsShimKilled(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	var w *watcher
	h := d.held(ctx, t, func(p *patient) error {
		w = d.watch(ctx, p.id)
		return p.checkpoint(ctx)
	})
	for _, pid := range d.shims(t, h.id) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.result(ctx); err == nil {
		t.Error("the checkpoint succeeded")
	}
	w.until(ctx, t, "exit")
	w.until(ctx, t, "delete")
	h.release()
	expectNothingRuns(ctx, t, d)
	h.remove()
	d.expectNothingLeft(t)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
	// Nobody is there to remove what CRIU had written into the client's own
	// directory. It is no snapshot, and is not taken for one.
	if _, err := os.Stat(filepath.Join(h.dir, snapshot.ManifestName)); err == nil {
		t.Error("it has a manifest")
	}
	d.expectRestoreFails(ctx, t, d.toy("-n", "2"), h.dir)
}

// restoring is a restore that CRIU is in the middle of.
type restoring struct {
	*container
	hold
	// done has the result of the start.
	done <-chan error
}

// restoring starts a restore under the client's context and returns once CRIU
// waits at a stage. Until it is released, it does. Creator is for the streams,
// nil for pipes.
func (d *daemon) restoring(client context.Context, t *testing.T, dir, stage string, creator cio.Creator) restoring {
	t.Helper()
	h, withHook := newHook(t)
	s := d.toy("-n", "2")
	s.opts = append(s.opts, withHook)
	s.io, s.taskOpts = creator, []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
	ctx := d.testContext(t)
	c := d.create(ctx, t, s)
	o := h.holdAt(t, stage)
	t.Cleanup(o.release)
	done := make(chan error, 1)
	go func() { done <- c.task.Start(client) }()
	o.wait(ctx)
	return restoring{c, o, done}
}

// A restore comes to its end when its client has gone, if it does not need the
// client's pipes, which are gone then too; and it leaves nothing when its time
// is up.
func TestFaultsRestoreClientGone(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	dir, _ := d.saved(ctx, t, d.toy("-n", "2"), 2)
	t.Run("log", func(t *testing.T) {
		client, cancel := context.WithCancel(ctx)
		defer cancel()
		log := filepath.Join(t.TempDir(), "log")
		r := d.restoring(client, t, dir, "pre-restore", cio.LogFile(log))
		cancel()
		if err := <-r.done; err == nil {
			t.Error("the canceled start succeeded")
		}
		r.release()
		r.waitRunning(ctx)
		r.expectStates(ctx, 2, "running")
		waitFile(ctx, t, log, "rank 0 tick ", "rank 1 tick ")
		r.stop(ctx)
	})
	t.Run("pipes", func(t *testing.T) {
		client, cancel := context.WithCancel(ctx)
		defer cancel()
		r := d.restoring(client, t, dir, "post-restore", nil)
		cancel()
		if err := <-r.done; err == nil {
			t.Error("the canceled start succeeded")
		}
		r.release()
		d.expectNotRestored(ctx, t, r.container)
	})
	t.Run("time is up", func(t *testing.T) {
		h, withHook := newHook(t)
		h.at(t, "post-restore", hookHangs)
		s := d.toy("-n", "2")
		s.opts = append(s.opts, withHook)
		s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
		c := d.create(ctx, t, s)
		client, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := c.task.Start(client); err == nil {
			t.Error("the start succeeded")
		}
		d.expectNotRestored(ctx, t, c)
	})
}

// The shim is killed in the middle of a restore: before CRIU has made a process,
// and when all are there and none has run. containerd cleans up, and the
// snapshot is as it was.
func TestFaultsShimKilledInRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2")
	dir, _ := d.saved(ctx, t, s, 2)
	for _, stage := range []string{"pre-restore", "post-restore"} {
		t.Run(stage, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			r := d.restoring(ctx, t, dir, stage, nil)
			for _, pid := range d.shims(t, r.id) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-r.done; err == nil {
				t.Error("the restore succeeded")
			}
			r.release()
			d.expectNotRestored(ctx, t, r.container)
		})
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
}

// While a checkpoint is under way there is no other, no pause, and no process
// enters; but all the while the state can be asked for.
func TestFaultsAtTheSameTime(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	h := d.held(ctx, t, func(p *patient) error { return p.checkpointDirectly(ctx, false) })
	other := *h.patient
	other.dir = filepath.Join(t.TempDir(), "other")
	for what, try := range map[string]func() error{
		"checkpoint": func() error { return other.checkpointDirectly(ctx, false) },
		"pause":      func() error { return h.task.Pause(ctx) },
		"exec":       func() error { return h.tryExec(ctx) },
	} {
		if err := try(); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v, want a failed precondition", what, err)
		} else {
			expectError(t, err, "checkpoint is under way")
		}
	}
	for range 20 {
		start := time.Now()
		h.expectStatus(ctx, containerd.Running)
		if took := time.Since(start); took > stateTime {
			t.Errorf("the state took %s", took)
		}
	}
	h.release()
	if err := h.result(ctx); err != nil {
		t.Errorf("the checkpoint: %v", err)
	}
	h.startOver()
	h.expectRecovered(ctx)
}

// tryExec starts a process in the container and does not wait for it.
func (c *container) tryExec(ctx context.Context) error {
	e, err := c.task.Exec(ctx, "enters", &specs.Process{Args: []string{"/bin/true"}, Cwd: "/"}, cio.NullIO)
	if err != nil {
		return err
	}
	err = e.Start(ctx)
	_, deleteErr := e.Delete(ctx, containerd.WithProcessKill)
	return errors.Join(err, deleteErr)
}

// The state is answered quickly throughout a checkpoint and a restore.
func TestGPUStateDuring(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2", "-b", "8388608")
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 2)
	dir := filepath.Join(t.TempDir(), "snapshot")
	done := make(chan error, 1)
	go func() { done <- c.checkpointTo(ctx, dir, false) }()
	slowest, asked := d.askUntil(ctx, t, c, done)
	t.Logf("checkpoint: %d answers, the slowest took %s", asked, slowest)
	if slowest > stateTime {
		t.Errorf("an answer took %s", slowest)
	}
	s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
	r := d.create(ctx, t, s)
	go func() { done <- r.task.Start(ctx) }()
	slowest, asked = d.askUntil(ctx, t, r, done)
	t.Logf("restore: %d answers, the slowest took %s", asked, slowest)
	if slowest > stateTime {
		t.Errorf("an answer took %s", slowest)
	}
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
	c.expectGoesOn(ctx, 2)
	c.stop(ctx)
}
