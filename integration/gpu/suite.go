// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	runtimeName = "io.hetgpu.v2"
	// rowTimeout bounds a row that names no other, and usualTime is what it takes.
	rowTimeout, usualTime = 90 * time.Second, 6 * time.Second
	// largestRowMiB is the most device memory that a row saves.
	largestRowMiB = 60 << 10
	// logTail is how much of containerd's log is kept.
	logTail = 4 << 20
)

// suite is one run.
type suite struct {
	config
	deadline time.Time
	run      Run

	gpu   *gpuHost
	d     *testbed.Daemon
	image containerd.Image
	ck    *checkpointer
	// programs has the compiled test programs, ram is a tmpfs, and scratch is for
	// what programs in containers write.
	programs, ram, scratch string
	lastID                 int
}

// row is one line of the report.
type row struct {
	name string
	// what it proves, for the report.
	what string
	// takes is how long it takes on an H200, if that is more than a few seconds,
	// and timeout how long it may take.
	takes, timeout time.Duration
	// engines are those that it is about; all of them if there are none.
	engines []string
	test    func(ctx context.Context, t *test) (detail string, err error)
}

// test is a row under way. What it defers is done when the row has ended,
// whatever became of it, last first.
type test struct {
	*suite
	// engine is the one that the containers ask for.
	engine   string
	cleanups []func(context.Context) error
	// notes are what the row has found out so far: it is in the report whatever
	// becomes of the rest.
	notes []string
}

// note keeps a finding.
func (t *test) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// errTimeUp ends a row that the run has no more time for.
var errTimeUp = errors.New("the run's time was up")

// usual is how long a row takes.
func (r row) usual() time.Duration { return cmp.Or(r.takes, usualTime) }

// limit is how long a row may take.
func (r row) limit() time.Duration { return cmp.Or(r.timeout, rowTimeout) }

// within is how long it may take of the time that the run has left, and what ends
// it then.
func (r row) within(left time.Duration) (time.Duration, error) {
	if left < r.limit() {
		return left, errTimeUp
	}
	return r.limit(), fmt.Errorf("the row took longer than %s", r.limit())
}

// outcome is what became of a row, which found out something and ended with an error.
func outcome(found string, err error) (Result, string) {
	if err == nil {
		return Passed, found
	}
	detail := err.Error()
	if found != "" {
		detail = found + "; then: " + detail
	}
	var skip skipError
	switch {
	case errors.Is(err, errLeft):
		return Failed, detail
	case errors.As(err, &skip):
		return Skipped, detail
	case errors.Is(err, errTimeUp):
		return Cut, detail
	}
	return Failed, detail
}

func (t *test) cleanup(f func(context.Context) error) { t.cleanups = append(t.cleanups, f) }

// errLeft means that a row could not take back what it had made. However else it
// ended, it has failed.
var errLeft = errors.New("clean up")

// skipError is why a row could not be run here.
type skipError string

func (e skipError) Error() string { return string(e) }

func (s *suite) setup(ctx context.Context) (err error) {
	s.run.begin(s.standIn != "")
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	path, err := s.programPath()
	if err != nil {
		return err
	}
	if s.work == "" {
		s.work = onRealDisk(os.TempDir(), "/var/tmp")
	}
	if s.work, err = os.MkdirTemp(s.work, "hgpu"); err != nil {
		return err
	}
	s.ram, s.programs, s.disk = filepath.Join(s.work, "ram"), filepath.Join(s.work, "programs"), filepath.Join(s.work, "disk")
	s.scratch = filepath.Join(s.work, "scratch")
	for _, dir := range []string{s.ram, s.programs, s.disk, s.scratch} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// Not a share of the memory: there are machines whose memory grows with its
	// use, and begins small.
	size := fmt.Sprintf("size=%dm", 8<<10+max(2*largest(s.series), largestRowMiB))
	if err := unix.Mount("hetgpu", s.ram, "tmpfs", 0, size); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	if s.gpu, err = s.findGPU(ctx, path); err != nil {
		return err
	}
	if err := s.compile(ctx); err != nil {
		return err
	}
	if err := s.startDaemon(ctx, path); err != nil {
		return err
	}
	if s.ck, err = s.startCheckpointer(ctx); err != nil {
		return err
	}
	s.run.Host = s.describeHost(ctx)
	return s.save()
}

// onRealDisk returns the first directory that is not in memory, else the first.
func onRealDisk(dirs ...string) string {
	for _, dir := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Type != unix.TMPFS_MAGIC {
			return dir
		}
	}
	return dirs[0]
}

func (s *suite) startDaemon(ctx context.Context, path []string) error {
	if err := s.configure(""); err != nil {
		return err
	}
	var err error
	if s.d, err = testbed.Start(ctx, testbed.Config{Path: path, Env: append(s.gpu.hostEnv, "HETGPU_CONFIG="+s.configFile())}); err != nil {
		return err
	}
	busybox, err := s.d.Lookup("busybox")
	if err != nil {
		return err
	}
	s.image, err = s.d.Import(ctx, testbed.Image{Name: testbed.ImageName, Busybox: busybox})
	return err
}

// close ends what setup began.
func (s *suite) close(ctx context.Context) error {
	var errs []error
	if s.ck != nil {
		s.ck.stop()
	}
	if s.d != nil {
		errs = append(errs, s.keepLog(s.d.LogPath(), "containerd.log"), s.d.Stop(ctx))
	}
	if s.work != "" && s.ram != "" {
		errs = append(errs, unix.Unmount(s.ram, unix.MNT_DETACH), os.RemoveAll(s.work))
	}
	return errors.Join(errs...)
}

// keepLog copies the end of a log to a file beside the report.
func (s *suite) keepLog(file, name string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if st, err := in.Stat(); err == nil && st.Size() > logTail {
		if _, err := in.Seek(-logTail, io.SeekEnd); err != nil {
			return err
		}
	}
	out, err := os.OpenFile(filepath.Join(s.out, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (r row) runsWith(engine string) bool {
	if len(r.engines) == 0 {
		return engine == engineDriver || engine == engineSplit
	}
	return slices.Contains(r.engines, engine)
}

// row runs one row with one engine and writes the report.
func (s *suite) row(ctx context.Context, r row, engine string) {
	result := Row{Name: r.name, Engine: engine, What: r.what}
	start := time.Now()
	var err error
	if left := time.Until(s.deadline); left < r.usual() {
		err = skipError(fmt.Sprintf("it takes about %s, and the run had %s left", r.usual(), max(left, 0).Round(time.Second)))
	} else {
		result.Detail, err = s.attempt(ctx, r, engine)
	}
	result.Seconds = time.Since(start).Seconds()
	result.Result, result.Detail = outcome(result.Detail, err)
	s.run.Rows = append(s.run.Rows, result)
	s.say("%s (%s): %s (%.1f s) %s", r.name, engine, result.Result, result.Seconds, result.Detail)
	if err := s.save(); err != nil {
		s.say("write the report: %v", err)
	}
}

// attempt runs a test and what it has to clean up. It returns what the test found
// out also if it fails, and errTimeUp if it could not end in the run's time.
func (s *suite) attempt(ctx context.Context, r row, engine string) (detail string, err error) {
	t := &test{suite: s, engine: engine}
	limit, cause := r.within(time.Until(s.deadline))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		for _, cleanup := range slices.Backward(t.cleanups) {
			if cleanErr := cleanup(context.WithoutCancel(ctx)); cleanErr != nil {
				err = errors.Join(err, fmt.Errorf("%w: %w", errLeft, cleanErr))
			}
		}
		if detail != "" {
			t.notes = append(t.notes, detail)
		}
		detail = strings.Join(t.notes, "; ")
	}()
	rowCtx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	detail, err = r.test(rowCtx, t)
	if err != nil && !errors.Is(err, errTimeUp) && errors.Is(context.Cause(rowCtx), errTimeUp) {
		// What failed then failed for that.
		err = fmt.Errorf("%w: %w", errTimeUp, err)
	}
	return detail, err
}

func (s *suite) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(s.run.Started).Seconds(), fmt.Sprintf(format, args...))
}

func (s *suite) save() error { return Report{Runs: []Run{s.run}}.Write(s.out) }

// id returns a new identifier for a container.
func (s *suite) id(what string) string {
	s.lastID++
	return fmt.Sprintf("%s-%d", what, s.lastID)
}

// directory returns a new directory in memory, which a cleanup removes.
func (t *test) directory(what string) string {
	dir := filepath.Join(t.ram, t.id(what))
	t.cleanup(func(context.Context) error { return os.RemoveAll(dir) })
	return dir
}
