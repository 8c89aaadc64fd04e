// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// everything is a counter with children, memory and a file: what a plain
// checkpoint has to bring back.
func everything() spec { return counting("-m", "8", "-c", "3", "-f", "/data") }

// expectSnapshotDir fails unless the directory is a snapshot: flat, regular
// files, with CRIU's inventory.
func expectSnapshotDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
		if !e.Type().IsRegular() {
			t.Errorf("%s is no regular file", filepath.Join(dir, e.Name()))
		}
		// It has the memory of programs.
		if info, err := e.Info(); err != nil || !isStock() && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v, %v", filepath.Join(dir, e.Name()), info.Mode(), err)
		}
	}
	if !names["inventory.img"] || !names["pages-1.img"] {
		t.Errorf("%s has no images of CRIU: %v", dir, entries)
	}
	if !isStock() && !names["hetgpu.json"] {
		t.Errorf("%s has no manifest", dir)
	}
}

// checkpointImages lists the images that checkpoints made.
func (d *daemon) checkpointImages(ctx context.Context, t *testing.T, id string) []containerd.Image {
	t.Helper()
	list, err := d.Client.ListImages(ctx, fmt.Sprintf("name~=%q", "^containerd.io/checkpoint/"+id+":"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hasCheckpoint tells whether an image has the memory of a task.
func (d *daemon) hasCheckpoint(ctx context.Context, t *testing.T, image containerd.Image) bool {
	t.Helper()
	data, err := content.ReadBlob(ctx, d.Client.ContentStore(), image.Target())
	if err != nil {
		t.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	for _, m := range index.Manifests {
		if m.MediaType == images.MediaTypeContainerd1Checkpoint {
			return true
		}
	}
	return false
}

func TestCtrTaskCheckpoint(t *testing.T) {
	for _, exit := range []bool{false, true} {
		for _, path := range []bool{false, true} {
			t.Run(fmt.Sprintf("exit=%v,image-path=%v", exit, path), func(t *testing.T) {
				eachDaemon(t, func(t *testing.T, d *daemon) { testCtrTaskCheckpoint(t, d, exit, path) })
			})
		}
	}
}

func testCtrTaskCheckpoint(t *testing.T, d *daemon, exit, path bool) {
	t.Helper()
	ctx := d.testContext(t)
	c := d.run(ctx, t, everything())
	c.stdout.waitMore(ctx, t, 3)
	args := []string{"task", "checkpoint"}
	if exit {
		args = append(args, "--exit")
	}
	dir := filepath.Join(t.TempDir(), "snapshot")
	if path {
		args = append(args, "--image-path", dir)
	}
	d.ctr(ctx, t, append(args, c.id)...)
	if path {
		expectSnapshotDir(t, dir)
	} else if list := d.checkpointImages(ctx, t, c.id); len(list) != 1 || !d.hasCheckpoint(ctx, t, list[0]) {
		t.Errorf("images %v have no checkpoint", list)
	}
	if exit {
		if status := c.waitExit(ctx); status != 137 {
			t.Errorf("exit status %d, not 137", status)
		}
		c.delete(ctx)
	} else {
		c.expectStatus(ctx, containerd.Running)
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
	}
	c.remove()
	d.expectNothingLeft(t)
}

// The directory of --image-path restores too, as often as one likes.
func TestRestoreFromImagePath(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := filepath.Join(t.TempDir(), "snapshot")
		c := d.run(ctx, t, counting("-m", "8"))
		last := c.stdout.waitMore(ctx, t, 3)
		d.ctr(ctx, t, "task", "checkpoint", "--exit", "--image-path", dir, c.id)
		c.waitExit(ctx)
		c.delete(ctx)
		stopped := c.stdout.last(t)
		c.remove()
		for range 2 {
			s := counting("-m", "8")
			s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
			s.id = c.id
			r := d.run(ctx, t, s)
			numbers := r.stdout.waitMore(ctx, t, 3)
			expectWentOn(t, numbers, last[len(last)-1])
			// Here nobody else has read: not one number is missing.
			if numbers[0] != stopped+1 {
				t.Errorf("it went on with %d after %d", numbers[0], stopped)
			}
			r.stop(ctx)
			r.remove()
		}
		// It is the user's directory.
		expectSnapshotDir(t, dir)
		d.expectNothingLeft(t)
	})
}

// expectWentOn fails unless the numbers go on after a number that a container
// had printed before its checkpoint. The counter itself checks that all that it
// holds fits its number.
func expectWentOn(t *testing.T, numbers []int, after int) {
	t.Helper()
	if numbers[0] <= after {
		t.Errorf("it went on with %d, but it was at %d before the checkpoint", numbers[0], after)
	}
}

// checkpointed runs a container, checkpoints it with ctr as an image, and
// returns the last number before. The container is still running.
func (d *daemon) checkpointed(ctx context.Context, t *testing.T, s spec) (c *container, ref string, after int) {
	t.Helper()
	c = d.run(ctx, t, s)
	c.stdout.waitMore(ctx, t, 3)
	after = c.stdout.last(t)
	ref = "test.hetgpu.local/checkpoint/" + c.id
	d.ctr(ctx, t, "container", "checkpoint", "--task", "--image", "--rw", c.id, ref)
	c.expectStatus(ctx, containerd.Running)
	c.stdout.waitMore(ctx, t, 3)
	return c, ref, after
}

// ctrRestore restores a checkpoint image with ctr, and attaches to what was
// restored.
func (d *daemon) ctrRestore(ctx context.Context, t *testing.T, id, ref string) *container {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if err := d.removeContainer(ctx, id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	})
	d.ctr(ctx, t, "container", "restore", "--live", "--rw", id, ref)
	return d.attach(ctx, t, id)
}

// attach returns a running container that another program started.
func (d *daemon) attach(ctx context.Context, t *testing.T, id string) *container {
	t.Helper()
	c := &container{t: t, d: d, id: id, stdout: newOutput(), stderr: newOutput()}
	var err error
	if c.c, err = d.Client.LoadContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if c.task, err = c.c.Task(ctx, cio.NewAttach(cio.WithStreams(nil, c.stdout, c.stderr))); err != nil {
		t.Fatal(err)
	}
	if c.exit, err = c.task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	// Whoever started it may have read a part of a line.
	c.stdout.dropPartialLine()
	return c
}

func TestCtrCheckpointAndRestore(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("same id=%v", same), func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				c, ref, after := d.checkpointed(ctx, t, everything())
				c.stop(ctx)
				c.remove()
				id := c.id
				if !same {
					id = newID(t)
				}
				r := d.ctrRestore(ctx, t, id, ref)
				expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
				r.expectStatus(ctx, containerd.Running)
				if r.task.Pid() == 0 {
					t.Error("the task has no PID")
				}
				r.stop(ctx)
				r.remove()
				d.expectNothingLeftOfRestore(t)
			})
		})
	}
}

// expectNothingLeftOfRestore is expectNothingLeft, except for the copy of the
// checkpoint that containerd forgets and our shim removes.
func (d *daemon) expectNothingLeftOfRestore(t *testing.T) {
	t.Helper()
	if isStock() {
		copies, _ := filepath.Glob(filepath.Join(d.TempDir(), "ctrd-checkpoint*"))
		for _, dir := range copies {
			_ = os.RemoveAll(dir)
		}
	}
	d.expectNothingLeft(t)
}

// A task that is to be restored and is deleted before its start leaves nothing.
func TestRestoreNotStarted(t *testing.T) {
	skipOnStock(t, "it leaves containerd's copy of the checkpoint")
	d := daemons[0]
	d.logIfFailed(t)
	ctx := d.testContext(t)
	c, ref, _ := d.checkpointed(ctx, t, counting("-m", "8"))
	c.stop(ctx)
	c.remove()
	image, err := d.Client.GetImage(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	s := counting("-m", "8")
	s.taskOpts = []containerd.NewTaskOpts{containerd.WithTaskCheckpoint(image)}
	r := d.create(ctx, t, s)
	r.expectStatus(ctx, containerd.Created)
	if copies, err := filepath.Glob(filepath.Join(d.TempDir(), "ctrd-checkpoint*")); len(copies) != 1 {
		t.Errorf("copies %v (%v), not one", copies, err)
	}
	if _, err := r.task.Delete(ctx); err != nil {
		t.Error(err)
	}
	r.remove()
	d.expectNothingLeft(t)
}

func TestRestoreTwiceBesideTheOriginal(t *testing.T) {
	skipOnStock(t, "the saved spec names the original's cgroup")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := everything()
		s.id = newID(t)
		const logPath = "test.hetgpu.local/log"
		s.opts = []oci.SpecOpts{oci.WithHostname(s.id), annotated(logPath, "/var/log/"+s.id+"/"+s.id+"-json.log")}
		c, ref, after := d.checkpointed(ctx, t, s)
		first := d.ctrRestore(ctx, t, newID(t), ref)
		second := d.ctrRestore(ctx, t, newID(t), ref)
		for _, r := range []*container{first, second} {
			expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
			expectOwnCgroup(t, d, r)
			if status, out := r.execOutput(t, d, "hostname"); status != 0 || out != r.id+"\n" {
				t.Errorf("hostname exited with %d and wrote %q, not %q", status, out, r.id)
			}
			if log, want := r.annotations()[logPath], "/var/log/"+r.id+"/"+r.id+"-json.log"; log != want {
				t.Errorf("its log is %q, not %q", log, want)
			}
		}
		// Each is its own: when one ends, the others go on.
		first.stop(ctx)
		second.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
		second.stdout.waitMore(ctx, t, 3)
		second.stop(ctx)
		for _, c := range []*container{c, first, second} {
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// annotations returns those of the spec in the container's bundle.
func (c *container) annotations() map[string]string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.d.Dir, "state/io.containerd.runtime.v2.task", c.d.Namespace, c.id, "config.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var spec oci.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		c.t.Fatal(err)
	}
	return spec.Annotations
}

// expectOwnCgroup fails unless the container's processes are in its cgroup.
func expectOwnCgroup(t *testing.T, d *daemon, c *container) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.task.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	want := "/" + d.Namespace + "/" + c.id
	var in int
	for line := range strings.Lines(string(data)) {
		path := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]
		if strings.HasSuffix(path, want) {
			in++
		} else if strings.Contains(path, d.Namespace) {
			t.Errorf("it is in the cgroup %s", strings.TrimSpace(line))
		}
	}
	if in == 0 {
		t.Errorf("no cgroup ends with %s:\n%s", want, data)
	}
}

// What was restored is a container like any other.
func TestUseRestored(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c, ref, _ := d.checkpointed(ctx, t, everything())
		c.stop(ctx)
		c.remove()
		r := d.ctrRestore(ctx, t, c.id, ref)
		if status, out := r.execOutput(t, d, "sh", "-c", "echo hello; exit 3"); status != 3 || out != "hello\n" {
			t.Errorf("exec exited with %d and wrote %q", status, out)
		}
		if err := r.task.Pause(ctx); err != nil {
			t.Fatalf("pause: %v", err)
		}
		r.expectStatus(ctx, containerd.Paused)
		if err := r.task.Resume(ctx); err != nil {
			t.Fatalf("resume: %v", err)
		}
		// The stock shim has none ("cgroup does not exist"): it looks for the
		// cgroup when it creates a task, and a restored one has no process then.
		if _, err := r.task.Metrics(ctx); err != nil && !isStock() {
			t.Errorf("metrics: %v", err)
		}
		r.stdout.waitMore(ctx, t, 3)

		// And so on: a checkpoint of the restored one.
		after := r.stdout.last(t)
		d.ctr(ctx, t, "container", "checkpoint", "--task", "--image", "--rw", r.id, ref+"-again")
		r.stdout.waitMore(ctx, t, 3)
		r.stop(ctx)
		r.remove()
		again := d.ctrRestore(ctx, t, c.id, ref+"-again")
		expectWentOn(t, again.stdout.waitMore(ctx, t, 3), after)
		again.stop(ctx)
		again.remove()
		d.expectNothingLeftOfRestore(t)
	})
}

// A task that is paused stays so over a checkpoint.
func TestCheckpointPaused(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting())
		c.stdout.waitMore(ctx, t, 3)
		if err := c.task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		d.ctr(ctx, t, "task", "checkpoint", c.id)
		c.expectStatus(ctx, containerd.Paused)
		if state := c.freezerState(); state != "frozen" {
			t.Errorf("the freezer is %q", state)
		}
		if err := c.task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}

// A checkpoint that CRIU refuses says why and where the log is, and the
// container goes on.
func TestCheckpointRefused(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		// Connections need "open TCP", which ctr can't ask for.
		c := d.run(ctx, t, counting("-t"))
		c.stdout.waitMore(ctx, t, 3)
		_, err := d.Ctr(ctx, "task", "checkpoint", c.id)
		if err == nil {
			t.Fatal("the checkpoint succeeded")
		}
		if !isStock() {
			expectExplained(t, err, "onnected TCP socket")
		}
		c.expectStatus(ctx, containerd.Running)
		c.stdout.waitMore(ctx, t, 3)
		if list := d.checkpointImages(ctx, t, c.id); len(list) != 0 {
			t.Errorf("images are left: %v", list)
		}
		c.stop(ctx)
		c.remove()
		d.expectNothingLeft(t)
	})
}

// expectExplained fails unless an error has what CRIU said and the path of a
// log that exists.
func expectExplained(t *testing.T, err error, what string) {
	t.Helper()
	text := err.Error()
	if !strings.Contains(text, what) {
		t.Errorf("the error does not say %q:\n%s", what, text)
	}
	for word := range strings.FieldsSeq(text) {
		file := strings.Trim(word, `"'(),.;:`)
		if st, err := os.Stat(file); err == nil && strings.HasSuffix(file, ".log") && st.Size() > 0 {
			return
		}
	}
	t.Errorf("the error names no log that is there:\n%s", text)
}

// While a checkpoint runs, others are answered.
func TestStateDuringCheckpoint(t *testing.T) {
	skipOnStock(t, "it answers when runc has ended")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-m", "128"))
		c.stdout.waitMore(ctx, t, 3)
		// The best of some, since other things run on this machine too: a lock
		// that was held would make all of them as slow as the dump.
		best := time.Hour
		for range 3 {
			done := make(chan error, 1)
			w := d.watch(ctx, c.id)
			go func() {
				_, err := d.Ctr(ctx, "task", "checkpoint", c.id)
				done <- err
			}()
			w.until(ctx, t, "paused")
			slowest, asked := d.askUntil(ctx, t, c, done)
			t.Logf("%d answers, the slowest took %s", asked, slowest)
			if best = min(best, slowest); best <= stateTime {
				break
			}
		}
		if best > stateTime {
			t.Errorf("an answer took %s, more than %s", best, stateTime)
		}
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}

// stateTime is the longest that State may take while a checkpoint runs.
const stateTime = 100 * time.Millisecond

// askUntil asks for the task's state, again and again, until done says that
// something ended.
func (d *daemon) askUntil(ctx context.Context, t *testing.T, c *container, done <-chan error) (slowest time.Duration, asked int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		start := time.Now()
		if _, err := c.task.Status(ctx); err != nil {
			t.Fatal(err)
		}
		slowest, asked = max(slowest, time.Since(start)), asked+1
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return slowest, asked
		case <-tick.C:
		}
	}
}
