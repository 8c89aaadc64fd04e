// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

const (
	frameworkSteps = 30
	// cutAfter is the step after which a framework's program is saved.
	cutAfter = 6
	// maxZeros is how much of half-empty memory may be written (issue 3).
	maxZeros = 0.51
	// slab is what libhetcuda cuts small allocations from.
	slab = 2 << 20
	// speedRounds is how often each engine's speed is measured, in turns.
	speedRounds = 3
	// maxSlower is how much slower a training step may be (issue 3).
	maxSlower = 1.005
)

// frameworks saves and restores a program of each.
func frameworks(ctx context.Context, t *test) (string, error) {
	p, err := t.withTorch(ctx)
	if err != nil {
		return "", err
	}
	var details []string
	var errs []error
	for _, name := range []string{"compiled", "graph", "generate", "cupy", "jax"} {
		detail, err := t.cut(ctx, p, []string{p.Executable, "/gpu/frameworks.py", name, strconv.Itoa(frameworkSteps)}, cutAfter)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		details = append(details, name+": "+detail)
	}
	return strings.Join(details, "; "), errors.Join(errs...)
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
	verdict := "met"
	if ours > maxSlower*plain {
		verdict = "missed"
	}
	return fmt.Sprintf("training step %.4f ms, without libhetcuda %.4f ms: %.4f times, at most %.3f: %s; bf16 product %.1f and %.1f TFLOP/s (medians of %d)",
		ours, plain, ours/plain, maxSlower, verdict, rig.Median(gemms[engineSplit]), rig.Median(gemms[engineDriver]), speedRounds), nil
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
