// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package runc runs the OCI runtime for what the stock task service can't be
// asked to do: a checkpoint that holds none of its locks, with a CRIU
// configuration of its own, a log that is kept and errors that say why.
//
// It must not know of GPUs, manifests or containerd's API. It holds no lock.
package runc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// versionTimeout bounds a question that takes milliseconds.
const versionTimeout = 5 * time.Second

// Container is one container of the OCI runtime.
type Container struct {
	// ID and Bundle are containerd's.
	ID, Bundle string
	// Namespace is containerd's; the runtime's own state is below it.
	Namespace string
	// Binary is the runtime's program, "" for runc.
	Binary string
	// Root is the directory of the runtime's state, with the namespace.
	Root string
	// SystemdCgroup says that systemd makes the cgroups.
	SystemdCgroup bool
	// CRIU is the absolute path of the CRIU program that is to be used.
	CRIU string
	// LogDir is where the logs of failures are kept.
	LogDir string
}

// Dump is a request for a checkpoint of the CPU side.
type Dump struct {
	// Dir takes the images.
	Dir string
	// WorkDir takes CRIU's log; a user may have named it, to keep it. If it
	// is "", a directory in the bundle is used, and removed.
	WorkDir string
	// Parent is an earlier snapshot, relative to Dir, that this one adds to.
	Parent string
	// Exit lets CRIU end the processes.
	Exit            bool
	EmptyNamespaces []string
	TCPEstablished  bool
	UnixSockets     bool
	Terminal        bool
	FileLocks       bool
	// Config is what CRIU is told beside that.
	Config CRIUConfig
}

// Error is a failure of the runtime or of CRIU.
type Error struct {
	// Step is what was tried ("runc checkpoint").
	Step string
	// Message is what the runtime itself said.
	Message string
	// CRIU are CRIU's own error lines.
	CRIU []string
	// Log is where the log was kept, "" if there is none.
	Log string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", e.Step, e.Err)
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if len(e.CRIU) > 0 {
		fmt.Fprintf(&b, "; CRIU says: %s", strings.Join(e.CRIU, " / "))
	}
	if e.Log != "" {
		fmt.Fprintf(&b, "; the log is %s", e.Log)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Checkpoint dumps the container. On error the processes are as CRIU left
// them: it lets them go on after a failure. No process of runc or CRIU is left.
func (c *Container) Checkpoint(ctx context.Context, d Dump) error {
	work := d.WorkDir
	if work == "" {
		work = filepath.Join(c.Bundle, "work", "hetgpu-dump")
		defer os.RemoveAll(work)
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return fmt.Errorf("make CRIU's work directory: %w", err)
	}
	if err := d.Config.Write(filepath.Join(c.Bundle, CRIUConfigName)); err != nil {
		return err
	}
	args := []string{"checkpoint", "--image-path", d.Dir, "--work-path", work}
	if d.Parent != "" {
		args = append(args, "--parent-path", d.Parent)
	}
	for _, flag := range []struct {
		on   bool
		name string
	}{
		{!d.Exit, "--leave-running"},
		{d.TCPEstablished, "--tcp-established"},
		{d.UnixSockets, "--ext-unix-sk"},
		{d.Terminal, "--shell-job"},
		{d.FileLocks, "--file-locks"},
	} {
		if flag.on {
			args = append(args, flag.name)
		}
	}
	for _, ns := range d.EmptyNamespaces {
		args = append(args, "--empty-ns", ns)
	}
	if err := c.run(ctx, "runc checkpoint", append(args, c.ID)...); err != nil {
		return c.explain(ctx, err, filepath.Join(work, "dump.log"), "dump")
	}
	return nil
}

// ExplainRestore adds to the error of a restore, which the stock task service
// ran, what CRIU's log in work says, and keeps the log. It also ends what a
// killed runc left.
func (c *Container) ExplainRestore(ctx context.Context, err error, work string) error {
	c.killOrphans(ctx)
	return c.explain(ctx, &Error{Step: "runc restore", Err: err}, filepath.Join(work, "restore.log"), "restore")
}

// run runs one command of the runtime.
func (c *Container) run(ctx context.Context, step string, args ...string) error {
	global := []string{"--root", c.Root}
	if c.SystemdCgroup {
		global = append(global, "--systemd-cgroup")
	}
	var out bytes.Buffer
	cmd := execx.Command(ctx, c.binary(), append(global, args...)...)
	cmd.Env = c.env()
	cmd.Stdout, cmd.Stderr = &out, &out
	// The images that it makes CRIU write have the memory of the programs.
	err := execx.RunPrivately(ctx, cmd)
	if err == nil {
		return nil
	}
	// CRIU may have left runc's process group.
	c.killOrphans(ctx)
	return &Error{Step: step, Err: err, Message: message(out.String())}
}

// message takes from what the runtime printed its errors, in logrus's text form
// or any other. It also prints CRIU's log as warnings, which we quote better.
func message(out string) string {
	var errs []string
	for line := range strings.Lines(out) {
		switch text := logrusError.FindStringSubmatch(line); {
		case text == nil && !logrusLine.MatchString(line):
			errs = append(errs, line)
		case text != nil:
			msg, err := strconv.Unquote(text[1])
			if err != nil {
				msg = text[1]
			}
			errs = append(errs, msg+"\n")
		}
	}
	return execx.LastLines(strings.Join(errs, ""), 4)
}

var (
	logrusLine  = lazyregexp.New(`\blevel=[a-z]+ msg=`)
	logrusError = lazyregexp.New(`\blevel=(?:error|fatal) msg=("(?:[^"\\]|\\.)*"|\S+)`)
)

// Delete removes what runc knows of the container, alive or not.
func (c *Container) Delete(ctx context.Context) error {
	return c.run(ctx, "runc delete", "delete", "--force", c.ID)
}

// Version returns the runtime's name and version as it prints them.
func (c *Container) Version(ctx context.Context) (string, error) {
	out, err := execx.Output(ctx, versionTimeout, c.binary(), "--version")
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", c.binary(), err)
	}
	first, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(first), nil
}

func (c *Container) binary() string {
	if c.Binary == "" {
		return "runc"
	}
	return c.Binary
}

// Path is the value of PATH with which the runtime finds the CRIU program that
// was chosen: it looks for "criu".
func (c *Container) Path() string {
	path := os.Getenv("PATH")
	if c.CRIU != "" {
		path = filepath.Dir(c.CRIU) + string(filepath.ListSeparator) + path
	}
	return path
}

// env is the runtime's environment. NOTIFY_SOCKET is systemd's, and would make
// it wait for a daemon's answer.
func (c *Container) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") })
	return append(env, "PATH="+c.Path())
}

// explain adds CRIU's words to err and keeps its log.
func (c *Container) explain(ctx context.Context, err error, logFile, what string) error {
	e := (*Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	f, openErr := os.Open(logFile)
	if openErr != nil {
		// CRIU was not reached; the runtime's own message says why.
		return err
	}
	defer f.Close()
	e.CRIU = CRIUErrors(f)
	kept, keepErr := KeepLog(c.LogDir, c.Namespace+"-"+c.ID+"-"+what, logFile)
	if keepErr != nil {
		log.G(ctx).WithError(keepErr).WithField(logfields.Path, logFile).Warn("CRIU's log could not be kept")
	}
	e.Log = kept
	if strings.Contains(e.Message, "errno 56") {
		e.Message += " (errno 56 without a log: CRIU did not understand a line of its configuration file; look at the one that " +
			"the annotation org.criu.config or " + DefaultCRIUConfig + " names)"
	}
	return err
}

// killOrphans ends CRIU processes whose runc was killed: as a subreaper, the
// shim is their parent then, and while runc lives it never is. A question to
// CRIU (its version, a check) is the shim's child too, and is left alone, and so
// is a program of that name in a container.
func (c *Container) killOrphans(ctx context.Context) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return
	}
	for _, name := range tasks {
		children, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for child := range strings.FieldsSeq(string(children)) {
			pid, err := strconv.Atoi(child)
			if err != nil || !isWorker("/proc", child, c.CRIU) {
				continue
			}
			log.G(ctx).WithField(logfields.PID, pid).Warn("ending a CRIU process whose runc was killed")
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				log.G(ctx).WithError(err).WithField(logfields.PID, pid).Error("it could not be ended")
			}
		}
	}
}

// isWorker tells whether the process is the CRIU program at work for a runc:
// `criu swrk FD`, or "criu: dump --rpc ..." as it calls itself later (CRIU 4.2,
// cr-service.c).
func isWorker(proc, pid, criu string) bool {
	if criu == "" {
		return false
	}
	program, err := os.Stat(criu)
	if err != nil {
		return false
	}
	exe, err := os.Stat(filepath.Join(proc, pid, "exe"))
	if err != nil || !os.SameFile(program, exe) {
		return false
	}
	line, err := os.ReadFile(filepath.Join(proc, pid, "cmdline"))
	if err != nil {
		return false
	}
	words := strings.ReplaceAll(string(line), "\x00", " ")
	return strings.Contains(words, " swrk ") || strings.Contains(words, "--rpc")
}
