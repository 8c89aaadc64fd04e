// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// nerdctlRun runs a counter with nerdctl and waits for its first lines.
func (d *daemon) nerdctlRun(ctx context.Context, t *testing.T, counter []string, flags ...string) string {
	t.Helper()
	name := newID(t)
	args := append([]string{"run", "--detach", "--name", name, "--net", "none", "--pull", "never", "--runtime", *runtimeName}, flags...)
	args = append(args, d.image.Name(), "counter", "-m", "8", "-c", "2")
	id := strings.TrimSpace(d.nerdctl(ctx, t, append(args, counter...)...))
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if _, err := d.Nerdctl(ctx, "rm", "--force", id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	})
	d.waitLogged(ctx, t, id, 3)
	return id
}

// logged returns the numbers that nerdctl has in a container's log.
func (d *daemon) logged(ctx context.Context, t *testing.T, id string) []int {
	t.Helper()
	o := newOutput()
	_, _ = o.Write([]byte(d.nerdctl(ctx, t, "logs", id)))
	return o.numbers(t)
}

// waitLogged waits until the log ends with a number of at least least.
func (d *daemon) waitLogged(ctx context.Context, t *testing.T, id string, least int) {
	t.Helper()
	var numbers []int
	err := testbed.Eventually(ctx, "the log has more lines", func() error {
		if numbers = d.logged(ctx, t, id); len(numbers) > 0 && numbers[len(numbers)-1] >= least {
			return nil
		}
		return errNotYet
	})
	if err != nil {
		t.Fatalf("%v: %v", err, numbers)
	}
}

// wentBack waits until the log of a container, which went on after it was
// saved, has what it wrote since it was restored, and returns the first number
// of that.
func (d *daemon) wentBack(ctx context.Context, t *testing.T, id string) int {
	t.Helper()
	since := newOutput()
	err := testbed.Eventually(ctx, "the log goes on from the snapshot", func() error {
		lines := strings.SplitAfter(d.nerdctl(ctx, t, "logs", id), "\n")
		last := 0
		back := slices.IndexFunc(lines, func(line string) bool {
			before := last
			last, _ = strconv.Atoi(strings.TrimSpace(line))
			return last <= before && last > 0
		})
		if back < 0 || len(lines) < back+4 {
			return errNotYet
		}
		_, err := since.Write([]byte(strings.Join(lines[back:], "")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return since.numbers(t)[0]
}

// nerdctlStatus returns what containerd says of a container's task.
func (d *daemon) nerdctlStatus(ctx context.Context, t *testing.T, id string) containerd.ProcessStatus {
	t.Helper()
	status, err := d.task(ctx, t, id).Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return status.Status
}

func (d *daemon) waitNerdctlStopped(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	err := testbed.Eventually(ctx, "the container has stopped", func() error {
		if d.nerdctlStatus(ctx, t, id) != containerd.Stopped {
			return errNotYet
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// collectGarbage returns when containerd has removed what nobody needs.
//
// "nerdctl checkpoint create" writes an archive into the content store, unpacks
// it and lets containerd remove it a moment later; "nerdctl start --checkpoint"
// packs the same bytes again. What it finds in the store it does not write and
// does not hold on to (taskutil.NewTask of nerdctl 2.2.2 passes over the label
// of a blob that exists), so that a collection in between takes it away.
func (d *daemon) collectGarbage(ctx context.Context, t *testing.T) {
	t.Helper()
	held := d.Client.LeasesService()
	lease, err := held.Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
}

// nerdctl sends no options to a runtime that is not named as the stock one, so
// that --leave-running and its absence look the same; the annotation says it.
func exitFlags(exit bool) []string {
	if exit && !isStock() {
		return []string{"--annotation", "io.hetgpu.checkpoint.exit=true"}
	}
	return nil
}

func TestNerdctlCheckpoint(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := d.nerdctlRun(ctx, t, []string{"-f", "/data"}, exitFlags(true)...)
		d.nerdctl(ctx, t, "checkpoint", "create", id, "one")
		d.waitNerdctlStopped(ctx, t, id)
		before := d.logged(ctx, t, id)
		last := before[len(before)-1]
		if out := d.nerdctl(ctx, t, "checkpoint", "ls", id); !strings.Contains(out, "one") {
			t.Errorf("ls does not list it: %q", out)
		}
		expectSnapshotDir(t, filepath.Join(d.Dir, "nerdctl", "checkpoints", "one"))

		d.collectGarbage(ctx, t)
		d.nerdctl(ctx, t, "start", "--checkpoint", "one", id)
		// numbers also proves that not one is missing or twice in the log.
		d.waitLogged(ctx, t, id, last+3)
		if status := d.nerdctlStatus(ctx, t, id); status != containerd.Running {
			t.Errorf("the container is %s", status)
		}
		d.nerdctl(ctx, t, "exec", id, "true")

		d.nerdctl(ctx, t, "checkpoint", "rm", id, "one")
		if out := d.nerdctl(ctx, t, "checkpoint", "ls", id); strings.Contains(out, "one") {
			t.Errorf("ls still lists it: %q", out)
		}
		d.nerdctl(ctx, t, "rm", "--force", id)
		d.expectNothingLeftOfRestore(t)
	})
}

func TestNerdctlCheckpointLeaveRunning(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := d.nerdctlRun(ctx, t, nil)
		d.nerdctl(ctx, t, "checkpoint", "create", "--leave-running", id, "two")
		if status := d.nerdctlStatus(ctx, t, id); status != containerd.Running {
			t.Errorf("the container is %s", status)
		}
		saved := d.logged(ctx, t, id)
		d.waitLogged(ctx, t, id, saved[len(saved)-1]+5)

		// And back to that moment. nerdctl saves no files, so the program has none
		// open that has changed since.
		d.nerdctl(ctx, t, "kill", id)
		d.waitNerdctlStopped(ctx, t, id)
		d.collectGarbage(ctx, t)
		d.nerdctl(ctx, t, "start", "--checkpoint", "two", id)
		if first, latest := d.wentBack(ctx, t, id), saved[len(saved)-1]+2; first <= 3 || first > latest {
			t.Errorf("it went on with %d, and was saved after 3, at %d at the latest", first, latest)
		}
		if status := d.nerdctlStatus(ctx, t, id); status != containerd.Running {
			t.Errorf("the container is %s", status)
		}
		d.nerdctl(ctx, t, "checkpoint", "rm", id, "two")
		d.nerdctl(ctx, t, "rm", "--force", id)
		d.expectNothingLeftOfRestore(t)
	})
}

// errNotYet is for conditions that say all there is to say.
var errNotYet = errors.New("not yet")
