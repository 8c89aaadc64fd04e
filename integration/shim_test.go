// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/protobuf/proto"
)

// infoTime is what containerd may have to wait for before each container.
const infoTime = 200 * time.Millisecond

// runShim runs the shim's own program.
func (d *daemon) runShim(ctx context.Context, t *testing.T, args ...string) []byte {
	t.Helper()
	cmd, err := d.Command(ctx, shim.BinaryName(*runtimeName), args...)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	return out
}

func TestInfo(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		// The best of some, since other things run on this machine too.
		best := time.Hour
		for range 5 {
			start := time.Now()
			out := d.runShim(ctx, t, "-info")
			best = min(best, time.Since(start))
			var info apitypes.RuntimeInfo
			if err := proto.Unmarshal(out, &info); err != nil {
				t.Fatalf("-info wrote %q: %v", out, err)
			}
			if info.GetName() != *runtimeName || info.GetVersion().GetVersion() == "" {
				t.Errorf("-info says %v", &info)
			}
		}
		if best > infoTime {
			t.Errorf("-info takes %s, more than %s", best, infoTime)
		}
		t.Logf("-info takes %s", best)
	})
}

func TestVersion(t *testing.T) {
	d := daemons[0]
	out := d.runShim(d.testContext(t), t, "-v")
	if !bytes.Contains(out, []byte("Version:")) || !bytes.Contains(out, []byte("Go version:")) {
		t.Errorf("-v wrote %q", out)
	}
	// The version is containerd's.
	if !isStock() && !bytes.Contains(out, []byte("Revision: hetgpu-")) {
		t.Errorf("-v does not tell our version: %q", out)
	}
}

// Both labels put containers into one shim; Kubernetes uses the second.
func TestGroup(t *testing.T) {
	for _, label := range []string{"io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"} {
		t.Run(label, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				group := newID(t)
				together := oci.WithAnnotations(map[string]string{label: group})
				s := counting()
				s.id, s.opts = group, []oci.SpecOpts{together}
				first := d.run(ctx, t, s)
				pids := d.shims(t, group)
				if len(pids) != 1 {
					t.Fatalf("shims %v, not one", pids)
				}
				s.id = newID(t)
				second := d.run(ctx, t, s)
				s.id = newID(t)
				third := d.run(ctx, t, s)
				for _, c := range []*container{second, third} {
					if own := d.shims(t, c.id); len(own) != 0 {
						t.Errorf("%s has a shim of its own: %v", c.id, own)
					}
				}
				// The others outlive the one that the shim is named after.
				first.stop(ctx)
				second.stdout.waitMore(ctx, t, 2)
				if got := d.shims(t, group); !slices.Equal(got, pids) {
					t.Errorf("shims %v, not %v", got, pids)
				}
				second.stop(ctx)
				third.stdout.waitMore(ctx, t, 2)
				third.stop(ctx)
				d.expectNothingLeft(t)
			})
		})
	}
}

func TestShimKilled(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		w := d.watch(ctx, id)
		s := counting("-c", "2")
		s.id = id
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 2)
		for _, pid := range d.shims(t, id) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		exit := w.until(ctx, t, "exit").data.(*apievents.TaskExit)
		if exit.ExitStatus != 137 || exit.Pid != c.task.Pid() {
			t.Errorf("the exit event has status %d and pid %d", exit.ExitStatus, exit.Pid)
		}
		w.until(ctx, t, "delete")
		c.remove()
		d.expectNothingLeft(t)
	})
}

func TestShimOutlivesDaemon(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell("sleep 1000"))
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			if err := d.Restart(ctx, sig); err != nil {
				t.Fatal(err)
			}
			loaded, err := d.Client.LoadContainer(ctx, c.id)
			if err != nil {
				t.Fatal(err)
			}
			task, err := loaded.Task(ctx, nil)
			if err != nil {
				t.Fatalf("the task is lost after %v: %v", sig, err)
			}
			if task.Pid() != c.task.Pid() {
				t.Errorf("pid %d, was %d", task.Pid(), c.task.Pid())
			}
			c.c, c.task = loaded, task
		}
		exit, err := c.task.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c.exit = exit
		c.stop(ctx)
		d.expectNothingLeft(t)
		// Later tests use the new client's view of the image.
		if d.image, err = d.Client.GetImage(ctx, d.image.Name()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNoSuchTask(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		out, err := d.Ctr(d.testContext(t), "task", "kill", "no-such-container")
		if err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%q, %v", out, err)
		}
	})
}
