// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	apievents "github.com/containerd/containerd/api/events"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"
)

// taskEvent is what a test compares of an event: "exit" or "exec-exit ID".
type taskEvent struct {
	name string
	// data is the event itself.
	data any
}

// watcher reads the task events of one container in the order in which the
// daemon publishes them.
type watcher struct {
	id     string
	events <-chan *events.Envelope
	errs   <-chan error
	seen   []taskEvent
}

// watch starts to listen. Call it before anything happens.
func (d *daemon) watch(ctx context.Context, id string) *watcher {
	ch, errs := d.Client.Subscribe(ctx, `topic~="^/tasks/"`)
	return &watcher{id: id, events: ch, errs: errs}
}

// until reads events up to and including the named one.
func (w *watcher) until(ctx context.Context, t *testing.T, name string) taskEvent {
	t.Helper()
	for {
		select {
		case envelope := <-w.events:
			ev, ok := w.decode(t, envelope)
			if !ok {
				continue
			}
			w.seen = append(w.seen, ev)
			if ev.name == name {
				return ev
			}
		case err := <-w.errs:
			t.Fatalf("event stream: %v", err)
		case <-ctx.Done():
			t.Fatalf("wait for %q: %v; so far: %v", name, context.Cause(ctx), w.names())
		}
	}
}

func (w *watcher) names() []string {
	var names []string
	for _, ev := range w.seen {
		names = append(names, ev.name)
	}
	return names
}

func (w *watcher) decode(t *testing.T, envelope *events.Envelope) (taskEvent, bool) {
	t.Helper()
	data, err := typeurl.UnmarshalAny(envelope.Event)
	if err != nil {
		t.Fatalf("event %s: %v", envelope.Topic, err)
	}
	if of, ok := data.(interface{ GetContainerID() string }); !ok || of.GetContainerID() != w.id {
		return taskEvent{}, false
	}
	name := strings.TrimPrefix(envelope.Topic, "/tasks/")
	switch ev := data.(type) {
	case *apievents.TaskExit:
		if ev.ID != ev.ContainerID {
			name = "exec-exit " + ev.ID
		}
	case *apievents.TaskDelete:
		if ev.ID != "" && ev.ID != ev.ContainerID {
			name = "exec-delete " + ev.ID
		}
	case *apievents.TaskExecStarted:
		name = "exec-started " + ev.ExecID
	case *apievents.TaskExecAdded:
		name = "exec-added " + ev.ExecID
	}
	return taskEvent{name: name, data: data}, true
}

// companion runs a container, and returns what puts others into its shim. The
// stock shim, when it ends with its last container, may take the last events
// with it, even that of the exit (containerd 2.2.7 and 2.4.2); the companion
// keeps it until all have been sent.
func (d *daemon) companion(ctx context.Context, t *testing.T) []oci.SpecOpts {
	t.Helper()
	group := []oci.SpecOpts{oci.WithAnnotations(map[string]string{"io.containerd.runc.v2.group": newID(t)})}
	d.run(ctx, t, spec{args: []string{"sleep", "1000"}, opts: group})
	return group
}

func TestEvents(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		group := d.companion(ctx, t)
		w := d.watch(ctx, id)
		c := d.run(ctx, t, spec{id: id, args: []string{"sleep", "1000"}, opts: group})
		p, exit, _ := c.exec(t, d, "one", "true")
		waitExit(ctx, t, exit)
		if _, err := p.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		w.until(ctx, t, "exec-exit one")
		if err := c.task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		c.kill(ctx, syscall.SIGKILL)
		w.until(ctx, t, "exit")
		c.delete(ctx)
		deleted := w.until(ctx, t, "delete").data.(*apievents.TaskDelete)
		if deleted.ExitStatus != 137 || deleted.Pid != c.task.Pid() {
			t.Errorf("the delete event has status %d and pid %d", deleted.ExitStatus, deleted.Pid)
		}
		want := []string{"create", "start", "exec-added one", "exec-started one", "exec-exit one", "paused", "resumed", "exit", "delete"}
		if got := w.names(); !slices.Equal(got, want) {
			t.Errorf("events\n got %v\nwant %v", got, want)
		}
	})
}

// Everybody who waits for a container relies on this: once it has exited,
// nothing in it runs any more.
func TestExecsExitBeforeInit(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		w := d.watch(ctx, id)
		c := d.run(ctx, t, spec{id: id, args: []string{"sleep", "1000"}})
		for _, exec := range []string{"one", "two", "three"} {
			c.exec(t, d, exec, "sleep", "1000")
		}
		c.kill(ctx, syscall.SIGKILL)
		c.waitExit(ctx)
		w.until(ctx, t, "exit")
		for _, exec := range []string{"one", "two", "three"} {
			if !slices.Contains(w.names(), "exec-exit "+exec) {
				t.Errorf("init's exit came before that of exec %s: %v", exec, w.names())
			}
		}
	})
}

// A process that ends at once must not be reported before its start is.
func TestShortLived(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		group := d.companion(ctx, t)
		for range 10 {
			id := newID(t)
			w := d.watch(ctx, id)
			c := d.run(ctx, t, spec{id: id, args: []string{"true"}, opts: group})
			if status := c.waitExit(ctx); status != 0 {
				t.Fatalf("exited with %d", status)
			}
			// A wait is answered before the exit is published, by the stock shim
			// too: a delete in between would be published first.
			w.until(ctx, t, "exit")
			c.delete(ctx)
			w.until(ctx, t, "delete")
			if got, want := w.names(), []string{"create", "start", "exit", "delete"}; !slices.Equal(got, want) {
				t.Fatalf("events\n got %v\nwant %v", got, want)
			}
		}
	})
}

func TestOutOfMemory(t *testing.T) {
	needsMemoryController(t)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		id := newID(t)
		w := d.watch(ctx, id)
		s := counting("-m", "256")
		s.id, s.opts = id, []oci.SpecOpts{oci.WithMemoryLimit(32 << 20)}
		c := d.run(ctx, t, s)
		if status := c.waitExit(ctx); status != 137 {
			t.Errorf("exited with %d, not 137; it wrote %q", status, c.stdout)
		}
		w.until(ctx, t, "oom")
		c.expectStatus(ctx, containerd.Stopped)
		c.delete(ctx)
	})
}
