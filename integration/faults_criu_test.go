// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// hook is a script that CRIU runs at the stages of a dump and of a restore,
// and waits for. It makes CRIU, or runc above it, fail at just that point.
type hook struct{ script string }

// newHook returns a hook that does nothing, and the option by which a
// container's CRIU runs it.
func newHook(t *testing.T) (hook, oci.SpecOpts) {
	t.Helper()
	h := hook{writeScript(t, "hook", "")}
	config := filepath.Join(t.TempDir(), "criu.conf")
	if err := os.WriteFile(config, []byte("action-script "+h.script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return h, annotated("org.criu.config", config)
}

// at makes the hook run commands at one stage ("network-lock"; CRIU's manual
// has the others) and none at any other.
func (h hook) at(t *testing.T, stage, commands string) {
	t.Helper()
	text := fmt.Sprintf("#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" = %q ] || exit 0\n%s\n", stage, commands)
	// By rename: a script that is being run can't be written.
	if err := os.WriteFile(h.script+".new", []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(h.script+".new", h.script); err != nil {
		t.Fatal(err)
	}
}

const (
	hookFails = "exit 1"
	hookHangs = "exec sleep 1000"
	// CRIU is the script's parent, and runc is CRIU's.
	hookKillsCRIU = "kill -KILL $PPID"
	hookKillsRunc = "read -r _ _ _ runc _ < /proc/$PPID/stat; kill -KILL $runc"
)

// hold is a point at which CRIU waits.
type hold struct {
	t        *testing.T
	at, goOn string
}

// holdAt makes CRIU wait at a stage until it is released.
func (h hook) holdAt(t *testing.T, stage string) hold {
	t.Helper()
	dir := t.TempDir()
	o := hold{t, filepath.Join(dir, "reached"), filepath.Join(dir, "release")}
	for _, name := range []string{o.at, o.goOn} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.at(t, stage, fmt.Sprintf("echo > %s; read -r _ < %s; exit 0", o.at, o.goOn))
	return o
}

// wait returns once CRIU waits.
func (o hold) wait(ctx context.Context) {
	o.t.Helper()
	if err := o.open(ctx, o.at, os.O_RDONLY); err != nil {
		o.t.Fatalf("CRIU did not come to where it is to be held: %v", err)
	}
}

// release lets CRIU go on. It may be gone by now.
func (o hold) release() {
	o.t.Helper()
	// Opened so, the pipe needs no reader yet; what is in it stays until the
	// last end is closed.
	f, err := os.OpenFile(o.goOn, os.O_RDWR, 0)
	if err == nil {
		o.t.Cleanup(func() { _ = f.Close() })
		_, err = f.WriteString("\n")
	}
	if err != nil {
		o.t.Error(err)
	}
}

// open waits until the other end of the pipe is there too.
func (o hold) open(ctx context.Context, name string, flag int) error {
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(name, flag, 0)
		if err == nil {
			err = f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		// Ends the goroutine's wait.
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err == nil {
			_ = f.Close()
		}
		return context.Cause(ctx)
	}
}

// CRIU, and runc above it, fail at the beginning of a dump, once all processes
// stand still, and when all is written.
func TestFaultsDump(t *testing.T) {
	for _, stage := range []string{"pre-dump", "network-lock", "post-dump"} {
		for name, tc := range map[string]struct {
			commands string
			says     []string
		}{
			"CRIU fails":  {hookFails, []string{"dump: runc checkpoint", "CRIU says", "the log is " + daemons[0].logDir()}},
			"CRIU killed": {hookKillsCRIU, []string{"dump: runc checkpoint", "the log is " + daemons[0].logDir()}},
			"runc killed": {hookKillsRunc, []string{"dump: runc checkpoint", "exit status 137"}},
		} {
			t.Run(stage+" "+name, func(t *testing.T) {
				d := onGPUs(t)
				ctx := d.testContext(t)
				h, withHook := newHook(t)
				s := d.toy("-n", "2")
				s.opts = append(s.opts, withHook)
				p := d.patient(ctx, t, s, 2)
				h.at(t, stage, tc.commands)
				expectError(t, p.checkpoint(ctx), tc.says...)
				h.at(t, "", "")
				p.expectRecovered(ctx)
			})
		}
	}
}

// The time is up when CRIU has begun, has all processes in its hands, or has
// written everything. It is let come to its end, within the grace, and what it
// has written is thrown away; one that does not end is killed then. Meanwhile the
// state is answered, and a container that is killed ends at once. All at the same
// time, since each has to wait for its time.
func TestFaultsDumpLate(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	waiting, late := map[string]toBeHeld{}, map[string]held{}
	for name, stage := range map[string]string{
		"begun": "pre-dump", "in its hands": "network-lock", "written": "post-dump",
		"killed": "network-lock", "hangs": "network-lock",
	} {
		waiting[name] = d.toBeHeld(ctx, t, stage, annotated("io.hetgpu.checkpoint.timeout", "5s"))
	}
	for name, h := range waiting {
		late[name] = h.start(ctx, func(p *patient) error { return p.checkpointDirectly(ctx, false) })
	}
	for _, h := range late {
		h.waitLetGo(ctx)
		start := time.Now()
		h.expectStatus(ctx, containerd.Running)
		if took := time.Since(start); took > stateTime {
			t.Errorf("the state took %s", took)
		}
		if _, err := h.task.Delete(ctx); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("what runs is deleted: %v", err)
		}
		expectError(t, h.checkpointDirectly(ctx, false), "checkpoint is under way")
	}
	killed := late["killed"]
	if err := killed.task.Kill(ctx, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	expectError(t, killed.result(ctx), "dump", "the container is being ended")
	killed.expectKilled(ctx)
	for name, h := range late {
		if name != "killed" && name != "hangs" {
			h.release()
			err := h.result(ctx)
			expectError(t, err, "dump", "time-out of 5s")
			if strings.Contains(err.Error(), "killed") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	expectError(t, late["hangs"].result(ctx), "dump", "time-out of 5s", "CRIU was killed when it had not ended 10s later", "the log is "+d.logDir())
	delete(late, "killed")
	for _, h := range late {
		h.expectUnharmed(ctx)
	}
	for _, h := range late {
		h.checkpoints(ctx)
	}
	d.expectNothingLeft(t)
}

// A time-out can fall on any moment of a dump, also on one in which CRIU must
// not be killed, since it has just put its own code into a process.
func TestFaultsTimeoutAtAnyMoment(t *testing.T) {
	d := onGPUs(t)
	failed := 0
	for ms := 20; ms <= 200; ms += 20 {
		ctx := d.testContext(t)
		s := d.toy("-n", "2")
		s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", fmt.Sprintf("%dms", ms)))
		p := d.patient(ctx, t, s, 2)
		if err := p.checkpointDirectly(ctx, false); err == nil {
			p.startOver()
		} else {
			failed++
			expectError(t, err, fmt.Sprintf("time-out of %dms", ms))
		}
		p.expectUnharmed(ctx)
		p.stop(ctx)
		p.remove()
	}
	if failed == 0 {
		t.Error("no time-out was short enough")
	}
	d.expectNothingLeft(t)
}
