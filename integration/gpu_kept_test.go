// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/inspect"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/kept"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// keepers lists the processes that keep device memory.
func (d *daemon) keepers(ctx context.Context, t *testing.T) []keeper.Status {
	t.Helper()
	all, err := keeper.Home(filepath.Join(d.hetgpu, "state", "kept")).List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// used is how much of the first GPU is in use.
func (d *daemon) used(t *testing.T) uint64 {
	t.Helper()
	used, err := d.gpu.UsedBytes(usual.GPUs[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// keepIt saves a container by our command and ends it, with its device memory
// left on the GPU; what keeps it ends with the test.
func (c *container) keepIt(ctx context.Context, t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "snapshot")
	c.d.endKeepers(t)
	r := hetgpu[checkpoint.Report](ctx, t, c.d, "checkpoint", c.id, "--dir", dir, "--exit", "--keep-on-gpu")
	c.waitExit(ctx)
	c.delete(ctx)
	c.remove()
	if m := expectKept(t, dir); r.KeptBytes == 0 || r.KeptBytes != m.Memory.KeptBytes || r.Engine != snapshot.EngineSplit {
		t.Errorf("%+v, memory %+v", r, m.Memory)
	}
	return dir
}

// endKeepers ends at the end of the test what keeps anything then.
func (d *daemon) endKeepers(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, pid := range d.keepersIn(t) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	})
}

// expectKept checks a snapshot whose device memory is in no file.
func expectKept(t *testing.T, dir string) *snapshot.Manifest {
	t.Helper()
	s, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if s.Manifest.Version != 4 || s.Manifest.Kept() == nil {
		t.Errorf("version %d, memory %+v", s.Manifest.Version, s.Manifest.Memory)
	}
	for _, name := range list(dir) {
		if memfile.IsName(name) {
			t.Errorf("there is %s", name)
		}
	}
	return s.Manifest
}

// expectOnlyKeepers waits until nothing of the daemon's is left but so many
// keepers.
func (d *daemon) expectOnlyKeepers(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	err := testbed.Eventually(ctx, fmt.Sprintf("only %d keepers are left", want), func() error {
		procs, err := d.Processes()
		errs := []error{err}
		n := 0
		for _, p := range procs {
			if strings.Contains(p.Command, "hetgpu-gpu keep ") {
				n++
				continue
			}
			errs = append(errs, fmt.Errorf("process %d: %s", p.PID, p.Command))
		}
		if n != want {
			errs = append(errs, fmt.Errorf("%d keepers", n))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// The container has ended, its shim too, and containerd was started anew; its
// device memory is where it was. A restore takes it, and uses it up.
func TestGPUKept(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		// Memory that processes share is among it.
		s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "3000000", "-p", "keep"}})
		c := d.run(ctx, t, s)
		before := c.ticksOn(ctx, 2)
		dir := c.keepIt(ctx, t)
		d.expectOnlyKeepers(ctx, t, 1)
		expectNoControlDir(t)
		err := d.Restart(ctx, syscall.SIGKILL)
		if err == nil {
			d.image, err = d.Client.GetImage(ctx, d.image.Name())
		}
		if err != nil {
			t.Fatal(err)
		}
		all := d.keepers(ctx, t)
		if len(all) != 1 {
			t.Fatalf("keepers are %+v", all)
		}
		const once = 4 << 20 // of each rank, in chunks of 2 MiB
		if k := all[0]; !k.Confirmed || k.Dir != dir || k.Container != c.id || k.Bytes() != 2*once || k.Bytes() != d.used(t) {
			t.Errorf("%+v, %d bytes are in use", k, d.used(t))
		}
		expectText(t, d.cli(ctx, t, 0, "inspect", dir), "not in files: kept on the GPU by process ", "memory on the GPU")
		if r := cliJSON[inspect.Report](ctx, t, d, 0, "inspect", dir); r.Keeper == nil || r.Keeper.PID != all[0].PID || len(r.Problems) > 0 {
			t.Errorf("%+v", r)
		}
		report := d.doctor(ctx, t)
		if r := results(t, report, "kept memory"); len(r) != 1 || r[0].Status != doctor.OK || !strings.Contains(r[0].Advice, "hetgpu drain "+dir) {
			t.Errorf("%+v", r)
		}

		r := d.restoreByCommand(ctx, t, dir, newID(t))
		d.expectOnlyTaken(ctx, t)
		after := r.ticksOn(ctx, 2)
		if first := r.firstTick(); first > min(before[0], before[1])+500 || after[0] <= before[0] {
			t.Errorf("it went on at tick %d, and was saved after %v", first, before)
		}
		again := []string{r.id + " was restored with it", "not kept on this host"}
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", "--id", newID(t), dir)...), again...)
		_, err = d.tryRestore(ctx, t, s, dir)
		expectError(t, err, again...)
		expectText(t, d.cli(ctx, t, 1, "inspect", dir), again...)
		expectText(t, d.cli(ctx, t, 1, "drain", dir), again...)
		expectText(t, d.cli(ctx, t, 1, "drop", dir), again...)
		r.expectGoesOn(ctx, 2)
		// What was restored is saved as any other, and this way again.
		expectSplit(t, r.mustCheckpoint(ctx, false))
		r.expectGoesOn(ctx, 2)
		r2 := d.restore(ctx, t, s, r.keepIt(ctx, t))
		r2.expectGoesOn(ctx, 2)
		r2.stop(ctx)
		r2.remove()
		d.expectNothingLeft(t)
		d.expectUsed(t, usual.GPUs[0], 0)
	})
}

// doctor runs hetgpu doctor, whatever it finds beside.
func (d *daemon) doctor(ctx context.Context, t *testing.T) doctor.Report {
	t.Helper()
	return cliJSON[doctor.Report](ctx, t, d, 0, "doctor", "--address", d.Address())
}

// expectOnlyTaken fails if anybody still keeps memory.
func (d *daemon) expectOnlyTaken(ctx context.Context, t *testing.T) {
	t.Helper()
	err := testbed.Eventually(ctx, "nothing is kept", func() error {
		if all := d.keepers(ctx, t); len(all) > 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Kept memory is written to files, and the snapshot is one as any other.
func TestGPUKeptDrain(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy("-v")
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 1)
	dir := c.keepIt(ctx, t)
	// A drain that was cut short leaves files.
	if err := os.WriteFile(filepath.Join(dir, memfile.DataName(7)), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"copy comm=hetgpu-gpu error=999", "copy comm=hetgpu-gpu crash times=1"} {
		d.faults(t, rule)
		expectText(t, d.cli(ctx, t, 1, "drain", dir), "drain ")
		d.faults(t)
		expectKept(t, dir)
		if n := len(d.keepers(ctx, t)); n != 1 {
			t.Fatalf("%d keepers after %s", n, rule)
		}
	}
	r := cliJSON[kept.Drained](ctx, t, d, 0, "drain", dir)
	d.expectNothingLeft(t)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
	if m := expectSplit(t, dir); m.Version != 2 || m.Memory.Bytes != r.Bytes || m.Memory.StoredBytes != r.Stored || r.Container != c.id {
		t.Errorf("%+v, memory %+v", r, m.Memory)
	}
	expectText(t, d.cli(ctx, t, 1, "drain", dir), "in its files")
	for range 2 {
		r := d.restore(ctx, t, s, dir)
		r.expectGoesOn(ctx, 1)
		if first := r.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d, and was saved after %v", first, before)
		}
		r.stop(ctx)
		r.remove()
	}
}

// Memory of a snapshot that nobody wants any more is freed, whether its directory
// is there or not.
func TestGPUKeptDrop(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	for _, there := range []bool{true, false} {
		s := d.splitToy()
		c := d.run(ctx, t, s)
		c.ticksOn(ctx, 1)
		dir := c.keepIt(ctx, t)
		id := expectKept(t, dir).Kept().ID
		if there {
			expectText(t, d.cli(ctx, t, 0, "drop", dir), " are free", dir)
			d.expectRestoreFails(ctx, t, s, dir, "freed by hetgpu drop", "not kept on this host")
		} else {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if r := cliJSON[kept.Dropped](ctx, t, d, 0, "drop", "--keeper", id); r.Bytes == 0 || r.Directory != dir {
				t.Errorf("%+v", r)
			}
		}
		d.expectNothingLeft(t)
		d.expectUsed(t, usual.GPUs[0], 0)
	}
}

// What can't be done is said before anything is changed.
func TestGPUKeptRefused(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	dir := filepath.Join(t.TempDir(), "snapshot")
	refused := func(c *container, args []string, says ...string) {
		t.Helper()
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs(append([]string{"checkpoint", c.id, "--keep-on-gpu"}, args...)...)...), says...)
		c.expectGoesOn(ctx, 1)
		if left := list(dir); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	}
	c := d.run(ctx, t, d.splitToy())
	c.ticksOn(ctx, 1)
	refused(c, []string{"--dir", dir}, "--exit")
	refused(c, []string{"--exit", "--oci", dir}, "--dir")
	c.stop(ctx)
	plain := d.run(ctx, t, d.toy("-n", "1"))
	plain.ticksOn(ctx, 1)
	refused(plain, []string{"--exit", "--dir", dir}, "preflight", `engine "driver"`)
	plain.stop(ctx)
	// Nobody who could be split.
	past := d.run(ctx, t, d.split(spec{args: []string{"/bin/sh", "-c", "LD_LIBRARY_PATH= exec " + inContainer + "/toy -i 10"}}))
	past.ticksOn(ctx, 1)
	refused(past, []string{"--exit", "--dir", dir}, "preflight", "it does not run libhetcuda")
	past.stop(ctx)
	d.expectNothingLeft(t)
}

// A restore that fails leaves the memory where it is, and the next one takes it.
func TestFaultsKeptRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "3000000"}})
	c := d.run(ctx, t, s)
	before := c.ticksOn(ctx, 2)
	dir := c.keepIt(ctx, t)
	used := d.used(t)
	otherGPU := s
	otherGPU.opts = []oci.SpecOpts{d.withProgram, d.withRealLibrary, d.withGPUs(1), annotated("io.hetgpu.engine", "split")}
	h, withHook := newHook(t)
	hooked := s
	hooked.opts = append(slices.Clip(hooked.opts), withHook)
	for name, tc := range map[string]struct {
		spec   spec
		change func(t *testing.T, dir string)
		rule   string
		hook   string
		says   []string
	}{
		"another GPU":                   {spec: otherGPU, says: []string{"left on " + usual.GPUs[0].UUID, "hetgpu drain"}},
		"another boot":                  {change: otherBoot, says: []string{"another host, or of this one before it was booted"}},
		"other memory":                  {change: otherMemory, says: []string{"has other memory than the snapshot says"}},
		"a damaged image":               {change: func(t *testing.T, dir string) { t.Helper(); damage(t, pagesOf(t, dir)) }, says: []string{"snapshot is damaged"}},
		"CRIU fails":                    {spec: hooked, hook: hookFails, says: []string{"CRIU says"}},
		"the driver does not restore":   {rule: "restore comm=toy1 error=999", says: []string{"gpu-resume", "CUDA_ERROR_UNKNOWN"}},
		"a process can't have it":       {rule: "import comm=toy1 error=999", says: []string{"gpu-resume"}},
		"a process dies as it takes it": {rule: "import comm=toy1 crash times=1", says: nil},
	} {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			from, with := dir, s
			if tc.spec.args != nil {
				with = tc.spec
			}
			if tc.change != nil {
				from = copySnapshot(t, dir)
				tc.change(t, from)
			}
			if tc.hook != "" {
				h.at(t, "post-restore", tc.hook)
				t.Cleanup(func() { h.at(t, "", "") })
			}
			if tc.rule != "" {
				d.faults(t, tc.rule)
			}
			r, err := d.tryRestore(ctx, t, with, from)
			d.faults(t)
			if tc.says == nil && err == nil {
				t.Error("it was restored")
			}
			expectError(t, err, tc.says...)
			expectNoProcess(ctx, t, r)
			r.remove()
			d.expectOnlyKeepers(ctx, t, 1)
			if all := d.keepers(ctx, t); len(all) != 1 || all[0].By != "" || d.used(t) != used {
				t.Errorf("%+v, %d bytes are in use", all, d.used(t))
			}
		})
	}
	if t.Failed() {
		return
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 2)
	if first := r.firstTick(); first <= min(before[0], before[1]) {
		t.Errorf("it went on at tick %d, and was saved after %v", first, before)
	}
	r.stop(ctx)
	r.remove()
	d.expectNothingLeft(t)
	d.expectUsed(t, usual.GPUs[0], 0)
}

// rewrite changes a manifest, as one who can write it.
func rewrite(t *testing.T, dir string, change func(k *snapshot.Keeper)) {
	t.Helper()
	m := readManifest(t, dir)
	change(m.Memory.Keeper)
	if err := snapshot.Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
}

func otherBoot(t *testing.T, dir string) {
	t.Helper()
	rewrite(t, dir, func(k *snapshot.Keeper) { k.BootID = "00000000" + k.BootID[8:] })
}

func otherMemory(t *testing.T, dir string) {
	t.Helper()
	rewrite(t, dir, func(k *snapshot.Keeper) { k.Digest = "sha256:" + strings.Repeat("0", 64) })
}

// The keeper that a container's memory was left to is killed: the memory is lost,
// and that is said before anything starts.
func TestFaultsKeeperKilled(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy()
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.keepIt(ctx, t)
	k := d.keepers(ctx, t)[0]
	// One that does not answer is no reason to wait for ever, or to take it for gone.
	if err := syscall.Kill(k.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := d.tryRestore(ctx, t, s, dir)
	expectError(t, err, "no answer within")
	if err := syscall.Kill(k.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.expectOnlyKeepers(ctx, t, 0)
	// A killed process has no command any more before its memory is free.
	err = testbed.Eventually(ctx, "the keeper's memory is free", func() error {
		used, err := d.gpu.UsedBytes(usual.GPUs[0].UUID)
		if err == nil && used != 0 {
			err = fmt.Errorf("%d bytes are in use", used)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	d.expectRestoreFails(ctx, t, s, dir, k.ID, "was killed", "not kept on this host")
	expectText(t, d.cli(ctx, t, 1, "inspect", dir), "PROBLEM", "was killed")
	d.expectNothingLeft(t)
}

// What goes wrong before the container has ended is undone, and nobody keeps
// anything.
func TestFaultsKept(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	h, withHook := newHook(t)
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "2"}})
	s.opts = append(s.opts, withHook)
	for name, tc := range map[string]struct {
		before func(t *testing.T) (undo func())
		// during is what happens while CRIU works.
		during func(t *testing.T, p *patient)
		says   []string
	}{
		"no place for a keeper": {before: func(t *testing.T) func() {
			t.Helper()
			state := filepath.Join(d.hetgpu, "state", "kept")
			if err := errors.Join(os.Rename(state, state+".away"), os.WriteFile(state, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := errors.Join(os.Remove(state), os.Rename(state+".away", state)); err != nil {
					t.Error(err)
				}
			}
		}, says: []string{"gpu-keep", "start a keeper"}},
		"the keeper is killed": {during: func(t *testing.T, _ *patient) {
			t.Helper()
			for _, k := range d.waitKeeper(ctx, t) {
				if err := syscall.Kill(k.PID, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		}, says: []string{"gpu-keep", "has ended"}},
		"the keeper hangs": {during: func(t *testing.T, _ *patient) {
			t.Helper()
			for _, k := range d.waitKeeper(ctx, t) {
				if err := syscall.Kill(k.PID, syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
				t.Cleanup(func() { _ = syscall.Kill(k.PID, syscall.SIGCONT) })
			}
		}, says: []string{"gpu-keep", "no answer within"}},
		"CRIU is killed": {during: func(t *testing.T, _ *patient) {
			t.Helper()
			d.waitKeeper(ctx, t)
			h.at(t, "post-dump", hookKillsCRIU)
		}, says: []string{"dump"}},
		"a process can't let go": {before: func(t *testing.T) func() {
			t.Helper()
			d.faults(t, "export comm=toy1 error=999")
			return func() { d.faults(t) }
		}, says: []string{"gpu-park"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			d.endKeepers(t)
			p := d.patient(ctx, t, s, 2)
			undo := func() {}
			if tc.before != nil {
				undo = tc.before(t)
			}
			cmd, err := d.Command(ctx, "hetgpu", d.daemonArgs("checkpoint", p.id, "--dir", p.dir, "--exit", "--keep-on-gpu")...)
			if err != nil {
				t.Fatal(err)
			}
			out := make(chan string, 1)
			ask := func() {
				text, err := cmd.CombinedOutput()
				if err == nil {
					text = append(text, "it succeeded"...)
				}
				out <- string(text)
			}
			if tc.during == nil {
				ask()
			} else {
				o := h.holdAt(t, "network-lock")
				t.Cleanup(o.release)
				go ask()
				o.wait(ctx)
				h.at(t, "", "")
				tc.during(t, p)
				o.release()
			}
			expectText(t, <-out, tc.says...)
			h.at(t, "", "")
			undo()
			for _, k := range d.keepersIn(t) {
				_ = syscall.Kill(k, syscall.SIGCONT)
			}
			d.expectOnlyTaken(ctx, t)
			p.expectRecovered(ctx)
			for _, gpu := range usual.GPUs {
				d.expectUsed(t, gpu, 0)
			}
		})
	}
}

// keepersIn are the PIDs of keepers, that answer or not.
func (d *daemon) keepersIn(t *testing.T) (pids []int) {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if strings.Contains(p.Command, "hetgpu-gpu keep ") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// waitKeeper waits for one that has got its memory.
func (d *daemon) waitKeeper(ctx context.Context, t *testing.T) (all []keeper.Status) {
	t.Helper()
	err := testbed.Eventually(ctx, "a keeper has memory", func() error {
		if all = d.keepers(ctx, t); len(all) != 1 || all[0].Chunks == 0 || all[0].Confirmed {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The container, its shim or the command is killed while CRIU works: nobody
// keeps anything then.
func TestFaultsKeptKilled(t *testing.T) {
	for _, what := range []string{"container", "shim", "command"} {
		t.Run(what, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			h, withHook := newHook(t)
			s := d.splitToy()
			s.opts = append(s.opts, withHook)
			d.endKeepers(t)
			p := d.patient(ctx, t, s, 1)
			o := h.holdAt(t, "network-lock")
			t.Cleanup(o.release)
			cmd, err := d.Command(ctx, "hetgpu", d.daemonArgs("checkpoint", p.id, "--dir", p.dir, "--exit", "--keep-on-gpu")...)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Run() }()
			o.wait(ctx)
			h.at(t, "", "")
			d.waitKeeper(ctx, t)
			switch what {
			case "container":
				if err := p.task.Kill(ctx, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				o.release()
			case "shim":
				for _, pid := range d.shims(t, p.id) {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Error(err)
					}
				}
			case "command":
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			var exit *exec.ExitError
			if err := <-done; !errors.As(err, &exit) {
				t.Errorf("the command: %v", err)
			}
			o.release()
			d.expectOnlyTaken(ctx, t)
			switch what {
			case "container":
				p.expectEnded(t)
			case "shim":
				expectNothingRuns(ctx, t, d)
				p.remove()
				d.expectNothingLeft(t)
				d.expectUsed(t, usual.GPUs[0], 0)
			case "command":
				err := testbed.Eventually(ctx, "the directory is empty", func() error { return os.Remove(p.dir) })
				if err != nil {
					t.Error(err)
				}
				p.expectRecovered(ctx)
			}
		})
	}
}

// The disk becomes full: the container goes on, and nobody keeps anything.
func TestFaultsKeptDiskFull(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	p := d.patient(ctx, t, d.splitToy(), 1)
	dir := filepath.Join(smallDisk(t, 1), "snapshot")
	expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", p.id, "--dir", dir, "--exit", "--keep-on-gpu")...), "no space")
	d.expectOnlyTaken(ctx, t)
	p.expectRecovered(ctx)
}
