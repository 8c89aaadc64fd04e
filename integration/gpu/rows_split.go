// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	frameworkSteps = 30
	// cutAfter is the step after which a framework's program is saved.
	cutAfter = 6
	// maxZeros is how much of half-empty memory may be written (issue 3).
	maxZeros = 0.51
	// slab is what libhetcuda cuts small allocations from.
	slab = 2 << 20
	// maxStop is how long a container may stand still, in seconds (issue 3).
	maxStop = 1.2
	// speedRounds is how often each engine's speed is measured, in turns.
	speedRounds = 3
	// maxSlower is how much slower a training step may be (issue 3).
	maxSlower = 1.005
)

// framework saves a program of testdata, ends and restores it.
func framework(program ...string) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		p, err := t.withTorch(ctx)
		if err != nil {
			return "", err
		}
		args := slices.Concat([]string{p.Executable}, program, []string{strconv.Itoa(frameworkSteps)})
		return t.cut(ctx, p, args, 1, cutAfter, 0)
	}
}

// withTorch is Python, where it has PyTorch and there is a GPU.
func (t *test) withTorch(ctx context.Context) (*python, error) {
	if t.gpu.machine != nil {
		return nil, skipError("this is about a GPU")
	}
	p, err := findPython(ctx)
	if err == nil && !p.Torch {
		err = skipError("python3 has no torch")
	}
	return p, err
}

// halfZeros saves memory of which one half is empty.
func halfZeros(ctx context.Context, t *test) (string, error) {
	mib := t.memory(busyMiB)
	l, err := t.start(ctx, 1, "-z", "-b", mib)
	if err != nil {
		return "", err
	}
	dir := t.directory("snapshot")
	if _, err := l.Checkpoint(ctx, dir, false); err != nil {
		return "", err
	}
	full, err := strconv.ParseInt(mib, 10, 64)
	if err != nil {
		return "", err
	}
	bytes := 2 * full << 20
	written, err := memoryFiles(dir)
	if err != nil {
		return "", err
	}
	// What the program's small allocations are cut from is no part of it.
	share := float64(written-slab) / float64(bytes)
	detail := fmt.Sprintf("%d MiB of device memory, half of it zero: %d MiB written, %.1f%%; at most %.0f%%", bytes>>20, written>>20, 100*share, 100*maxZeros)
	if share > maxZeros {
		return "", errors.New(detail)
	}
	return detail, l.more(ctx, warmup)
}

// stopped is what "hetgpu checkpoint --json" says.
type stopped struct {
	Engine string           `json:"engine"`
	Stop   float64          `json:"stop_seconds"`
	Bytes  int64            `json:"bytes"`
	Phases []snapshot.Phase `json:"phases"`
}

// shortStop saves a container by "hetgpu checkpoint" again and again, which lets it
// go on as soon as its state is captured, and restores the last snapshot by "hetgpu
// restore" beside it.
func shortStop(mib int) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		mib := mib
		if t.gpu.machine != nil {
			mib /= 16 // its GPU is one thread
		}
		l, err := t.start(ctx, 1, "-i", "0", "-b", t.memory(mib))
		if err != nil {
			return "", err
		}
		var stops, gaps, usual, totals []float64
		var samples []Sample
		var before map[int]uint64
		dir, engine := t.directory("snapshot"), ""
		note := func() {
			if len(stops) > 0 {
				t.note("%s MiB, engine %s, %d times: stopped for %s s by the shim's account, at most %.1f: %s; longest gap between two outputs %s s (a tick takes %.2f s); the command %s s. Phases: %s",
					t.memory(mib), engine, len(stops), spreadOf(stops), maxStop, verdict(rig.Median(stops) <= maxStop), spreadOf(gaps), rig.Median(usual), spreadOf(totals),
					phaseList(samples, func(s Sample) phases { return s.CheckpointPhases }))
			}
		}
		for range t.repetitions() {
			if err := os.RemoveAll(dir); err != nil {
				return "", err
			}
			warm(ctx, mib+mib/5)
			before = l.last()
			one, seen, took, err := t.stop(ctx, l, dir)
			if err != nil {
				note()
				return "", err
			}
			stops, gaps, usual, totals = append(stops, one.Stop), append(gaps, seen.longest), append(usual, seen.usual), append(totals, took.Seconds())
			samples, engine = append(samples, Sample{CheckpointPhases: one.Phases}), one.Engine
		}
		note()
		id := t.id("short")
		t.cleanup(func(ctx context.Context) error { return t.removeContainer(ctx, id) })
		start := time.Now()
		if _, err := t.hetgpu(ctx, "restore", "--id", id, dir); err != nil {
			return "", err
		}
		restored := time.Since(start)
		copied, err := t.attach(ctx, id, l)
		if err != nil {
			return "", err
		}
		return "restore " + seconds(restored), errors.Join(copied.more(ctx, warmup), copied.wentOn(before, false))
	}
}

// repetitions is how often what is to be measured five times is done (issue 3).
func (t *test) repetitions() int {
	if t.gpu.machine != nil {
		return 2
	}
	return 5
}

// stop runs one "hetgpu checkpoint", while it watches what the program writes.
func (t *test) stop(ctx context.Context, l *load, dir string) (one stopped, seen gaps, took time.Duration, err error) {
	gap := t.longestGap(ctx, l)
	start := time.Now()
	out, err := t.hetgpu(ctx, "checkpoint", l.ID, "--dir", dir, "--json")
	took = time.Since(start)
	if err == nil {
		err = l.more(ctx, warmup)
	}
	seen = gap()
	if err != nil {
		return one, seen, took, err
	}
	if err := json.Unmarshal([]byte(out), &one); err != nil {
		return one, seen, took, fmt.Errorf("%w in %q", err, out)
	}
	return one, seen, took, nil
}

// hetgpu runs our command against the suite's containerd.
func (t *test) hetgpu(ctx context.Context, args ...string) (string, error) {
	return t.d.Exec(ctx, "hetgpu", append(args, "--address", t.d.Address(), "--namespace", t.d.Namespace)...)
}

// gaps are between the lines of a program, in seconds.
type gaps struct{ longest, usual float64 }

// longestGap watches the output of a program until the returned function is
// called.
func (t *test) longestGap(ctx context.Context, l *load) func() gaps {
	ctx, cancel := context.WithCancel(ctx)
	times := make(chan []float64, 1)
	go func() {
		var all []float64
		last, n := time.Now(), len(l.Out.Lines())
		// It ends with the context, and says nothing of why.
		_ = l.Out.Wait(ctx, "the end of the watch", func(lines []string) (bool, error) {
			if len(lines) > n {
				all = append(all, time.Since(last).Seconds())
				last, n = time.Now(), len(lines)
			}
			return false, nil
		})
		times <- all
	}()
	return func() gaps {
		cancel()
		all := <-times
		if len(all) == 0 {
			return gaps{}
		}
		return gaps{longest: slices.Max(all), usual: rig.Median(all)}
	}
}

// memoryFiles is the size of a snapshot's files of device memory.
func memoryFiles(dir string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "hetgpu-mem*.img"))
	if err == nil && len(files) == 0 {
		err = errors.New("the snapshot has no files of device memory")
	}
	return sizes(files), err
}

// speed compares how fast PyTorch is with each engine, in turns.
func speed(ctx context.Context, t *test) (string, error) {
	p, err := t.withTorch(ctx)
	if err != nil {
		return "", err
	}
	steps, gemms := map[string][]float64{}, map[string][]float64{}
	for range speedRounds {
		for _, engine := range []string{engineDriver, engineSplit} {
			one := &test{suite: t.suite, engine: engine}
			step, gemm, err := one.speed(ctx, p)
			for _, cleanup := range one.cleanups {
				err = errors.Join(err, cleanup(ctx))
			}
			if err != nil {
				return "", err
			}
			steps[engine], gemms[engine] = append(steps[engine], step), append(gemms[engine], gemm)
		}
	}
	plain, ours := rig.Median(steps[engineDriver]), rig.Median(steps[engineSplit])
	return fmt.Sprintf("training step %.4f ms, without libhetcuda %.4f ms: %.4f times, at most %.3f: %s; bf16 product %.1f and %.1f TFLOP/s (medians of %d)",
		ours, plain, ours/plain, maxSlower, verdict(ours <= maxSlower*plain), rig.Median(gemms[engineSplit]), rig.Median(gemms[engineDriver]), speedRounds), nil
}

func (t *test) speed(ctx context.Context, p *python) (step, gemm float64, err error) {
	c, err := t.train(ctx, p, []string{p.Executable, "/gpu/speed.py"})
	if err != nil {
		return 0, 0, err
	}
	if err := waitForLine(ctx, c, "done"); err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(c.Out.Lines()[0], "step_ms %f gemm_tflops %f", &step, &gemm)
	return step, gemm, err
}
