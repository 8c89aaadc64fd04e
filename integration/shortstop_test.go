// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/restore"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// daemonArgs adds which containerd a command is to ask.
func (d *daemon) daemonArgs(args ...string) []string {
	return append(args, "--address", d.Address(), "--namespace", d.Namespace)
}

// hetgpu runs a command that asks containerd, which has to succeed, and returns
// its report.
func hetgpu[T any](ctx context.Context, t *testing.T, d *daemon, args ...string) T {
	t.Helper()
	return cliJSON[T](ctx, t, d, 0, d.daemonArgs(args...)...)
}

// restoreByCommand restores a snapshot with our own command, and attaches to
// what was restored.
func (d *daemon) restoreByCommand(ctx context.Context, t *testing.T, source, id string) *container {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if err := d.removeContainer(ctx, id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	})
	r := hetgpu[restore.Report](ctx, t, d, "restore", "--id", id, source)
	c := d.attach(ctx, t, id)
	if r.Container != id || r.PID == 0 || r.PID != c.task.Pid() || r.Seconds <= 0 {
		t.Errorf("%+v", r)
	}
	return c
}

// The container stops for less than the whole, and what is restored beside it,
// twice, has its memory and the files of that very moment: the counter writes
// one of them at each tick, CRIU compares its size, and the counter does again.
func TestShortStop(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := counting("-m", "8", "-c", "3", "-f", "/data", "-i", "1")
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 3)
		if status, out := c.execOutput(t, d, "sh", "-c", "rm /etc/group; mkdir /made; echo text >/made/file; ln /made/file /made/link; chown 7:8 /made/file"); status != 0 {
			t.Fatal(out)
		}
		dir := filepath.Join(t.TempDir(), "snapshot")
		after := c.stdout.last(t)
		r := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir)
		expectSnapshotDir(t, dir)
		expectShortStop(t, dir, r)
		c.expectStatus(ctx, containerd.Running)
		c.stdout.waitMore(ctx, t, 3)

		first := d.restoreByCommand(ctx, t, dir, newID(t))
		second := d.restoreByCommand(ctx, t, dir, newID(t))
		for _, r := range []*container{first, second} {
			expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
			expectOwnCgroup(t, d, r)
			status, out := r.execOutput(t, d, "sh", "-c", "cat /made/link; stat -c '%u %g %h' /made/file; ls /etc")
			if status != 0 || out != "text\n7 8 2\npasswd\n" {
				t.Errorf("exit status %d, and it sees %q", status, out)
			}
		}
		// What was restored is saved as any other, also while it is paused.
		again := filepath.Join(t.TempDir(), "again")
		if err := first.task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if r := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", first.id, "--dir", again); r.StopSeconds != 0 {
			t.Errorf("what was paused before was stopped for %v s", r.StopSeconds)
		}
		first.expectStatus(ctx, containerd.Paused)
		if err := first.task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		third := d.restoreByCommand(ctx, t, again, newID(t))
		expectWentOn(t, third.stdout.waitMore(ctx, t, 3), after)
		for _, c := range []*container{c, first, second, third} {
			c.stop(ctx)
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// expectShortStop fails unless the report is that of a container that went on.
func expectShortStop(t *testing.T, dir string, r checkpoint.Report) {
	t.Helper()
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.StopSeconds <= 0 || m.StopSeconds != r.StopSeconds || r.StopSeconds >= r.Seconds {
		t.Errorf("stopped for %v s of %v s; the manifest says %v s", r.StopSeconds, r.Seconds, m.StopSeconds)
	}
	if r.Engine != m.Engine || r.Files != len(m.Files) || r.Bytes <= 0 || r.LayerBytes <= 0 || r.Directory != dir {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"hetgpu-rw.tar", "hetgpu-container.json"} {
		if !slices.ContainsFunc(m.Files, func(f snapshot.File) bool { return f.Name == name }) {
			t.Errorf("%s is not in the manifest", name)
		}
	}
	t.Logf("stopped for %.3f s of %.3f s: %v", r.StopSeconds, r.Seconds, r.Phases)
}

// With --exit the container ends, and goes on under its own name.
func TestShortStopExit(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-f", "/data"))
		c.stdout.waitMore(ctx, t, 3)
		dir := filepath.Join(t.TempDir(), "snapshot")
		expectText(t, d.cli(ctx, t, 0, d.daemonArgs("checkpoint", "--exit", "--dir", dir, c.id)...), c.id+": ", " files, ", "engine none\n", " dump\n")
		c.waitExit(ctx)
		c.delete(ctx)
		stopped := c.stdout.last(t)
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", dir)...), "there is a container "+c.id, "--id")
		c.remove()
		r := d.restoreByCommand(ctx, t, dir, c.id)
		if numbers := r.stdout.waitMore(ctx, t, 3); numbers[0] > stopped+2 { // attach drops the first line
			t.Errorf("it went on with %d after %d", numbers[0], stopped)
		}
		r.stop(ctx)
		r.remove()
		d.expectNothingLeft(t)
	})
}

// The OCI layout is restored by our command, and by containerd's own client.
func TestShortStopLayout(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-m", "8", "-f", "/data"))
		c.stdout.waitMore(ctx, t, 3)
		dir, ref := filepath.Join(t.TempDir(), "layout"), "test.hetgpu.local/short/"+c.id+":1"
		after := c.stdout.last(t)
		r := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--oci", dir, "--name", ref)
		if r.Name != ref || !strings.HasPrefix(r.Digest, "sha256:") || r.Layout != dir || r.StopSeconds <= 0 {
			t.Errorf("%+v", r)
		}
		if left := list(dir); !slices.Equal(left, []string{"blobs", "index.json", "oci-layout"}) {
			t.Errorf("in the layout is %v", left)
		}
		ours := d.restoreByCommand(ctx, t, dir, newID(t))
		expectWentOn(t, ours.stdout.waitMore(ctx, t, 3), after)

		d.ctr(ctx, t, "images", "import", pack(ctx, t, dir))
		if got, err := d.Client.GetImage(ctx, ref); err != nil || got.Target().Digest.String() != r.Digest {
			t.Fatalf("imported %v, %v; want %s", got, err, r.Digest)
		}
		theirs := d.ctrRestore(ctx, t, newID(t), ref)
		expectWentOn(t, theirs.stdout.waitMore(ctx, t, 3), after)
		for _, c := range []*container{c, ours, theirs} {
			c.stop(ctx)
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// A container with a GPU, by both engines.
func TestGPUShortStop(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		for engine, s := range map[string]spec{snapshot.EngineDriver: d.toy("-n", "1"), snapshot.EngineSplit: d.splitToy()} {
			t.Run(engine, func(t *testing.T) {
				ctx := d.testContext(t)
				c := d.run(ctx, t, s)
				before := c.ticksOn(ctx, 1)
				dir := filepath.Join(t.TempDir(), "snapshot")
				r := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir)
				expectShortStop(t, dir, r)
				if r.Engine != engine {
					t.Errorf("engine %s, not %s", r.Engine, engine)
				}
				c.expectGoesOn(ctx, 1)
				restored := d.restoreByCommand(ctx, t, dir, newID(t))
				restored.expectGoesOn(ctx, 1)
				if first := restored.firstTick(); first <= before[0] {
					t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
				}
				c.expectGoesOn(ctx, 1)
				restored.stop(ctx)
				c.stop(ctx)
			})
		}
	})
}

// A second snapshot has only the device memory that has changed, whether or not the
// kernel tracks other memory, and both together are restored.
func TestGPUShortStopParent(t *testing.T) {
	skipOnStock(t, "it knows nothing of GPUs")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "1", "-k", "4"}}))
		base := t.TempDir()
		first, second, third := filepath.Join(base, "first"), filepath.Join(base, "second"), filepath.Join(base, "third")
		before := c.ticksOn(ctx, 1)
		whole := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", first)
		part := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", second, "--parent", first)
		m, err := snapshot.ReadManifest(second)
		if err != nil {
			t.Fatal(err)
		}
		if whole.ReusedBytes != 0 || m.Memory == nil || m.Memory.ReusedBytes != part.ReusedBytes ||
			part.ReusedBytes < 16<<20 || part.Bytes >= whole.Bytes || !m.Options.Incremental {
			t.Errorf("reused %d and %d bytes; %+v", whole.ReusedBytes, part.ReusedBytes, m.Memory)
		}
		t.Logf("%d bytes, then %d: %+v", whole.Bytes, part.Bytes, m.Memory)
		if link, err := os.Readlink(filepath.Join(second, "parent")); err != nil || link != "../first" {
			t.Errorf("parent leads to %q, %v", link, err)
		}
		c.expectGoesOn(ctx, 1)
		// Not on top of another container's, and nothing is left of the try.
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", c.id, "--dir", third, "--parent", base)...), "the snapshot before")
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", c.id, "--oci", third, "--parent", first)...), "--parent", "--oci")
		if _, err := os.Stat(third); err == nil {
			t.Errorf("left %v", list(third))
		}
		// Wherever the two are.
		moved := t.TempDir()
		for _, name := range []string{"first", "second"} {
			if err := os.Rename(filepath.Join(base, name), filepath.Join(moved, name)); err != nil {
				t.Fatal(err)
			}
		}
		restored := d.restoreByCommand(ctx, t, filepath.Join(moved, "second"), newID(t))
		restored.expectGoesOn(ctx, 1)
		if first := restored.firstTick(); first <= before[0] {
			t.Errorf("it went on at tick %d, and was saved after tick %d", first, before[0])
		}
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", restored.id, "--dir", third, "--parent", filepath.Join(moved, "second"))...), "is of container "+c.id)
		restored.stop(ctx)
		c.stop(ctx)
	})
}

// A program changes a twentieth of its device memory: a second snapshot has at most
// 15% of the first one's bytes, whether or not the kernel tracks other memory, and
// whoever asks for it.
func TestGPUIncrementalBytes(t *testing.T) {
	d := onGPUs(t)
	d.change(t, standin.H200s(2, 1).WithMemory(512<<20))
	ctx := d.testContext(t)
	base := t.TempDir()
	dir := func(name string) string { return filepath.Join(base, name) }
	s := d.split(spec{args: []string{inContainer + "/toy", "-i", "10", "-n", "1", "-b", "16777216", "-k", "76"}})
	c := d.run(ctx, t, s)
	c.expectGoesOn(ctx, 1)
	first := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir("first"))
	c.expectGoesOn(ctx, 1)
	second := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir("second"), "--parent", dir("first"))
	t.Logf("%d bytes, then %d: %.1f%%", first.Bytes, second.Bytes, 100*float64(second.Bytes)/float64(first.Bytes))
	if second.Bytes*100 > first.Bytes*15 {
		t.Errorf("%d bytes, and %d before", second.Bytes, first.Bytes)
	}
	// A client of containerd's, which names it as runc does.
	c.expectGoesOn(ctx, 1)
	if err := c.saveWith(ctx, dir("third"), &options.CheckpointOptions{ParentPath: "../second"}); err != nil {
		t.Fatal(err)
	}
	_, notTracked := d.Exec(ctx, "criu", "check", "--feature", "mem_dirty_track")
	for _, name := range []string{"second", "third"} {
		m := expectSplit(t, dir(name))
		if m.Memory.StoredBytes*100 > m.Memory.Bytes*15 || m.Memory.ReusedBytes < m.Memory.Bytes/2 || m.Options.WholePages != (notTracked != nil) {
			t.Errorf("%s: %+v, %+v", name, m.Memory, m.Options)
		}
		says := "incremental (needs its parent)"
		if notTracked != nil {
			says = "incremental (device memory only; needs its parent)"
		}
		expectText(t, d.cli(ctx, t, 0, "inspect", dir(name)), says, "in snapshots before")
	}
	c.expectGoesOn(ctx, 1)
	c.stop(ctx)
	c.remove()
	r := d.restore(ctx, t, s, dir("third"))
	r.expectKept(ctx, 1, 76)
	r.stop(ctx)
	r.remove()
	// Without the first of them nothing is started.
	if err := os.Rename(dir("first"), dir("elsewhere")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		expectText(t, d.cli(ctx, t, 1, "inspect", dir(name)), "parent/hetgpu-mem")
	}
	expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", "--id", newID(t), dir("second"))...), "parent leads to none")
	refused, err := d.tryRestore(ctx, t, s, dir("third"))
	expectError(t, err, "parent/parent/hetgpu-mem")
	refused.remove()
	d.expectNothingLeft(t)
}

// expectKept fails unless each rank of a toy goes on until it has looked at so many pieces of
// memory that stay as they are: one in each tick.
func (c *container) expectKept(ctx context.Context, ranks, pieces int) {
	c.t.Helper()
	for end := slices.Max(slices.Collect(maps.Values(c.ticksOn(ctx, ranks)))) + pieces; ; {
		now := slices.Collect(maps.Values(c.ticksOn(ctx, ranks)))
		if slices.Min(now) >= end {
			return
		}
	}
}

// What can't be done is said before anything is changed, with what to do.
func TestShortStopRefused(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := filepath.Join(t.TempDir(), "snapshot")
		s := counting()
		s.runtime = stockRuntime
		stock := d.run(ctx, t, s)
		stock.stdout.waitMore(ctx, t, 1)
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", stock.id, "--dir", dir)...), "runtime "+stockRuntime, "--runtime io.hetgpu.v2")
		stock.stdout.waitMore(ctx, t, 1)
		stock.stop(ctx)

		c := d.run(ctx, t, counting("-t"))
		c.stdout.waitMore(ctx, t, 3)
		full := t.TempDir()
		if err := os.WriteFile(filepath.Join(full, "note"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			args  []string
			parts []string
		}{
			{[]string{c.id}, []string{"--dir", "--oci"}},
			{[]string{c.id, "--dir", dir, "--oci", dir}, []string{"--dir", "--oci"}},
			{[]string{"missing", "--dir", dir}, []string{"missing", "not found"}},
			{[]string{c.id, "--dir", full}, []string{full, "not empty"}},
			{[]string{c.id, "--oci", full}, []string{full, "not empty"}},
			{[]string{c.id, "--dir", dir, "--timeout", "1ms"}, []string{"time-out"}},
			// CRIU's reason, and its log.
			{[]string{c.id, "--dir", dir}, []string{"onnected TCP socket", ".log"}},
			{[]string{c.id, "--oci", dir}, []string{"onnected TCP socket", ".log"}},
		} {
			expectText(t, d.cli(ctx, t, 1, d.daemonArgs(append([]string{"checkpoint"}, tc.args...)...)...), tc.parts...)
			c.expectStatus(ctx, containerd.Running)
			c.stdout.waitMore(ctx, t, 1)
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%v left %v", tc.args, list(dir))
			}
		}
		c.stop(ctx)
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", c.id, "--dir", dir)...), "has no task")
		d.expectNothingLeft(t)
	})
}

// A root without a writable layer of its own is refused, with what to do.
func TestShortStopNotOverlay(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		t.Cleanup(func() {
			ctx, cancel := d.cleanupContext()
			defer cancel()
			if err := d.removeContainer(ctx, id); err != nil {
				t.Error(err)
			}
		})
		d.ctr(ctx, t, "run", "--detach", "--runtime", *runtimeName, "--snapshotter", "native", testbed.ImageName, id, "counter")
		c := d.attach(ctx, t, id)
		after := c.stdout.waitMore(ctx, t, 3)[0]
		dir := filepath.Join(t.TempDir(), "snapshot")
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("checkpoint", id, "--dir", dir)...), "no overlay", "--no-rw")
		c.stdout.waitMore(ctx, t, 3)
		if r := hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", id, "--dir", dir, "--no-rw"); r.StopSeconds <= 0 || r.LayerBytes != 0 {
			t.Errorf("%+v", r)
		}
		restored := d.restoreByCommand(ctx, t, dir, newID(t))
		expectWentOn(t, restored.stdout.waitMore(ctx, t, 3), after)
		for _, c := range []*container{c, restored} {
			c.stop(ctx)
			c.remove()
		}
		d.expectNothingLeft(t)
	})
}

// A restore that can't be done leaves nothing, and says why.
func TestShortStopRestoreRefused(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-f", "/data"))
		c.stdout.waitMore(ctx, t, 3)
		dir, plain := filepath.Join(t.TempDir(), "snapshot"), filepath.Join(t.TempDir(), "plain")
		hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir)
		d.ctr(ctx, t, "task", "checkpoint", "--exit", "--image-path", plain, c.id)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()
		id := newID(t)
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", "--id", id, plain)...), "hetgpu-container.json")
		expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", "--id", id, t.TempDir())...), "no hetgpu.json")
		other := []string{"restore", "--id", id, dir, "--address", d.Address(), "--namespace", "hg-other"}
		expectText(t, d.cli(ctx, t, 1, other...), testbed.ImageName, "images pull", "hg-other")
		for _, name := range []string{"hetgpu-rw.tar", "pages-1.img", "hetgpu-container.json"} {
			copied := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			damage(t, filepath.Join(copied, name))
			expectText(t, d.cli(ctx, t, 1, d.daemonArgs("restore", "--id", id, copied)...), "snapshot is damaged", name)
			if _, err := d.Client.LoadContainer(ctx, id); err == nil {
				t.Error("there is a container")
			}
			if _, err := d.Client.SnapshotService(d.Snapshotter).Stat(ctx, id); err == nil {
				t.Error("there is a snapshot of its root")
			}
		}
		d.expectNothingLeft(t)
	})
}

// Whoever runs the command gives up while CRIU is at work: the container goes on
// and nothing is left.
func TestFaultsShortStopInterrupted(t *testing.T) {
	// A shell's background job ignores it, and so would the command.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	defer signal.Reset(os.Interrupt)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			program := make(chan *exec.Cmd, 1)
			dir := filepath.Join(t.TempDir(), "snapshot")
			h := d.held(ctx, t, func(p *patient) error {
				cmd, err := d.Command(ctx, "hetgpu", d.daemonArgs("checkpoint", p.id, "--dir", dir)...)
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					return err
				}
				program <- cmd
				return cmd.Wait()
			})
			if err := (<-program).Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGKILL {
				_ = h.result(ctx)
			}
			h.release()
			if sig == syscall.SIGINT {
				if err := h.result(ctx); err == nil {
					t.Error("the checkpoint succeeded")
				}
				if _, err := os.Stat(dir); err == nil {
					t.Errorf("it left %v", list(dir))
				}
			}
			h.waitRunning(ctx)
			err := testbed.Eventually(ctx, "the directory is empty", func() error {
				if left := list(dir); len(left) > 0 {
					return &os.PathError{Op: "left", Path: strings.Join(left, " "), Err: os.ErrExist}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			h.expectRecovered(ctx)
		})
	}
}

// The disk becomes full while the writable layer is packed: the container goes
// on by then, and nothing is left.
func TestFaultsShortStopDiskFull(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting())
		c.stdout.waitMore(ctx, t, 3)
		if status, out := c.execOutput(t, d, "dd", "if=/dev/urandom", "of=/large", "bs=1M", "count=48"); status != 0 {
			t.Fatal(out)
		}
		disk := smallDisk(t, 40)
		dir := filepath.Join(disk, "snapshot")
		expectText(t, strings.ToLower(d.cli(ctx, t, 1, d.daemonArgs("checkpoint", c.id, "--dir", dir)...)), "no space left on device")
		if left := list(disk); len(left) > 0 {
			t.Errorf("on the disk is %v", left)
		}
		c.stdout.waitMore(ctx, t, 3)
		hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir, "--no-rw")
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}

// A restore that is attached to has the container's output and its exit status.
func TestShortStopAttach(t *testing.T) {
	skipOnStock(t, "it has no such command")
	d := daemons[0]
	ctx := d.testContext(t)
	c := d.run(ctx, t, shell("i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done; exit 7"))
	c.stdout.waitFor(ctx, t, "tick 3\n")
	dir := filepath.Join(t.TempDir(), "snapshot")
	hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", dir, "--exit")
	c.waitExit(ctx)
	c.delete(ctx)
	c.remove()
	expectText(t, d.cli(ctx, t, 7, d.daemonArgs("restore", "--attach", dir)...), "tick 29\n", "tick 30\n")
	log := filepath.Join(t.TempDir(), "log")
	id := newID(t)
	hetgpu[restore.Report](ctx, t, d, "restore", "--id", id, "--log-uri", "file://"+log, dir)
	exit, err := d.task(ctx, t, id).Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if code := waitExit(ctx, t, exit); code != 7 {
		t.Errorf("exit status %d", code)
	}
	for _, id := range []string{c.id, id} {
		if err := d.removeContainer(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile(log); err != nil || !strings.Contains(string(data), "tick 30\n") {
		t.Errorf("the log has %q, %v", data, err)
	}
	d.expectNothingLeft(t)
}

// documented are the commands of a document, in its order.
func documented(t *testing.T, file, of string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(data)) {
		// TestGPUKept does this, which needs a GPU.
		if strings.Contains(line, "--keep-on-gpu") || strings.Contains(line, "/srv/snap/3") {
			continue
		}
		command, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "    "), "  #")
		if strings.HasPrefix(line, "    ") && (of == "" || strings.Contains(command, of)) {
			commands = append(commands, command)
		}
	}
	return commands
}

// What docs/cli.md and the README tell people to run does what they say.
func TestShortStopDocumented(t *testing.T) {
	skipOnStock(t, "it has no such command")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		for file, of := range map[string]string{"docs/cli.md": "", "README.md": "/srv/snap2"} {
			t.Run(file, func(t *testing.T) {
				ctx := d.testContext(t)
				s := counting("-m", "4", "-f", "/data")
				s.id = "job"
				c := d.run(ctx, t, s)
				c.stdout.waitMore(ctx, t, 1)
				t.Cleanup(func() {
					ctx, cancel := d.cleanupContext()
					defer cancel()
					d.removeJobs(ctx, t)
				})
				commands := documented(t, file, of)
				if len(commands) < 2 {
					t.Fatalf("only %q", commands)
				}
				srv := t.TempDir()
				for _, command := range commands {
					if strings.HasPrefix(command, "ctr task delete job") {
						c.waitExit(ctx)
					}
					script := "export CONTAINERD_ADDRESS=" + d.Address() + " CONTAINERD_NAMESPACE=" + d.Namespace + "\n" + strings.ReplaceAll(command, "/srv", srv)
					if out, err := d.Exec(ctx, "sh", "-c", script); err != nil {
						t.Fatalf("%s: %v\n%s", command, err, out)
					}
				}
				for _, id := range d.jobs(ctx, t) {
					d.expectRuns(ctx, t, id)
				}
				d.removeJobs(ctx, t)
				d.expectNothingLeft(t)
			})
		}
	})
}

// jobs are the containers of the documents.
func (d *daemon) jobs(ctx context.Context, t *testing.T) []string {
	t.Helper()
	all, err := d.Client.Containers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range all {
		if strings.HasPrefix(c.ID(), "job") {
			ids = append(ids, c.ID())
		}
	}
	return ids
}

func (d *daemon) removeJobs(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, id := range d.jobs(ctx, t) {
		if err := d.removeContainer(ctx, id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	}
}

// expectRuns fails unless a container runs, whoever reads its output.
func (d *daemon) expectRuns(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	if st, err := d.task(ctx, t, id).Status(ctx); err != nil || st.Status != containerd.Running {
		t.Errorf("%s is %s, %v", id, st.Status, err)
	}
}
