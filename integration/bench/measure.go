// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	// stepTimeout bounds each run and each round trip, which take a second.
	stepTimeout = time.Minute
	// quiet is how long a shim must have used no processor to count as idle.
	quiet = 500 * time.Millisecond
)

type bench struct {
	config
	*testbed.Daemon
	image  containerd.Image
	lastID int
}

// id returns a new identifier.
func (b *bench) id() string {
	b.lastID++
	return fmt.Sprintf("bench-%d", b.lastID)
}

// inTurns calls step n times for each shim; each round begins with the other
// one, so that neither is always the second.
func (b *bench) inTurns(ctx context.Context, n int, step func(ctx context.Context, runtime string) error) error {
	order := [2]string{ours, stock}
	for range n {
		for _, runtime := range order {
			ctx, cancel := context.WithTimeout(ctx, stepTimeout)
			err := step(ctx, runtime)
			cancel()
			if err != nil {
				return fmt.Errorf("%s: %w", runtime, err)
			}
		}
		order[0], order[1] = order[1], order[0]
	}
	return nil
}

func (b *bench) measure(ctx context.Context) (*report, error) {
	r := newReport()
	var err error
	if r.Host, err = describeHost(ctx, b.Daemon); err != nil {
		return nil, err
	}
	// Nothing that only the first one meets (page cache, overlay) is measured.
	if err := b.inTurns(ctx, 3, func(ctx context.Context, runtime string) error { return b.runOnce(ctx, runtime, discard) }); err != nil {
		return nil, err
	}
	if err := b.inTurns(ctx, b.runs, func(ctx context.Context, runtime string) error { return b.runOnce(ctx, runtime, r.Run.of(runtime)) }); err != nil {
		return nil, fmt.Errorf("time ctr run: %w", err)
	}
	if err := b.inTurns(ctx, b.shims, func(ctx context.Context, runtime string) error { return b.memory(ctx, runtime, r) }); err != nil {
		return nil, fmt.Errorf("memory of idle shims: %w", err)
	}
	if err := b.inTurns(ctx, b.roundTrips, func(ctx context.Context, runtime string) error { return b.roundTrip(ctx, runtime, r) }); err != nil {
		return nil, fmt.Errorf("checkpoint and restore: %w", err)
	}
	r.judge()
	return r, nil
}

func discard(float64) {}

// runOnce times "ctr run" of a program that ends at once.
func (b *bench) runOnce(ctx context.Context, runtime string, add func(float64)) error {
	start := time.Now()
	_, err := b.Ctr(ctx, "run", "--rm", "--runtime", runtime, "--snapshotter", b.Snapshotter, testbed.ImageName, b.id(), "/bin/true")
	add(time.Since(start).Seconds() * 1000)
	return err
}

// sleeper starts a container that does nothing.
func (b *bench) sleeper(ctx context.Context, runtime string) (*rig.Container, error) {
	return rig.Run(ctx, b.Daemon, rig.Spec{ID: b.id(), Runtime: runtime, Image: b.image, Args: []string{"sleep", "3600"}})
}

// memory reads what the shim of one sleeping container uses once it is idle.
func (b *bench) memory(ctx context.Context, runtime string, r *report) (err error) {
	c, err := b.sleeper(ctx, runtime)
	if c != nil {
		defer func() { err = errors.Join(err, c.Remove(ctx)) }()
	}
	if err != nil {
		return err
	}
	pid, err := b.shimOf(c.ID)
	if err != nil {
		return err
	}
	if err := waitIdle(ctx, pid); err != nil {
		return err
	}
	used, err := memoryOf(pid)
	if err != nil {
		return err
	}
	r.VMRSS.of(runtime)(used["VmRSS"])
	r.RSS.of(runtime)(used["Rss"])
	r.PSS.of(runtime)(used["Pss"])
	r.Private.of(runtime)(used["Private_Clean"] + used["Private_Dirty"])
	r.Anonymous.of(runtime)(used["Anonymous"])
	return nil
}

func (b *bench) shimOf(id string) (int, error) {
	procs, err := b.Processes()
	if err != nil {
		return 0, err
	}
	for _, p := range procs {
		if !p.Container && strings.Contains(p.Command, "containerd-shim") && strings.Contains(p.Command+" ", " -id "+id+" ") {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("no shim serves %s", id)
}

// waitIdle returns when a process has used no processor for a while.
func waitIdle(ctx context.Context, pid int) error {
	since, last := time.Now(), ""
	return testbed.Eventually(ctx, fmt.Sprintf("process %d is idle", pid), func() error {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "schedstat"))
		if err != nil {
			return testbed.Permanent(err)
		}
		if now, _, _ := strings.Cut(string(stat), " "); now != last {
			since, last = time.Now(), now
		}
		if time.Since(since) < quiet {
			return errors.New("it is at work")
		}
		return nil
	})
}

// memoryOf reads what the kernel says of a process's memory, in MiB.
func memoryOf(pid int) (map[string]float64, error) {
	used := map[string]float64{}
	for _, name := range []string{"status", "smaps_rollup"} {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(line, ":")
			if kib, ok := strings.CutSuffix(strings.TrimSpace(value), " kB"); ok {
				n, err := strconv.ParseFloat(kib, 64)
				if err != nil {
					return nil, fmt.Errorf("/proc/%d/%s says %q", pid, name, line)
				}
				used[key] = n / 1024
			}
		}
	}
	return used, nil
}

// roundTrip times a checkpoint that leaves the container running, one that
// ends it, and the restore, through containerd's API and without an archive.
func (b *bench) roundTrip(ctx context.Context, runtime string, r *report) (err error) {
	dir, err := os.MkdirTemp(b.Dir, "snapshot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := b.sleeper(ctx, runtime)
	if c != nil {
		defer func() { err = errors.Join(err, c.Remove(ctx)) }()
	}
	if err != nil {
		return err
	}
	saved, err := c.Checkpoint(ctx, filepath.Join(dir, "running"), false)
	if err != nil {
		return err
	}
	ended, err := c.Checkpoint(ctx, filepath.Join(dir, "exit"), true)
	if err != nil {
		return err
	}
	if _, err := c.WaitExit(ctx); err != nil {
		return err
	}
	if err := c.DeleteTask(ctx); err != nil {
		return err
	}
	restored, err := c.Restore(ctx, filepath.Join(dir, "exit"))
	if err != nil {
		return err
	}
	r.Checkpoint.of(runtime)(saved.Total().Seconds() * 1000)
	r.CheckpointExit.of(runtime)(ended.Total().Seconds() * 1000)
	r.Restore.of(runtime)((restored.Create + restored.Start).Seconds() * 1000)
	return nil
}
