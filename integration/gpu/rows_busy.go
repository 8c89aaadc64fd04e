// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
)

const (
	// busyMiB is the device memory in rows that do something while the driver
	// copies it: long enough to be met.
	busyMiB = 2048
	// stillFor is how long a GPU has to stand still to count as stopped. The
	// program queues 100 ms of work ahead.
	stillFor = 300 * time.Millisecond
	// maxState is how long State may take while a checkpoint runs.
	maxState = 100 * time.Millisecond
)

// slowDriver makes the stand-in take as long as a driver does.
func (t *test) slowDriver() error {
	if t.gpu.machine == nil {
		return nil
	}
	t.cleanup(func(context.Context) error { return t.gpu.machine.SetFaults() })
	return t.gpu.machine.SetFaults("checkpoint delay=1000")
}

// pause looks at a word in the program's memory to which the GPU adds, from
// outside, since the program itself stands still.
func pause(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-k")
	if err != nil {
		return "", err
	}
	b := beats{pid: int(l.Task.Pid())}
	if _, err := fmt.Sscanf(l.Out.Lines()[0], "beat %x", &b.address); err != nil {
		return "", fmt.Errorf("the program says %q", l.Out.Lines()[0])
	}
	queued, err := b.frozenOnly(ctx, t.gpu.machine == nil)
	if err != nil {
		return "", err
	}
	nsctx := t.d.Context(ctx)
	start := time.Now()
	if err := l.Task.Pause(nsctx); err != nil {
		return "", err
	}
	took := time.Since(start)
	during, err := b.during(ctx, stillFor)
	if err != nil {
		return "", err
	}
	if during != 0 {
		return "", fmt.Errorf("the GPU did %d pieces of work while the container was paused", during)
	}
	if status, err := l.Task.Status(nsctx); err != nil || status.Status != containerd.Paused {
		return "", fmt.Errorf("the status of a paused container is %q (%w)", status.Status, err)
	}
	if err := l.Task.Resume(nsctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("paused in %s; then no work in %v (frozen alone, the GPU did %d more pieces)", seconds(took), stillFor, queued), l.more(ctx, warmup)
}

// beats counts the work of a GPU.
type beats struct {
	pid     int
	address int64
}

func (b beats) count() (uint32, error) {
	mem, err := os.Open(filepath.Join("/proc", strconv.Itoa(b.pid), "mem"))
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	var word [4]byte
	_, err = mem.ReadAt(word[:], b.address)
	return binary.LittleEndian.Uint32(word[:]), err
}

// during returns how much the GPU does in a while.
func (b beats) during(ctx context.Context, d time.Duration) (uint32, error) {
	before, err := b.count()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	after, err := b.count()
	return after - before, err
}

// frozenOnly proves that the count shows what a pause has to prevent: the
// processes are frozen and the GPU goes on with what is queued.
func (b beats) frozenOnly(ctx context.Context, mustGoOn bool) (uint32, error) {
	group, err := cgroup.Of(b.pid)
	if err != nil {
		return 0, err
	}
	if err := group.Freeze(ctx); err != nil {
		return 0, errors.Join(err, group.Thaw(context.WithoutCancel(ctx)))
	}
	n, err := b.during(ctx, stillFor)
	if err := errors.Join(err, group.Thaw(context.WithoutCancel(ctx))); err != nil {
		return 0, err
	}
	if n == 0 && mustGoOn {
		return 0, errors.New("the GPU stood still although only the processes were frozen: this row can't tell a pause from none")
	}
	return n, nil
}

// stateDuring asks for the state all the time while a checkpoint runs.
func stateDuring(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(busyMiB))
	if err != nil {
		return "", err
	}
	if err := t.slowDriver(); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	dir := t.directory("snapshot")
	go func() {
		_, err := l.Checkpoint(ctx, dir, false)
		done <- err
	}()
	var worst time.Duration
	asked, tick := 0, time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return "", err
			}
			if asked < 10 || worst > maxState {
				return "", fmt.Errorf("the slowest of %d answers took %v, and %v is the limit", asked, worst, maxState)
			}
			return fmt.Sprintf("%d answers, the slowest after %.1f ms", asked, worst.Seconds()*1000), l.more(ctx, warmup)
		case <-tick.C:
		}
		start := time.Now()
		if _, err := l.Task.Status(t.d.Context(ctx)); err != nil {
			return "", errors.Join(err, <-done)
		}
		worst = max(worst, time.Since(start))
		asked++
	}
}

// helperKilled kills the device helper of the container's shim while the driver
// copies the device memory.
func helperKilled(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(busyMiB))
	if err != nil {
		return "", err
	}
	helper, err := t.helperOf(l.ID)
	if err != nil {
		return "", err
	}
	if err := t.slowDriver(); err != nil {
		return "", err
	}
	dir := t.directory("snapshot")
	done := make(chan error, 1)
	offset := t.logSize()
	go func() {
		_, err := l.Checkpoint(ctx, dir, false)
		done <- err
	}()
	if err := t.waitForLog(ctx, offset, "phase=gpu-lock"); err != nil {
		return "", errors.Join(err, <-done)
	}
	if err := unix.Kill(helper, unix.SIGKILL); err != nil {
		return "", errors.Join(fmt.Errorf("kill the helper: %w", err), <-done)
	}
	killed := time.Now()
	failure := <-done
	if failure == nil {
		return "", errors.New("the checkpoint succeeded without its helper")
	}
	undone := time.Since(killed)
	if err := errors.Join(l.more(ctx, warmup), leftNothing(dir)); err != nil {
		return "", fmt.Errorf("after the failure (%w): %w", failure, err)
	}
	if t.gpu.machine != nil {
		if err := t.gpu.machine.SetFaults(); err != nil {
			return "", err
		}
	}
	if _, err := l.Checkpoint(ctx, dir, false); err != nil {
		return "", fmt.Errorf("the next checkpoint: %w", err)
	}
	return fmt.Sprintf("undone %s after the kill (%v)", seconds(undone), failure), l.more(ctx, warmup)
}

// shimGone waits until the shim that served a container has ended, so that its
// end is no part of what is timed next.
func (t *test) shimGone(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return testbed.Eventually(ctx, "the shim of "+id+" has ended", func() error {
		procs, err := t.d.Processes()
		if pid := shimIn(procs, id); err == nil && pid != 0 {
			err = fmt.Errorf("process %d is there", pid)
		}
		return err
	})
}

// shimIn finds the shim of a container, 0 if there is none.
func shimIn(procs []testbed.Process, id string) int {
	for _, p := range procs {
		if strings.Contains(p.Command, "containerd-shim") && strings.Contains(p.Command+" ", " -id "+id+" ") {
			return p.PID
		}
	}
	return 0
}

// helperOf finds the helper that the shim of a container started.
func (t *test) helperOf(id string) (int, error) {
	procs, err := t.d.Processes()
	if err != nil {
		return 0, err
	}
	shim := strconv.Itoa(shimIn(procs, id))
	for _, p := range procs {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "status"))
		if err == nil && strings.Contains(p.Command, "hetgpu-gpu") && strings.Contains(string(status), "PPid:\t"+shim+"\n") {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("the shim of %s (process %s) has no helper", id, shim)
}

func (s *suite) logSize() int64 {
	st, err := os.Stat(s.d.LogPath())
	if err != nil {
		return 0
	}
	return st.Size()
}

// logSince returns what containerd and the shims logged.
func (s *suite) logSince(offset int64) ([]byte, error) {
	log, err := os.Open(s.d.LogPath())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return io.ReadAll(io.NewSectionReader(log, offset, math.MaxInt64-offset))
}

func (s *suite) waitForLog(ctx context.Context, offset int64, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return testbed.Eventually(ctx, strconv.Quote(text)+" is in containerd's log", func() error {
		data, err := s.logSince(offset)
		if err == nil && !bytes.Contains(data, []byte(text)) {
			err = errors.New("it is not")
		}
		return err
	})
}
