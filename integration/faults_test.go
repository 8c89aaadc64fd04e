// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// patient is a container to which something goes wrong, and that has to be as
// it was afterwards.
type patient struct {
	*container
	// ranks are its processes that use a GPU.
	ranks int
	// dir is where its snapshots go, and files are what else there was.
	dir   string
	files []string
}

// patient runs a container until each of its ranks works.
func (d *daemon) patient(ctx context.Context, t *testing.T, s spec, ranks int) *patient {
	t.Helper()
	p := &patient{container: d.run(ctx, t, s), ranks: ranks, dir: filepath.Join(t.TempDir(), "snapshot")}
	p.ticksOn(ctx, ranks)
	p.files = p.allFiles()
	return p
}

// checkpoint saves the patient through containerd's client, which pauses and
// resumes it.
func (p *patient) checkpoint(ctx context.Context) error { return p.checkpointTo(ctx, p.dir, false) }

// checkpointDirectly asks containerd for the checkpoint alone, as the CRI does:
// nobody has paused the patient.
func (p *patient) checkpointDirectly(ctx context.Context, exit bool) error {
	opts, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{ImagePath: p.dir, Exit: exit})
	if err != nil {
		return err
	}
	_, err = p.d.Client.TaskService().Checkpoint(ctx, &tasks.CheckpointTaskRequest{
		ContainerID: p.id, Options: opts,
	})
	if err != nil {
		return errgrpc.ToNative(err)
	}
	return nil
}

// expectRecovered fails unless the patient is unharmed, and can be saved now.
// The patient ends.
func (p *patient) expectRecovered(ctx context.Context) {
	p.t.Helper()
	p.expectUnharmed(ctx)
	p.checkpoints(ctx)
	p.d.expectNothingLeft(p.t)
}

// checkpoints fails unless the patient can be saved. It ends.
func (p *patient) checkpoints(ctx context.Context) {
	p.t.Helper()
	if err := p.checkpoint(ctx); err != nil {
		p.t.Fatalf("the next checkpoint: %v", err)
	}
	p.expectCleanedUp(ctx)
	p.expectRunsOn(ctx)
	p.stop(ctx)
	p.remove()
}

// expectUnharmed fails unless the patient, its GPU and everything around them
// are as if nobody had tried to save it.
func (p *patient) expectUnharmed(ctx context.Context) {
	p.t.Helper()
	p.expectCleanedUp(ctx)
	if _, err := os.Lstat(p.dir); err == nil {
		p.t.Errorf("%s is left: %v", p.dir, list(p.dir))
	}
	p.expectRunsOn(ctx)
}

// expectOutcome fails unless a checkpoint failed with an error that has all of the
// words, or succeeded where there are none to say; then it is true.
func (p *patient) expectOutcome(err error, says []string) (saved bool) {
	p.t.Helper()
	switch {
	case says != nil:
		expectError(p.t, err, says...)
	case err != nil:
		p.t.Errorf("the checkpoint failed: %v", err)
	default:
		return true
	}
	return false
}

// startOver forgets a checkpoint that succeeded.
func (p *patient) startOver() { p.dir = filepath.Join(p.t.TempDir(), "snapshot") }

// expectRestoreFails fails unless a restore does, with an error that has all of
// the words, and unless nothing is left of it, not on the GPUs either. No other
// container may run.
func (d *daemon) expectRestoreFails(ctx context.Context, t *testing.T, s spec, dir string, says ...string) *container {
	t.Helper()
	c, err := d.tryRestore(ctx, t, s, dir)
	expectError(t, err, says...)
	d.expectNotRestored(ctx, t, c)
	return c
}

// expectNotRestored fails if anything is left of a restore that failed, on the
// GPUs too. No other container may run.
func (d *daemon) expectNotRestored(ctx context.Context, t *testing.T, c *container) {
	t.Helper()
	expectNoProcess(ctx, t, c)
	c.remove()
	d.expectNothingLeft(t)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
}

// expectNoProcess fails if anything is left running, or has run, in a container
// whose restore failed.
func expectNoProcess(ctx context.Context, t *testing.T, c *container) {
	t.Helper()
	expectNothingRuns(ctx, t, c.d)
	if out := c.stdout.String(); out != "" {
		t.Errorf("it ran and wrote %q", out)
	}
}

// expectNothingRuns fails if processes are left in a container, or CRIU is.
func expectNothingRuns(ctx context.Context, t *testing.T, d *daemon) {
	t.Helper()
	err := testbed.Eventually(ctx, "no process is left", func() error {
		procs, err := d.Processes()
		errs := []error{err, d.strayCRIU()}
		for _, p := range procs {
			if p.Container {
				errs = append(errs, fmt.Errorf("process %d is left: %s", p.PID, p.Command))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// expectRunsOn fails unless the patient runs, with each of its GPU processes.
func (p *patient) expectRunsOn(ctx context.Context) {
	p.t.Helper()
	if state := p.freezerState(); state != "thawed" {
		p.t.Errorf("the freezer is %s", state)
	}
	p.expectGoesOn(ctx, p.ranks)
}

// expectCleanedUp fails if an operation has left processes or files.
func (p *patient) expectCleanedUp(ctx context.Context) {
	p.t.Helper()
	err := testbed.Eventually(ctx, "the operation has left nothing", func() error {
		return errors.Join(p.strays(), p.newFiles())
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// strays tells of processes beside the shims, their helpers and containers.
func (p *patient) strays() error {
	procs, err := p.d.Processes()
	if err != nil {
		return testbed.Permanent(err)
	}
	var errs []error
	for _, proc := range procs {
		program, _, _ := strings.Cut(proc.Command, " ")
		switch name := filepath.Base(program); {
		case proc.Container, name == "containerd-shim-hetgpu-v2", name == "hetgpu-gpu":
		default:
			errs = append(errs, fmt.Errorf("process %d is left: %s", proc.PID, proc.Command))
		}
	}
	return errors.Join(append(errs, p.d.strayCRIU())...)
}

// strayCRIU tells of CRIU processes that work for the daemon. They overwrite
// their environment; what they have open tells whose they are.
func (d *daemon) strayCRIU() error {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	errs := []error{err}
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || string(comm) != "criu\n" {
			continue // or gone meanwhile
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(name), "fd/*"))
		errs = append(errs, err)
		ours := slices.ContainsFunc(files, func(file string) bool {
			to, err := os.Readlink(file)
			return err == nil && strings.HasPrefix(to, d.Dir+"/")
		})
		if ours {
			errs = append(errs, fmt.Errorf("CRIU is left: %s", filepath.Dir(name)))
		}
	}
	return errors.Join(errs...)
}

func (p *patient) newFiles() error {
	var errs []error
	for _, file := range p.allFiles() {
		if !slices.Contains(p.files, file) {
			errs = append(errs, fmt.Errorf("%s is left", file))
		}
	}
	return errors.Join(errs...)
}

// allFiles lists what the shim, runc and CRIU have on the disk for the patient,
// and everything temporary.
func (p *patient) allFiles() []string {
	p.t.Helper()
	var files []string
	runcState := filepath.Join("/run/containerd/runc", p.d.Namespace, p.id)
	for _, dir := range []string{
		filepath.Join(p.d.Dir, "state/io.containerd.runtime.v2.task", p.d.Namespace, p.id),
		filepath.Join(p.d.Dir, "root/io.containerd.runtime.v2.task", p.d.Namespace, p.id),
		runcState, p.d.TempDir(),
	} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Name() == "rootfs" {
				return fs.SkipDir
			}
			// runc makes the directory for what nobody asks it for.
			if err != nil || path != filepath.Join(runcState, "checkpoint") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return files
}

func list(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
