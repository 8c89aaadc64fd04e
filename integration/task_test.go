// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	cgroup1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	cgroup2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestExitStatus(t *testing.T) {
	for _, want := range []uint32{0, 7} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				c := d.run(ctx, t, shell(fmt.Sprintf("exit %d", want)))
				if got := c.waitExit(ctx); got != want {
					t.Errorf("exited with %d, not %d", got, want)
				}
				c.expectStatus(ctx, containerd.Stopped)
				if got := c.delete(ctx); got != want {
					t.Errorf("delete says %d, not %d", got, want)
				}
				d.expectNothingLeft(t)
			})
		})
	}
}

func TestCreateWithoutStart(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.create(ctx, t, counting())
		c.expectStatus(ctx, containerd.Created)
		if c.task.Pid() == 0 {
			t.Error("a created task has no process")
		}
		if out := c.stdout.String(); out != "" {
			t.Errorf("it ran before it was started: %q", out)
		}
		if _, err := c.task.Delete(ctx, containerd.WithProcessKill); err != nil {
			t.Errorf("delete: %v", err)
		}
		d.expectNothingLeft(t)
	})
}

func TestProgramMissing(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := spec{args: []string{"no-such-program"}}
		c := d.createContainer(ctx, t, s)
		_, err := c.tryCreateTask(ctx, s)
		if err == nil || !strings.Contains(err.Error(), "no-such-program") {
			t.Errorf("the error does not name the program: %v", err)
		}
		d.expectNothingLeft(t)
	})
}

// exec starts a second process in the container.
func (c *container) exec(t *testing.T, d *daemon, id string, args ...string) (containerd.Process, <-chan containerd.ExitStatus, *output) {
	t.Helper()
	ctx := d.testContext(t)
	out := newOutput()
	p, err := c.task.Exec(ctx, id, &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}},
		cio.NewCreator(cio.WithStreams(nil, out, out), cio.WithFIFODir(filepath.Join(d.Dir, "fifo"))))
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("wait for exec: %v", err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatalf("start exec: %v", err)
	}
	return p, exit, out
}

// execOutput runs a second process in the container to its end, and returns its
// status and what it wrote.
func (c *container) execOutput(t *testing.T, d *daemon, args ...string) (uint32, string) {
	t.Helper()
	ctx := d.testContext(t)
	p, exit, out := c.exec(t, d, newID(t), args...)
	status := waitExit(ctx, t, exit)
	drain(ctx, t, p.IO())
	if _, err := p.Delete(ctx); err != nil {
		t.Errorf("delete exec: %v", err)
	}
	return status, out.String()
}

func TestExec(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell("sleep 1000"))
		if status, out := c.execOutput(t, d, "sh", "-c", "echo hello; exit 3"); status != 3 || out != "hello\n" {
			t.Errorf("exec exited with %d and wrote %q", status, out)
		}
		c.expectStatus(ctx, containerd.Running)

		// Two at once, of which one is killed.
		killed, killedExit, _ := c.exec(t, d, "two", "sleep", "1000")
		other, otherExit, _ := c.exec(t, d, "three", "sleep", "1000")
		pids, err := c.task.Pids(ctx)
		if err != nil || len(pids) != 3 {
			t.Errorf("the task has processes %v (%v), not three", pids, err)
		}
		if err := killed.Kill(ctx, syscall.SIGTERM); err != nil {
			t.Fatalf("kill exec: %v", err)
		}
		if got := waitExit(ctx, t, killedExit); got != 128+15 {
			t.Errorf("the killed exec exited with %d", got)
		}
		if st, err := other.Status(ctx); err != nil || st.Status != containerd.Running {
			t.Errorf("the other exec is %v (%v)", st.Status, err)
		}
		// An exec ends with its container.
		c.kill(ctx, syscall.SIGKILL)
		c.waitExit(ctx)
		if got := waitExit(ctx, t, otherExit); got != 137 {
			t.Errorf("the other exec exited with %d, not 137", got)
		}
		for _, p := range []containerd.Process{killed, other} {
			if _, err := p.Delete(ctx); err != nil {
				t.Errorf("delete exec %s: %v", p.ID(), err)
			}
		}
		c.delete(ctx)
		d.expectNothingLeft(t)
	})
}

func TestKill(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell(`trap "exit 7" TERM; echo ready; while :; do sleep 0.01; done`))
		c.stdout.waitFor(ctx, t, "ready")
		c.kill(ctx, syscall.SIGTERM)
		if got := c.waitExit(ctx); got != 7 {
			t.Errorf("exited with %d, not 7: the signal was not delivered", got)
		}
		if err := c.task.Kill(ctx, syscall.SIGTERM); !errdefs.IsNotFound(err) {
			t.Errorf("killing what has exited: %v, want not found", err)
		}
		c.delete(ctx)
		d.expectNothingLeft(t)
	})
}

func TestKillAll(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell("sleep 1000 & sleep 1000 & echo ready; wait"))
		c.stdout.waitFor(ctx, t, "ready")
		c.kill(ctx, syscall.SIGKILL, containerd.WithKillAll)
		if got := c.waitExit(ctx); got != 137 {
			t.Errorf("exited with %d, not 137", got)
		}
		c.delete(ctx)
		d.expectNothingLeft(t)
	})
}

// unified tells whether the unified hierarchy is in charge of this machine's
// cgroups, or version 1, which a hybrid machine has beside it.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// needsMemoryController skips a test that limits or measures memory where the
// unified hierarchy lacks the controller: version 1 has it then.
func needsMemoryController(t *testing.T) {
	t.Helper()
	if !unified() {
		return
	}
	data, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(data)), "memory") {
		t.Skip("the unified hierarchy has no memory controller here: version 1 has it")
	}
}

// freezerState reads what the kernel says of the container's freezer.
func (c *container) freezerState() string {
	c.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.task.Pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case !unified() && fields[1] == "freezer":
			state, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/freezer", fields[2], "freezer.state"))
			if err != nil {
				c.t.Fatal(err)
			}
			return strings.ToLower(strings.TrimSpace(string(state)))
		case unified() && fields[1] == "":
			events, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", fields[2], "cgroup.events"))
			if err != nil {
				c.t.Fatal(err)
			}
			if strings.Contains(string(events), "frozen 1") {
				return "frozen"
			}
			return "thawed"
		}
	}
	c.t.Fatalf("no freezer in %q", data)
	return ""
}

func TestPauseAndResume(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting())
		c.stdout.waitMore(ctx, t, 3)
		if err := c.task.Pause(ctx); err != nil {
			t.Fatalf("pause: %v", err)
		}
		c.expectStatus(ctx, containerd.Paused)
		if state := c.freezerState(); state != "frozen" {
			t.Errorf("the freezer is %q", state)
		}
		if err := c.task.Resume(ctx); err != nil {
			t.Fatalf("resume: %v", err)
		}
		c.expectStatus(ctx, containerd.Running)
		if state := c.freezerState(); state != "thawed" {
			t.Errorf("the freezer is %q", state)
		}
		c.stdout.waitMore(ctx, t, 3)
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}

func TestStats(t *testing.T) {
	needsMemoryController(t)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, counting("-m", "16", "-c", "2"))
		c.stdout.waitMore(ctx, t, 3)
		metric, err := c.task.Metrics(ctx)
		if err != nil {
			t.Fatalf("metrics: %v", err)
		}
		data, err := typeurl.UnmarshalAny(metric.Data)
		if err != nil {
			t.Fatalf("metrics of type %s: %v", metric.Data.GetTypeUrl(), err)
		}
		var pids, memory uint64
		switch m := data.(type) {
		case *cgroup1.Metrics:
			pids, memory = m.GetPids().GetCurrent(), m.GetMemory().GetUsage().GetUsage()
		case *cgroup2.Metrics:
			pids, memory = m.GetPids().GetCurrent(), m.GetMemory().GetUsage()
		default:
			t.Fatalf("metrics are a %T", data)
		}
		if pids != 3 {
			t.Errorf("%d processes, not 3", pids)
		}
		if memory < 16<<20 {
			t.Errorf("%d bytes of memory, less than the program holds", memory)
		}
		c.stop(ctx)
	})
}

func TestUpdate(t *testing.T) {
	needsMemoryController(t)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell("sleep 1000"))
		limit := int64(64 << 20)
		if err := c.task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})); err != nil {
			t.Fatalf("update: %v", err)
		}
		metric, err := c.task.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data, err := typeurl.UnmarshalAny(metric.Data)
		if err != nil {
			t.Fatal(err)
		}
		var got uint64
		switch m := data.(type) {
		case *cgroup1.Metrics:
			got = m.GetMemory().GetUsage().GetLimit()
		case *cgroup2.Metrics:
			got = m.GetMemory().GetUsageLimit()
		}
		if got != uint64(limit) {
			t.Errorf("the memory limit is %d, not %d", got, limit)
		}
		c.stop(ctx)
	})
}
