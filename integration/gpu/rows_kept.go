// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// keptMiB is the device memory of what is kept where it is.
	keptMiB = 30 << 10
	// maxKept is how long its checkpoint and its restore may take together, in
	// seconds (issue 3).
	maxKept = 2.5
)

// savedKept is a checkpoint that left device memory where it was.
type savedKept struct {
	Bytes  uint64           `json:"kept_bytes"`
	Phases []snapshot.Phase `json:"phases"`
	took   time.Duration
}

// keep ends a container, whose device memory stays.
func (t *test) keep(ctx context.Context, c *rig.Container, dir string) (s savedKept, err error) {
	t.cleanup(func(ctx context.Context) error {
		_, _ = t.d.Exec(ctx, "hetgpu", "drop", dir) // it was restored, unless something failed
		return nil
	})
	start := time.Now()
	out, err := t.hetgpu(ctx, "checkpoint", c.ID, "--dir", dir, "--exit", "--keep-on-gpu", "--json")
	s.took = time.Since(start)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("%w in %q", err, out)
	}
	if _, err := c.WaitExit(ctx); err != nil {
		return s, err
	}
	if s.Bytes == 0 {
		return s, errors.New("nothing was kept")
	}
	if files, err := memoryFiles(dir); err == nil {
		return s, fmt.Errorf("%d bytes of device memory are in files", files)
	}
	return s, nil
}

// verdict compares with the target.
func (s savedKept) verdict(took rig.Restored) string {
	both := s.took + took.Create + took.Start
	verdict := "met"
	if both.Seconds() > maxKept {
		verdict = "missed"
	}
	return fmt.Sprintf("%.1f GiB kept; the command %s, restore %s, both %s, at most %.1f s: %s. Phases: %s",
		float64(s.Bytes)/(1<<30), seconds(s.took), seconds(took.Create+took.Start), seconds(both), maxKept, verdict,
		phaseList([]Sample{{CheckpointPhases: s.Phases}}, func(s Sample) phases { return s.CheckpointPhases }))
}

// keptOnGPU suspends and resumes a program, twice.
func keptOnGPU(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(keptMiB))
	if err != nil {
		return "", err
	}
	var details []string
	for i := range 2 {
		before, dir := l.last(), t.directory("kept"+strconv.Itoa(i))
		saved, err := t.keep(ctx, l.Container, dir)
		if err != nil {
			return "", err
		}
		again, took, err := t.restored(ctx, l, dir, 0)
		if err != nil {
			return "", err
		}
		if err := again.wentOn(before, false); err != nil {
			return "", err
		}
		if _, err := t.hetgpu(ctx, "restore", "--id", t.id("second"), dir); err == nil {
			return "", errors.New("it was restored twice")
		}
		l = again
		details = append(details, saved.verdict(took))
	}
	return strings.Join(details, "; again: "), l.more(ctx, warmup)
}

// keptTraining trains twice side by side, and suspends and resumes one of them.
func keptTraining(ctx context.Context, t *test) (string, error) {
	p, err := t.withTorch(ctx)
	if err != nil {
		return "", err
	}
	args := []string{p.Executable, "/gpu/train.py", strconv.Itoa(frameworkSteps), strconv.Itoa(keptMiB)}
	whole, err := t.train(ctx, p, args)
	if err != nil {
		return "", err
	}
	cut, err := t.train(ctx, p, args)
	if err != nil {
		return "", err
	}
	if err := waitForLine(ctx, cut, fmt.Sprintf("step %d ", cutAfter)); err != nil {
		return "", err
	}
	dir := t.directory("kept")
	saved, err := t.keep(ctx, cut, dir)
	if err != nil {
		return "", err
	}
	first := cut.Out.Lines()
	rest, err := t.newTraining(ctx, p, args)
	if err != nil {
		return "", err
	}
	took, err := rest.Restore(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, c := range []*rig.Container{rest, whole} {
		if err := waitForLine(ctx, c, "done"); err != nil {
			return "", err
		}
	}
	got, want := slices.Concat(first, rest.Out.Lines()), whole.Out.Lines()
	if !slices.Equal(got, want) {
		return "", fmt.Errorf("the lines differ:\nrestored after %d of them: %s\nuninterrupted: %s", len(first), strings.Join(got, "; "), strings.Join(want, "; "))
	}
	return fmt.Sprintf("%d steps equal to the last bit; %s", len(want)-1, saved.verdict(took)), nil
}
