// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

// stockService stands for the stock service: it writes down what it was asked.
type stockService struct {
	taskapi.TTRPCTaskService
	calls  []string
	resume error
	pause  error
	state  tasktypes.Status // running if there is none
	noTask error
	// during is called in Pause, whose context is ctx, asked in State, starting
	// in Start.
	during, asked, starting func()
	ctx                     context.Context
}

func (f *stockService) Pause(ctx context.Context, _ *taskapi.PauseRequest) (*emptypb.Empty, error) {
	f.calls, f.ctx = append(f.calls, "pause"), ctx
	if f.during != nil {
		f.during()
	}
	return &emptypb.Empty{}, f.pause
}

func (f *stockService) Resume(context.Context, *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	f.calls = append(f.calls, "resume")
	return &emptypb.Empty{}, f.resume
}

func (f *stockService) State(context.Context, *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	f.calls = append(f.calls, "state")
	if f.asked != nil {
		f.asked()
	}
	return &taskapi.StateResponse{Status: cmp.Or(f.state, tasktypes.Status_RUNNING)}, f.noTask
}

func (f *stockService) Start(context.Context, *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	f.calls = append(f.calls, "start")
	if f.starting != nil {
		f.starting()
	}
	return &taskapi.StartResponse{Pid: 7}, nil
}

func (f *stockService) Exec(_ context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	f.calls = append(f.calls, "exec "+string(r.Spec.GetValue()))
	return &emptypb.Empty{}, nil
}

func (f *stockService) Kill(context.Context, *taskapi.KillRequest) (*emptypb.Empty, error) {
	f.calls = append(f.calls, "kill")
	return &emptypb.Empty{}, nil
}

func (f *stockService) Delete(context.Context, *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	f.calls = append(f.calls, "delete")
	return &taskapi.DeleteResponse{}, nil
}

// gpus is an engine that only locks.
type gpus struct {
	gpuplugin.None
	engine string
	undone []int
	undo   error
}

func (g *gpus) Engine() string { return cmp.Or(g.engine, snapshot.EngineNone) }

func (g *gpus) Processes(context.Context, []int) ([]gpuplugin.Process, error) {
	return []gpuplugin.Process{{PID: 3}}, nil
}

func (g *gpus) Lock(context.Context, []gpuplugin.Process) error { return nil }

func (g *gpus) Undo(_ context.Context, procs []gpuplugin.Process) error {
	for _, p := range procs {
		g.undone = append(g.undone, p.PID)
	}
	return g.undo
}

func contains(err error, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(err.Error(), part) })
}

func newService(c *container) (*service, *stockService) {
	inner := &stockService{}
	c.request = &taskapi.CreateTaskRequest{Stdout: "out"}
	if c.gpu == nil {
		c.gpu = gpuplugin.None{}
	}
	return &service{TTRPCTaskService: inner, containers: map[string]*container{c.id: c}}, inner
}

func TestOneOperationAtATime(t *testing.T) {
	c := &container{id: "c"}
	ctx, end, err := c.begin(t.Context(), opCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.begin(t.Context(), opPause); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "checkpoint is under way") {
		t.Errorf("a second operation: %v", err)
	}
	why := errors.New("enough")
	done := c.interrupt(why)
	if !errors.Is(context.Cause(ctx), why) {
		t.Errorf("the operation's context ended with %v", context.Cause(ctx))
	}
	end()
	select {
	case <-done:
	default:
		t.Error("the end of the operation is not told")
	}
	if c.busy() != opNone || c.interrupt(why) != nil {
		t.Error("the operation is still there")
	}
}

// That the container is being ended is told to an operation that was interrupted
// before, also twice; nothing else is.
func TestEndingIsTold(t *testing.T) {
	c := &container{id: "c"}
	ctx, end, err := c.begin(t.Context(), opCheckpoint)
	must(t, err)
	defer end()
	ending := c.ending()
	c.interrupt(errAbandoned)
	select {
	case <-ending:
		t.Error("a client that has gone is taken for the container's end")
	default:
	}
	for range 2 {
		c.interrupt(checkpoint.ErrEnding)
		<-ending
	}
	if !errors.Is(context.Cause(ctx), errAbandoned) {
		t.Errorf("the operation's context ended with %v", context.Cause(ctx))
	}
}

// State that this version can't save is refused, not lost: of other vendors'
// GPUs, also beside NVIDIA's.
func TestOtherVendors(t *testing.T) {
	for name, g := range map[string]oci.GPUs{
		"AMD": {AMD: true}, "Intel": {Intel: true}, "AMD beside NVIDIA": {AMD: true, NVIDIA: true},
	} {
		for engine, refused := range map[oci.Engine]bool{oci.EngineAuto: true, oci.EngineDriver: true, oci.EngineNone: false} {
			group := &groupFake{}
			c := &container{id: "c", pid: 5, group: group, gpus: g, policy: oci.Policy{Engine: engine}}
			s, inner := newService(c)
			// What comes next is whether it runs.
			inner.state = tasktypes.Status_STOPPED
			_, err := s.Checkpoint(t.Context(), &taskapi.CheckpointTaskRequest{ID: "c", Path: t.TempDir()})
			if err = errgrpc.ToNative(err); !errdefs.IsFailedPrecondition(err) || contains(err, "another vendor's", oci.AnnotationEngine) != refused {
				t.Errorf("%s, engine %q: %v", name, engine, err)
			}
			if asked := len(inner.calls) > 0; asked == refused || len(group.calls) > 0 || c.busy() != opNone {
				t.Errorf("%s, engine %q: %v, %v, busy %q", name, engine, inner.calls, group.calls, c.busy())
			}
		}
	}
}

// While the stock service holds its lock, State does not ask it.
func TestStateDuringOperations(t *testing.T) {
	for _, tc := range []struct {
		op    op
		want  tasktypes.Status
		asked bool
	}{
		{opNone, tasktypes.Status_RUNNING, true},
		{opCheckpoint, tasktypes.Status_RUNNING, true},
		{opPause, tasktypes.Status_PAUSING, false},
		{opResume, tasktypes.Status_PAUSED, false},
		{opRestore, tasktypes.Status_CREATED, false},
	} {
		c := &container{id: "c", pid: 5}
		s, inner := newService(c)
		if tc.op != opNone {
			_, end, err := c.begin(t.Context(), tc.op)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
		}
		st, err := s.State(t.Context(), &taskapi.StateRequest{ID: "c"})
		if err != nil || st.Status != tc.want || slices.Contains(inner.calls, "state") != tc.asked {
			t.Errorf("during %q: %v %v, asked %v", tc.op, st, err, inner.calls)
		}
		if !tc.asked && (st.Pid != 5 || st.Stdout != "out") {
			t.Errorf("during %q: %v", tc.op, st)
		}
		if _, err := s.State(t.Context(), &taskapi.StateRequest{ID: "c", ExecID: "e"}); err != nil || !slices.Contains(inner.calls, "state") {
			t.Error("the state of an exec is the stock service's")
		}
	}
}

func TestResumeUndoesPause(t *testing.T) {
	g := &gpus{}
	c := &container{id: "c", gpu: g}
	s, inner := newService(c)
	c.paused, c.pausedAt = []gpuplugin.Process{{PID: 3}, {PID: 4}}, time.Now()
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.undone, []int{3, 4}) || !slices.Equal(inner.calls, []string{"resume"}) || !c.pausedAt.IsZero() {
		t.Errorf("undone %v, calls %v, paused at %v", g.undone, inner.calls, c.pausedAt)
	}
}

// A resume whose GPU part failed can be tried again, although the processes
// run by then.
func TestResumeAgain(t *testing.T) {
	g := &gpus{undo: errors.New("driver")}
	c := &container{id: "c", gpu: g, pid: 5, group: &groupFake{}}
	s, inner := newService(c)
	c.paused, c.pausedAt = []gpuplugin.Process{{PID: 3}}, time.Now()
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Fatalf("error is %v", err)
	}
	g.undo, inner.resume = nil, errors.New("cannot resume a running process")
	_, _ = s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"})
	if len(c.paused) > 0 || len(g.undone) != 2 {
		t.Errorf("still paused: %v after %v", c.paused, g.undone)
	}
}

// Resume ends a checkpoint that is under way: its client gave up.
func TestResumeEndsCheckpoint(t *testing.T) {
	c := &container{id: "c"}
	s, inner := newService(c)
	ctx, end, err := c.begin(t.Context(), opCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, end)
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(context.Cause(ctx), errResuming) || !slices.Equal(inner.calls, []string{"resume"}) {
		t.Errorf("ended with %v, calls %v", context.Cause(ctx), inner.calls)
	}
}

// What we resumed for a client that seemed gone, the client may resume again.
func TestResumeAbandoned(t *testing.T) {
	c := &container{id: "c"}
	s, inner := newService(c)
	c.pausedAt = time.Now()
	s.resumeAbandoned(t.Context(), c)
	inner.resume = errors.New("cannot resume a running process")
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err != nil || len(inner.calls) != 1 {
		t.Errorf("got %v after %v", err, inner.calls)
	}
	if _, err := s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "c"}); err == nil {
		t.Error("once more: the stock service's error was swallowed")
	}
}

func TestPauseFails(t *testing.T) {
	c := &container{id: "c", gpu: &gpus{}}
	s, inner := newService(c)
	inner.pause = errors.New("runc")
	if _, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"}); !errors.Is(err, inner.pause) {
		t.Errorf("error is %v", err)
	}
	if !c.pausedAt.IsZero() {
		t.Error("it is taken for paused")
	}
	inner.pause = nil
	inner.during = func() {
		if _, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"}); errgrpc.ToNative(err) == nil {
			t.Error("a second pause beside the first")
		}
	}
	if _, err := s.Pause(t.Context(), &taskapi.PauseRequest{ID: "c"}); err != nil || !c.pausedFor(time.Now()) || c.pausedFor(time.Now().Add(time.Minute)) {
		t.Errorf("error is %v, paused at %v", err, c.pausedAt)
	}
}

// A deadly signal ends the operation first; others don't.
func TestKill(t *testing.T) {
	for _, tc := range []struct {
		signal uint32
		exec   string
		ends   bool
	}{{9, "", true}, {15, "", false}, {9, "e", false}} {
		c := &container{id: "c"}
		s, inner := newService(c)
		ctx, end, err := c.begin(t.Context(), opCheckpoint)
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, end)
		if _, err := s.Kill(t.Context(), &taskapi.KillRequest{ID: "c", Signal: tc.signal, ExecID: tc.exec}); err != nil || !slices.Equal(inner.calls, []string{"kill"}) {
			t.Errorf("%+v: %v, calls %v", tc, err, inner.calls)
		}
		if (ctx.Err() != nil) != tc.ends {
			t.Errorf("%+v: the operation's context: %v", tc, ctx.Err())
		}
	}
}

func TestExecDuringCheckpoint(t *testing.T) {
	c := &container{id: "c"}
	s, inner := newService(c)
	_, end, err := c.begin(t.Context(), opCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: "c", ExecID: "e"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) || len(inner.calls) > 0 {
		t.Errorf("got %v after %v", err, inner.calls)
	}
	end()
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: "c", ExecID: "e"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: "c"}); err != nil || c.pid != 7 {
		t.Errorf("error %v, pid %d", err, c.pid)
	}
}

// A checkpoint waits for a process that is entering the container.
func TestCheckpointWaitsForExec(t *testing.T) {
	c := &container{id: "c"}
	s, inner := newService(c)
	entering, enter, entered := make(chan struct{}), make(chan struct{}), make(chan error)
	inner.starting = func() {
		close(entering)
		<-enter
	}
	go func() {
		_, err := s.Start(t.Context(), &taskapi.StartRequest{ID: "c", ExecID: "e"})
		entered <- err
	}()
	<-entering
	ctx, end, err := c.begin(t.Context(), opCheckpoint)
	must(t, err)
	defer end()
	enough := errors.New("enough")
	stopped, stop := context.WithCancelCause(ctx)
	stop(enough)
	if err := c.waitExecs(stopped); !errors.Is(err, enough) {
		t.Errorf("while a process enters: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- c.waitExecs(ctx) }()
	close(enter)
	must(t, <-entered)
	must(t, <-waited)
	must(t, c.waitExecs(stopped))
}

func TestDeleteForgets(t *testing.T) {
	c := &container{id: "c", restore: &checkpoint.Restore{}}
	s, _ := newService(c)
	if _, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "c", ExecID: "e"}); err != nil || s.container("c") == nil {
		t.Errorf("after the delete of an exec: %v, %v", err, s.container("c"))
	}
	if _, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "c"}); err != nil || s.container("c") != nil {
		t.Errorf("after the delete: %v, %v", err, s.container("c"))
	}
}

func TestCheckpointOptions(t *testing.T) {
	sent, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{
		Exit: true, OpenTcp: true, ExternalUnixSockets: true, Terminal: true, FileLocks: true, EmptyNamespaces: []string{"network"}, WorkPath: "/w", ParentPath: "../p",
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &container{policy: oci.Policy{CheckpointExit: true, TCP: oci.TCPEstablished}}
	o, err := c.checkpointOptions(&taskapi.CheckpointTaskRequest{Path: "/i", Options: sent})
	d := o.dump
	if err != nil || !d.Exit || !d.TCPEstablished || !d.UnixSockets || !d.Terminal || !d.FileLocks || d.WorkDir != "/w" || o.Parent != "../p" || d.Parent != "" || d.Dir != "/i" || len(d.EmptyNamespaces) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
	// Options that were sent win over the annotation; without any it decides.
	if sent, err = typeurl.MarshalAnyToProto(&options.CheckpointOptions{FileLocks: true}); err != nil {
		t.Fatal(err)
	}
	if o, err := c.checkpointOptions(&taskapi.CheckpointTaskRequest{Options: sent}); err != nil || o.dump.Exit {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := c.checkpointOptions(&taskapi.CheckpointTaskRequest{}); err != nil || !o.dump.Exit {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestShortStopOptions(t *testing.T) {
	want := shortstop.Options{Exit: true, FileLocks: true, Timeout: time.Minute, Layer: true, Container: []byte(`{"id":"c"}`)}
	sent, err := want.Pack()
	must(t, err)
	c := &container{policy: oci.Policy{TCP: oci.TCPEstablished}, timeout: time.Hour}
	o, err := c.checkpointOptions(&taskapi.CheckpointTaskRequest{Path: "/i", Options: sent})
	if err != nil || o.timeout != time.Minute || !o.dump.Exit || !o.dump.FileLocks || !o.dump.TCPEstablished || !o.Layer || string(o.Container) != `{"id":"c"}` {
		t.Errorf("got %+v, %v", o, err)
	}
	if sent, err = (&shortstop.Options{}).Pack(); err != nil {
		t.Fatal(err)
	}
	if o, err := c.checkpointOptions(&taskapi.CheckpointTaskRequest{Options: sent}); err != nil || o.timeout != time.Hour || o.dump.Exit {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestRemoveTemporary(t *testing.T) {
	tmp, runtime, other := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for dir, tc := range map[string]struct {
		xdg     string
		removed bool
	}{
		filepath.Join(tmp, "ctrd-checkpoint123"):     {"", true},
		filepath.Join(tmp, "ctrd-checkpoint"):        {"", false},
		filepath.Join(tmp, "ctrd-checkpoint1-mine"):  {"", false},
		filepath.Join(tmp, "snapshot"):               {"", false},
		filepath.Join(other, "ctrd-checkpoint123"):   {"", false},
		filepath.Join(runtime, "ctrd-checkpoint123"): {runtime + "/", true},
		filepath.Join(tmp, "ctrd-checkpoint456"):     {runtime, false},
	} {
		removed := tc.removed
		t.Setenv("XDG_RUNTIME_DIR", tc.xdg)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		removeTemporary(t.Context(), dir)
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) != removed {
			t.Errorf("%s: %v, want it removed: %t", dir, err, removed)
		}
	}
}

func TestWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	for _, stopAtOnce := range []bool{false, true} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		stop := watch(t.Context(), dir, func() { close(gone) })
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if stopAtOnce {
			stop()
		}
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Error("nobody noticed")
		}
		if !stopAtOnce {
			stop()
		}
	}
	watch(t.Context(), dir, func() { t.Error("a directory that was never there is gone") })()
}

func TestStatus(t *testing.T) {
	if status(nil) != nil {
		t.Error("no error became one")
	}
	for err, is := range map[error]func(error) bool{
		gpuplugin.ErrUnsupported:  errdefs.IsFailedPrecondition,
		gpuplugin.ErrIncompatible: errdefs.IsFailedPrecondition,
		gpuplugin.ErrUnavailable:  errdefs.IsFailedPrecondition,
		snapshot.ErrCorrupt:       errdefs.IsDataLoss,
		criu.ErrTooOld:            errdefs.IsFailedPrecondition,
		checkpoint.ErrExists:      errdefs.IsAlreadyExists,
		checkpoint.ErrNoSpace:     errdefs.IsResourceExhausted,
		checkpoint.ErrEntered:     errdefs.IsFailedPrecondition,
		unix.ENOSPC:               errdefs.IsResourceExhausted,
		context.DeadlineExceeded:  errdefs.IsDeadlineExceeded,
		errdefs.ErrNotFound:       errdefs.IsNotFound,
	} {
		got := status(fmt.Errorf("step: %w", errors.Join(errors.New("other"), err)))
		if !is(errgrpc.ToNative(got)) || !strings.Contains(got.Error(), "step") {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// What a container calls its processes must not reach a terminal as it is.
func TestPlain(t *testing.T) {
	got := status(errors.Join(errors.New("process 3 (\x1b[2J\x07\u202etext\xff)"), errors.New("für")))
	if text := got.Error(); !strings.Contains(text, "process 3 (?[2J??text\ufffd); für") {
		t.Errorf("got %q", text)
	}
}
