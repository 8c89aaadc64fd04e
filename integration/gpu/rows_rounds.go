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
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

const (
	// roundCount is how often one program is ended and restored (issue 3), and
	// standInRounds the same where a rehearsal would take minutes for it.
	roundCount, standInRounds = 50, 5
	// changedPercent is how much of the memory changes between two checkpoints,
	// and maxChanged how much of the first one's bytes the second may have (issue 3).
	changedPercent, maxChanged = 5, 0.15
	// changedMiB is the device memory of that: 5% of it is much beside what CRIU
	// writes of a small process.
	changedMiB = 8 << 10
)

// fiftyRounds ends and restores one program again and again. At every tick it
// compares every word of its device memory, and prints a digest of it.
func fiftyRounds(ctx context.Context, t *test) (string, error) {
	rounds := roundCount
	if t.gpu.machine != nil {
		rounds = standInRounds
	}
	l, err := t.start(ctx, 1, "-d", "-i", "10", "-b", t.memory(rowMiB))
	if err != nil {
		return "", err
	}
	var saved, restored []float64
	done := func() string {
		if len(restored) == 0 {
			return "no round"
		}
		return fmt.Sprintf("%d of %d rounds of %s MiB, every word compared at each of %d ticks; checkpoint %s, restore %s (median, least, most)",
			len(restored), rounds, t.memory(rowMiB), len(l.book[0]), spreadOf(saved), spreadOf(restored))
	}
	for round := 1; round <= rounds; round++ {
		took, back, err := l.again(ctx, filepath.Join(t.ram, t.id("round")))
		if err != nil {
			t.note("%s", done())
			return "", fmt.Errorf("round %d: %w", round, err)
		}
		saved, restored = append(saved, took.Total().Seconds()), append(restored, (back.Create+back.Start).Seconds())
	}
	return done(), nil
}

// again ends a program by a checkpoint and restores it under the same ID. It goes
// on with the very next tick.
func (l *load) again(ctx context.Context, dir string) (saved rig.Saved, took rig.Restored, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if saved, err = l.Checkpoint(ctx, dir, true); err != nil {
		return saved, took, err
	}
	if _, err := l.WaitExit(ctx); err != nil {
		return saved, took, err
	}
	if err := errors.Join(l.DeleteTask(ctx), l.check()); err != nil {
		return saved, took, err
	}
	last := l.last()
	if took, err = l.Restore(ctx, dir); err != nil {
		return saved, took, err
	}
	return saved, took, errors.Join(l.more(ctx, 1), l.wentOn(last, true))
}

// secondCheckpoint saves a program twice, the second time on top of the first, and
// restores the second. A twentieth of its memory changes.
func secondCheckpoint(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-c", strconv.Itoa(changedPercent), "-b", t.memory(changedMiB))
	if err != nil {
		return "", err
	}
	first, second := t.directory("first"), t.directory("second")
	start := time.Now()
	if _, err := t.hetgpu(ctx, "checkpoint", l.ID, "--dir", first); err != nil {
		return "", err
	}
	whole := time.Since(start)
	if err := l.more(ctx, warmup); err != nil {
		return "", fmt.Errorf("the original after the first checkpoint: %w", err)
	}
	before := l.last()
	start = time.Now()
	if _, err := t.hetgpu(ctx, "checkpoint", l.ID, "--dir", second, "--parent", first); err != nil {
		return "", err
	}
	part := time.Since(start)
	if err := l.more(ctx, warmup); err != nil {
		return "", fmt.Errorf("the original after the second checkpoint: %w", err)
	}
	share := float64(sizeOf(second)) / float64(sizeOf(first))
	memory, _ := memoryFiles(second) // none is little, too
	t.note("%s MiB of device memory, %d%% of it changed: %d MiB written in %s, %d MiB of it device memory, and %d MiB in %s at first: %.1f%%, at most %.0f%%: %s",
		t.memory(changedMiB), changedPercent, sizeOf(second)>>20, seconds(part), memory>>20, sizeOf(first)>>20, seconds(whole), 100*share, 100*maxChanged, verdict(share <= maxChanged))
	id := t.id("second")
	t.cleanup(func(ctx context.Context) error { return t.removeContainer(ctx, id) })
	if _, err := t.hetgpu(ctx, "restore", "--id", id, second); err != nil {
		return "", err
	}
	copied, err := t.attach(ctx, id, l)
	if err != nil {
		return "", err
	}
	return "restored", errors.Join(copied.more(ctx, warmup), copied.wentOn(before, false))
}

// verdict is what became of a target.
func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}
