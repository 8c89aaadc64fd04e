// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// needsRestoreOptions is why the stock shim can't take part: it passes none of
// a checkpoint's options on to the restore.
const needsRestoreOptions = "it restores without the options of the checkpoint"

// saveWith checkpoints a container into a directory, with runc's options.
func (c *container) saveWith(ctx context.Context, dir string, o *options.CheckpointOptions) error {
	o.ImagePath = dir
	_, err := c.task.Checkpoint(ctx, func(i *containerd.CheckpointTaskInfo) error {
		i.Options = o
		return nil
	})
	return err
}

// moved checkpoints a container with options and ends it, restores it from the
// directory in a container of another id, and lets that go on.
func (d *daemon) moved(ctx context.Context, t *testing.T, s spec, o *options.CheckpointOptions) *container {
	t.Helper()
	c := d.run(ctx, t, s)
	c.stdout.waitMore(ctx, t, 3)
	dir := filepath.Join(t.TempDir(), "snapshot")
	o.Exit = true
	if err := c.saveWith(ctx, dir, o); err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	c.waitExit(ctx)
	c.delete(ctx)
	last := c.stdout.last(t)
	s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
	r := d.run(ctx, t, s)
	if numbers := r.stdout.waitMore(ctx, t, 3); numbers[0] != last+1 {
		t.Errorf("it went on with %d after %d", numbers[0], last)
	}
	return r
}

// Connections within the container go over a restore.
func TestTCPEstablished(t *testing.T) {
	skipOnStock(t, needsRestoreOptions)
	for name, s := range map[string]struct {
		annotations map[string]string
		openTCP     bool
	}{
		"by option":     {nil, true},
		"by annotation": {map[string]string{"io.hetgpu.tcp": "established"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				with := counting("-t")
				with.opts = []oci.SpecOpts{oci.WithAnnotations(s.annotations), withOwnNetwork(t)}
				d.moved(ctx, t, with, &options.CheckpointOptions{OpenTcp: s.openTCP}).stop(ctx)
			})
		})
	}
}

// withOwnNetwork gives a container a network namespace that somebody else made,
// as Kubernetes and nerdctl do, with a loopback device that is up.
func withOwnNetwork(t *testing.T) oci.SpecOpts {
	t.Helper()
	file := filepath.Join(t.TempDir(), "net")
	remove, err := testbed.NewNetwork(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remove() })
	return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: file})
}

// Connections to the outside are closed on request.
func TestTCPClose(t *testing.T) {
	skipOnStock(t, needsRestoreOptions)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := counting("-t")
		s.opts = []oci.SpecOpts{oci.WithAnnotations(map[string]string{"io.hetgpu.tcp": "close"})}
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 3)
		dir := filepath.Join(t.TempDir(), "snapshot")
		if err := c.saveWith(ctx, dir, &options.CheckpointOptions{Exit: true}); err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
		c.waitExit(ctx)
		c.delete(ctx)
		s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
		r := d.run(ctx, t, s)
		// The counter sees its connection closed, and says so.
		r.stdout.waitFor(ctx, t, "FAIL: ")
		if out := r.stdout.String(); !strings.Contains(out, "TCP") {
			t.Errorf("it failed with something else: %q", out)
		}
		r.waitExit(ctx)
	})
}

// withHostNetwork shares the host's network.
func withHostNetwork() []oci.SpecOpts {
	return []oci.SpecOpts{oci.WithHostNamespace(specs.NetworkNamespace)}
}

// Where the network is the host's, other people's connections stay as they
// are while a container is saved.
func TestHostNetwork(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := counting("-m", "8")
		s.opts = withHostNetwork()
		d.moved(ctx, t, s, &options.CheckpointOptions{}).stop(ctx)
	})
}

// The socket of a host's service, which a container sends to, is connected to
// again.
func TestExternalUnixSocket(t *testing.T) {
	skipOnStock(t, needsRestoreOptions)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := shortTempDir(t)
		server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		// The service reads all the time: a datagram socket's queue is short
		// (net.unix.max_dgram_qlen, 10), and whoever writes to a full one waits.
		numbers := make(chan uint64, 1<<14)
		go receive(server, numbers)
		s := counting("-u", filepath.Join(dir, "socket"))
		// CRIU finds the other end only in the container's own network, and
		// connects by the name to which it was bound.
		s.opts = append(withHostNetwork(), withBind(dir, dir))
		r := d.moved(ctx, t, s, &options.CheckpointOptions{ExternalUnixSockets: true})
		last := uint64(r.stdout.last(t))
		// What arrived before, across and after the restore has no gap.
		for want := uint64(1); want <= last; want++ {
			select {
			case got := <-numbers:
				if got != want {
					t.Fatalf("the service got %d, not %d", got, want)
				}
			case <-ctx.Done():
				t.Fatalf("the service has not got %d: %v", want, ctx.Err())
			}
		}
		r.stop(ctx)
	})
}

// receive passes on what a counter sends until the socket is closed.
func receive(server *net.UnixConn, numbers chan<- uint64) {
	var message [8]byte
	for {
		if _, err := server.Read(message[:]); err != nil {
			return
		}
		numbers <- binary.LittleEndian.Uint64(message[:])
	}
}

// A stream to somebody outside can't be saved. That is said, and the stream
// goes on.
func TestExternalUnixStreamRefused(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := shortTempDir(t)
		server, err := net.Listen("unix", filepath.Join(dir, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go func() {
			if conn, err := server.Accept(); err == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
		}()
		s := counting("-s", "/host/socket")
		s.opts = []oci.SpecOpts{withBind(dir, "/host")}
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 3)
		snapshot := filepath.Join(t.TempDir(), "snapshot")
		err = c.saveWith(ctx, snapshot, &options.CheckpointOptions{ExternalUnixSockets: true, Exit: true})
		if err == nil {
			t.Fatal("the checkpoint succeeded")
		}
		if !isStock() {
			expectExplained(t, err, "unix")
			if _, err := os.Stat(filepath.Join(snapshot, "hetgpu.json")); err == nil {
				t.Error("a failed checkpoint left a manifest")
			}
		}
		c.expectStatus(ctx, containerd.Running)
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
	})
}

// shortTempDir is t.TempDir() for unix sockets, whose paths have to be short.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hg") //nolint:usetesting // its paths are long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func withBind(host, inContainer string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{Source: host, Destination: inContainer, Type: "bind", Options: []string{"rbind", "rw"}}})
}

func TestFileLocks(t *testing.T) {
	skipOnStock(t, needsRestoreOptions)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		host := t.TempDir()
		s := counting("-l", "-f", "/host/data")
		s.opts = []oci.SpecOpts{withBind(host, "/host")}

		// Not without being asked to.
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 3)
		err := c.saveWith(ctx, filepath.Join(t.TempDir(), "refused"), &options.CheckpointOptions{})
		if err == nil {
			t.Fatal("the checkpoint succeeded")
		}
		expectExplained(t, err, "lock")
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)

		r := d.moved(ctx, t, s, &options.CheckpointOptions{FileLocks: true})
		file, err := os.Open(filepath.Join(host, "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("the lock is not held after the restore: %v", err)
		}
		r.stop(ctx)
	})
}

func TestCheckpointTerminal(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		in, feed := io.Pipe()
		defer feed.Close()
		s := spec{args: []string{"sh", "-c", "n=0; while read line; do n=$((n+1)); echo n=$n; stty size; done"}, terminal: true, stdin: in}
		c := d.run(ctx, t, s)
		answer := func(c *container, feed io.Writer, want string) {
			t.Helper()
			if _, err := io.WriteString(feed, "\n"); err != nil {
				t.Fatal(err)
			}
			c.stdout.waitFor(ctx, t, want)
		}
		answer(c, feed, "n=1")
		dir := filepath.Join(t.TempDir(), "snapshot")
		if err := c.saveWith(ctx, dir, &options.CheckpointOptions{Exit: true, Terminal: true}); err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
		c.waitExit(ctx)
		feed.Close()
		c.delete(ctx)

		in, feed = io.Pipe()
		defer feed.Close()
		s.stdin, s.taskOpts = in, []containerd.NewTaskOpts{containerd.WithRestoreImagePath(dir)}
		r := d.run(ctx, t, s)
		answer(r, feed, "n=2")
		if err := r.task.Resize(ctx, 132, 43); err != nil {
			t.Fatalf("resize: %v", err)
		}
		answer(r, feed, "43 132")
		r.stop(ctx)
	})
}

// A snapshot on top of another has less in it, and both are needed.
func TestParentPath(t *testing.T) {
	skipOnStock(t, "that of containerd 2.2 does not know the option")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		base := t.TempDir()
		s := counting("-m", "64")
		c := d.run(ctx, t, s)
		c.stdout.waitMore(ctx, t, 3)
		if err := c.saveWith(ctx, filepath.Join(base, "first"), &options.CheckpointOptions{}); err != nil {
			t.Fatalf("first checkpoint: %v", err)
		}
		c.stdout.waitMore(ctx, t, 3)
		second := filepath.Join(base, "second")
		// runc takes it relative to the images.
		err := c.saveWith(ctx, second, &options.CheckpointOptions{ParentPath: "../first", Exit: true})
		if _, checkErr := d.Exec(ctx, "criu", "check", "--feature", "mem_dirty_track"); checkErr != nil {
			if err == nil {
				t.Fatal("the second checkpoint succeeded")
			}
			expectError(t, err, "nothing could be left there")
			c.stdout.waitMore(ctx, t, 3)
			c.stop(ctx)
			t.Skip("this kernel does not track which pages are written (CONFIG_MEM_SOFT_DIRTY)")
		}
		if err != nil {
			t.Fatalf("second checkpoint: %v", err)
		}
		c.waitExit(ctx)
		c.delete(ctx)
		last := c.stdout.last(t)
		s.taskOpts = []containerd.NewTaskOpts{containerd.WithRestoreImagePath(second)}
		r := d.run(ctx, t, s)
		if numbers := r.stdout.waitMore(ctx, t, 3); numbers[0] != last+1 {
			t.Errorf("it went on with %d after %d", numbers[0], last)
		}
		r.stop(ctx)
	})
}

// A user's own configuration of CRIU counts, and ours beside it.
func TestUserCRIUConfig(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		config := filepath.Join(t.TempDir(), "criu.conf")
		if err := os.WriteFile(config, []byte("# mine\ntcp-established\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := counting("-t")
		s.opts = []oci.SpecOpts{oci.WithAnnotations(map[string]string{"org.criu.config": config}), withOwnNetwork(t)}
		d.moved(ctx, t, s, &options.CheckpointOptions{}).stop(ctx)
	})
}

// A file that has lost the name under which a program uses it, and has another, is
// saved, as glibc's semaphores are; or refused, where nobody could open it again.
func TestNamelessFiles(t *testing.T) {
	skipOnStock(t, "CRIU refuses such files unless it is told otherwise")
	t.Run("in memory, beside the original", func(t *testing.T) {
		eachDaemon(t, func(t *testing.T, d *daemon) {
			ctx := d.testContext(t)
			c, ref, after := d.checkpointed(ctx, t, counting("-r", "-f", "/dev/shm/data"))
			r := d.ctrRestore(ctx, t, newID(t), ref)
			expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
			for _, c := range []*container{c, r} {
				if status, out := c.execOutput(t, d, "ls", "/dev/shm"); status != 0 || out != "data.other\n" {
					t.Errorf("%s has %q in /dev/shm (status %d)", c.id, out, status)
				}
				c.stop(ctx)
				c.remove()
			}
			d.expectNothingLeft(t)
		})
	})
	for name, exit := range map[string]bool{"on a disk": false, "on a disk, to be ended": true} {
		t.Run(name, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				c := d.run(ctx, t, counting("-r", "-f", "/data"))
				c.stdout.waitMore(ctx, t, 3)
				dir := filepath.Join(t.TempDir(), "refused")
				err := c.saveWith(ctx, dir, &options.CheckpointOptions{Exit: exit})
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "dump: /data is used by the container under a name that it has lost") {
					t.Errorf("the checkpoint: %v", err)
				}
				c.stdout.waitMore(ctx, t, 3)
				if status, out := c.execOutput(t, d, "sh", "-c", "ls / | grep -e data -e link"); out != "data.other\n" {
					t.Errorf("there is %q (status %d)", out, status)
				}
				if _, err := os.Stat(filepath.Join(dir, "hetgpu.json")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("there is a manifest: %v", err)
				}
				c.stop(ctx)
				d.expectNothingLeft(t)
			})
		})
	}
}
