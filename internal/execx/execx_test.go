// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package execx_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
)

func TestOutput(t *testing.T) {
	out, err := execx.Output(t.Context(), time.Minute, "sh", "-c", "echo one; echo two >&2")
	if err != nil || out != "one\ntwo\n" {
		t.Fatalf("got %q, %v", out, err)
	}
	_, err = execx.Output(t.Context(), time.Minute, "sh", "-c", "echo why; exit 3")
	exit := (*execx.ExitError)(nil)
	if !errors.As(err, &exit) || exit.Status != 3 || !strings.Contains(err.Error(), "why") {
		t.Fatalf("got %v, want exit status 3 with the reason", err)
	}
	if _, err = execx.Output(t.Context(), time.Minute, "/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want a missing file", err)
	}
}

// A program that hangs ends with its context, and so does the child that it
// started.
func TestTimeoutKillsTheGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	_, err := execx.Output(t.Context(), 300*time.Millisecond, "sh", "-c", "sleep 1000 & echo $! > "+pidFile+"; wait")
	if err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Fatalf("got %v, want the time-out", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Fatalf("took %s", took)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pid, 0) == nil {
		if state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err != nil || strings.Contains(string(state), ") Z ") {
			break // dead; whoever adopted it has not collected it yet
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("process %d is still alive", pid)
		}
	}
}

func TestRunSaysTheCauseOfItsContext(t *testing.T) {
	why := errors.New("nobody wants it any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := execx.Run(ctx, execx.Command(ctx, "sleep", "1000")); !errors.Is(err, why) {
		t.Fatalf("got %v, want %v", err, why)
	}
}

// The umask is the program's alone.
func TestRunPrivately(t *testing.T) {
	dir := t.TempDir()
	for name, run := range map[string]func(context.Context, *exec.Cmd) error{"private": execx.RunPrivately, "other": execx.Run} {
		if err := run(t.Context(), execx.Command(t.Context(), "sh", "-c", `: >"$1"`, "sh", filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	own := syscall.Umask(0)
	syscall.Umask(own)
	for name, want := range map[string]os.FileMode{"private": 0o600, "other": 0o666 &^ os.FileMode(own)} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}
