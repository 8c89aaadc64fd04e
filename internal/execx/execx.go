// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package execx runs other programs so that none of them outlives its context,
// children included, and so that it works in a shim, where containerd's reaper
// collects every child that exits.
//
// It must not know what it runs. It holds no lock.
package execx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/go-runc"
)

// ExitError is the exit status of a program that ran and failed.
type ExitError struct {
	// Status is the exit status as a shell counts it: 128 plus the number of
	// the signal for a program that a signal ended.
	Status int
}

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// Command returns a command in a process group of its own. When ctx ends, the
// whole group is killed; when this process dies, the program is.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A grandchild may keep our pipe open after it left the group.
	cmd.WaitDelay = time.Second
	return cmd
}

// Run runs the command to its end. If ctx ended meanwhile, the error is its
// cause; else a failure is an [ExitError].
func Run(ctx context.Context, cmd *exec.Cmd) error {
	// The program gets its parent-death signal when the thread that started it
	// dies. Threads do end: containerd's reaper unlocks the one that it starts
	// on, and Go ends those whose goroutine ends while it is locked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Not StartLocked, which may start it on another thread.
	ec, err := runc.Monitor.Start(cmd)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	status, err := runc.Monitor.Wait(cmd, ec)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case status != 0:
		return &ExitError{Status: status}
	}
	return nil
}

// RunPrivately is Run for a program whose files nobody but their owner may read:
// it has the umask 077.
func RunPrivately(ctx context.Context, cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		// The umask is the thread's own, so the thread ends with the goroutine;
		// what it started has ended before.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_FS); err != nil {
			result <- fmt.Errorf("a thread with its own umask: %w", err)
			return
		}
		syscall.Umask(0o077)
		result <- Run(ctx, cmd)
	}()
	return <-result
}

// Output runs a program for at most the time-out and returns what it printed
// on both outputs. Its error has the last lines of that.
func Output(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	var out bytes.Buffer
	cmd := Command(ctx, name, args...)
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := Run(ctx, cmd)
	if exit := (*ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, LastLines(out.String(), 5))
	}
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// LastLines cuts a tool's output to its last lines, each to a length that fits
// into an error.
func LastLines(out string, lines int) string {
	all := strings.Split(strings.TrimSpace(out), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = strings.ToValidUTF8(strings.TrimSpace(line[:min(len(line), 300)]), "?")
	}
	return strings.Join(all, " / ")
}
