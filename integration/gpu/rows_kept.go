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
	// keptApart is how many steps of a training are between two of them.
	keptApart = 5
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

// suspended are the times of several such checkpoints and restores.
type suspended struct {
	bytes                  uint64
	command, restore, both []float64
	samples                []Sample
}

func (all *suspended) add(s savedKept, took rig.Restored) {
	back := (took.Create + took.Start).Seconds()
	all.bytes = s.Bytes
	all.command, all.restore, all.both = append(all.command, s.took.Seconds()), append(all.restore, back), append(all.both, s.took.Seconds()+back)
	all.samples = append(all.samples, Sample{CheckpointPhases: s.Phases})
}

// String compares them with the target.
func (all *suspended) String() string {
	if len(all.both) == 0 {
		return "not once"
	}
	return fmt.Sprintf("%.1f GiB kept, %d times: the command %s s, restore %s s, both %s s, at most %.1f s: %s. Phases: %s",
		float64(all.bytes)/(1<<30), len(all.both), spreadOf(all.command), spreadOf(all.restore), spreadOf(all.both), maxKept,
		verdict(rig.Median(all.both) <= maxKept), phaseList(all.samples, func(s Sample) phases { return s.CheckpointPhases }))
}

// keptOnGPU suspends and resumes a program, again and again.
func keptOnGPU(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(keptMiB))
	if err != nil {
		return "", err
	}
	var all suspended
	for i := range t.repetitions() {
		again, took, saved, err := t.suspend(ctx, l, t.directory("kept"+strconv.Itoa(i)))
		if err != nil {
			t.note("%s", all.String())
			return "", err
		}
		l = again
		all.add(saved, took)
	}
	return all.String(), l.more(ctx, warmup)
}

// suspend ends a program with its memory kept, and restores it, once.
func (t *test) suspend(ctx context.Context, l *load, dir string) (again *load, took rig.Restored, saved savedKept, err error) {
	before := l.last()
	if saved, err = t.keep(ctx, l.Container, dir); err != nil {
		return nil, took, saved, err
	}
	if again, took, err = t.restored(ctx, l, dir, 0); err != nil {
		return nil, took, saved, err
	}
	if err := again.wentOn(before, false); err != nil {
		return nil, took, saved, err
	}
	if _, err := t.hetgpu(ctx, "restore", "--id", t.id("second"), dir); err == nil {
		return nil, took, saved, errors.New("it was restored twice")
	}
	return again, took, saved, nil
}

// keptTraining trains twice side by side, and suspends and resumes one of them,
// again and again.
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
	part, err := t.train(ctx, p, args)
	if err != nil {
		return "", err
	}
	var got []string
	var all suspended
	defer func() { t.note("%s", all.String()) }()
	for i := range t.repetitions() {
		if err := waitForLine(ctx, part, fmt.Sprintf("step %d ", (i+1)*keptApart)); err != nil {
			return "", err
		}
		dir := t.directory("kept" + strconv.Itoa(i))
		saved, err := t.keep(ctx, part, dir)
		if err != nil {
			return "", err
		}
		got = append(got, part.Out.Lines()...)
		if part, err = t.newTraining(ctx, p, args, 0); err != nil {
			return "", err
		}
		took, err := part.Restore(ctx, dir)
		if err != nil {
			return "", err
		}
		all.add(saved, took)
	}
	for _, c := range []*rig.Container{part, whole} {
		if err := waitForLine(ctx, c, "done"); err != nil {
			return "", err
		}
	}
	return sameSteps(slices.Concat(got, part.Out.Lines()), whole.Out.Lines())
}
