// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

const (
	// maxLaunch is how much longer a launch may take (issue 3).
	maxLaunch = 50.0 // ns
	// launchRounds is how often it is measured with each engine, in turns.
	launchRounds = 3
	// minPhase and minTurns are how fast managed memory has to be beside the
	// driver's own (issue 3).
	minPhase, minTurns = 0.95, 0.7
	// crashLines are what a program that crashes says of it, and its last calls.
	crashLines = 20
	// nvccArch is what the suite's CUDA programs are compiled for.
	nvccArch = "-arch=sm_90"
)

// expected are the lines of conform that may differ: what libhetcuda says of managed
// memory, which is its own (docs/engines.md).
var expected = []string{
	"attribute 89:", // CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
}

// driverAPI compares the driver API over libhetcuda with the driver's own.
func driverAPI(ctx context.Context, t *test) (string, error) {
	return t.conforms(ctx, []string{"/gpu/conform"}, nil)
}

// runtimeAPI does the same with the runtime, linked in both ways.
func runtimeAPI(ctx context.Context, t *test) (string, error) {
	for _, kind := range []string{"static", "shared"} {
		libraries, err := t.nvcc(ctx, "conform.cu", "conform-"+kind, "-std=c++17", nvccArch, "-cudart", kind, "-lcuda")
		if err != nil {
			return "", err
		}
		detail, err := t.conforms(ctx, []string{"/gpu/conform-" + kind}, libraries)
		if err != nil {
			return "", fmt.Errorf("%s runtime: %w", kind, err)
		}
		t.note("%s runtime: %s", kind, detail)
	}
	return "", nil
}

// conforms runs a program with and without libhetcuda, which has to print the same.
func (t *test) conforms(ctx context.Context, args, libraries []string) (string, error) {
	plain, err := t.output(ctx, engineDriver, args, libraries)
	if err != nil {
		return "", fmt.Errorf("without libhetcuda: %w", err)
	}
	ours, err := t.output(ctx, t.engine, args, libraries)
	if err != nil {
		return "", fmt.Errorf("with libhetcuda: %w", err)
	}
	same, known, different := differences(plain, ours)
	if len(different) > 0 && t.gpu.machine != nil {
		return fmt.Sprintf("%d lines are the same; where the stand-in is no driver: %s", same, strings.Join(different, "; ")), nil
	}
	if len(different) > 0 {
		return "", fmt.Errorf("%d lines differ: %s", len(different), strings.Join(different, "; "))
	}
	return fmt.Sprintf("%d lines are the same, %d differ as they should", same, len(known)), nil
}

// differences compares two outputs, line by line.
func differences(want, got []string) (same int, known, different []string) {
	for i := range max(len(want), len(got)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		line := fmt.Sprintf("%q, and with libhetcuda %q", a, b)
		switch {
		case a == b:
			same++
		case slices.ContainsFunc(expected, func(prefix string) bool { return strings.HasPrefix(a, prefix) && strings.HasPrefix(b, prefix) }):
			known = append(known, line)
		default:
			different = append(different, line)
		}
	}
	return same, known, different
}

// output runs a program to its end with an engine, in a container that is gone then.
func (t *test) output(ctx context.Context, engine string, args, libraries []string) (lines []string, err error) {
	one := &test{suite: t.suite, engine: engine}
	defer func() {
		for _, cleanup := range slices.Backward(one.cleanups) {
			err = errors.Join(err, cleanup(context.WithoutCancel(ctx)))
		}
	}()
	c, err := one.program(ctx, args, libraries)
	if err != nil {
		return nil, err
	}
	if err := waitForLine(ctx, c, "done"); err != nil {
		return nil, fmt.Errorf("%w; it wrote %s", err, strings.Join(tail(c.Out.Lines(), crashLines), "; "))
	}
	return c.Out.Lines(), nil
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// program starts one of the compiled programs, with directories of libraries besides.
func (t *test) program(ctx context.Context, args, libraries []string) (*rig.Container, error) {
	c, err := t.newProgram(ctx, args, libraries)
	if err != nil {
		return nil, err
	}
	return c, errors.Join(c.NewTask(ctx, ""), c.Start(ctx))
}

func (t *test) newProgram(ctx context.Context, args, libraries []string) (*rig.Container, error) {
	opts, err := t.container(0)
	if err != nil {
		return nil, err
	}
	// What every container of the suite has already.
	mounts := []specs.Mount{{Destination: "/usr"}, {Destination: "/lib"}, {Destination: "/lib64"}, {Destination: t.gpu.libraries}}
	have := len(mounts)
	for _, dir := range libraries {
		if mounts, err = addMount(mounts, dir, dir); err != nil {
			return nil, err
		}
	}
	opts = append(opts, oci.WithAnnotations(t.annotations()), oci.WithMounts(mounts[have:]))
	if len(libraries) > 0 {
		opts = append(opts, oci.WithEnv([]string{"LD_LIBRARY_PATH=" + strings.Join(append([]string{t.gpu.libraries}, libraries...), ":")}))
	}
	c, err := rig.New(ctx, t.d, rig.Spec{ID: t.id("program"), Runtime: runtimeName, Image: t.image, Args: args, Opts: opts})
	if err == nil {
		t.cleanup(c.Remove)
	}
	return c, err
}

// nvcc compiles a program of testdata, and returns where the runtime's libraries are.
func (t *test) nvcc(ctx context.Context, source, name string, args ...string) (libraries []string, err error) {
	if t.gpu.machine != nil {
		return nil, skipError("this is about a GPU")
	}
	program, err := exec.LookPath("nvcc")
	if err != nil {
		program = "/usr/local/cuda/bin/nvcc"
		if _, err := os.Stat(program); err != nil {
			return nil, skipError("there is no nvcc")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	args = append([]string{"-O2", "-o", filepath.Join(t.programs, name), filepath.Join(t.programs, source)}, args...)
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	root := filepath.Dir(filepath.Dir(resolved(program)))
	for _, dir := range []string{"lib64", "lib", "targets/x86_64-linux/lib"} {
		if found, err := filepath.Glob(filepath.Join(root, dir, "libcudart.so*")); err == nil && len(found) > 0 {
			libraries = append(libraries, resolved(filepath.Join(root, dir)))
		}
	}
	return slices.Compact(libraries), nil
}

// launchCost compares what a launch costs with and without libhetcuda, in turns.
func launchCost(ctx context.Context, t *test) (string, error) {
	took := map[string][]float64{}
	for range launchRounds {
		for _, engine := range []string{engineDriver, t.engine} {
			lines, err := t.output(ctx, engine, []string{"/gpu/conform", "-l"}, nil)
			if err != nil {
				return "", err
			}
			var ns float64
			if _, err := fmt.Sscanf(lines[0], "launch_ns %f", &ns); err != nil {
				return "", fmt.Errorf("the program says %q", lines[0])
			}
			took[engine] = append(took[engine], ns)
		}
	}
	more := rig.Median(took[t.engine]) - rig.Median(took[engineDriver])
	return fmt.Sprintf("%s ns, without libhetcuda %s ns: %+.1f ns, at most %.0f: %s", spreadOf(took[t.engine]), spreadOf(took[engineDriver]), more, maxLaunch,
		verdict(more <= maxLaunch)), nil
}

// uvmLine is a line of uvm, with the figures that are compared.
type uvmLine struct {
	Row  string  `json:"row"`
	OK   bool    `json:"ok"`
	What string  `json:"what"`
	Why  string  `json:"why"`
	GPU  float64 `json:"gpu_gbs"`
	Turn float64 `json:"turn_s"`
}

// uvmRows are all rows of uvm but the one that asks for more managed memory than the
// GPU has room for, which the driver's own may hang at.
var uvmRows = []string{"turns", "prefetch", "partial", "faults", "gpu", "gpu_first", "launch", "threads", "copies", "calls", "host", "graph"}

// managedPrograms runs the rows of uvm, which check every word of managed memory from
// both sides, over the driver's managed memory and over libhetcuda's; then, over
// libhetcuda's, one that oversubscribes the GPU, and one that is saved and restored
// while CPU and GPU use the memory in turn.
func managedPrograms(ctx context.Context, t *test) (string, error) {
	libraries, err := t.nvcc(ctx, "uvm.cu", "uvm", "-O3", nvccArch, "-lcuda")
	if err != nil {
		return "", err
	}
	args := []string{"/gpu/uvm", "-L", "-s", "1024"}
	for _, row := range uvmRows {
		args = append(args, "-r", row)
	}
	figures := map[string]map[string]uvmLine{}
	for _, engine := range []string{engineDriver, t.engine} {
		if figures[engine], err = t.uvm(ctx, engine, args, libraries); err != nil {
			return "", fmt.Errorf("engine %s: %w", engine, err)
		}
	}
	driver, ours := figures[engineDriver], figures[t.engine]
	phase, turns := ours["gpu"].GPU/driver["gpu"].GPU, driver["turns"].Turn/ours["turns"].Turn
	t.note("GPU alone %.1f GB/s, the driver's own %.1f: %.2f, at least %.2f: %s", ours["gpu"].GPU, driver["gpu"].GPU, phase, minPhase, verdict(phase >= minPhase))
	t.note("CPU and GPU in turn %.3f s, the driver's own %.3f s: %.2f, at least %.2f: %s", ours["turns"].Turn, driver["turns"].Turn, turns, minTurns, verdict(turns >= minTurns))
	t.note("prefetched %.3f s, the driver's own %.3f s", ours["prefetch"].Turn, driver["prefetch"].Turn)
	over, err := t.uvm(ctx, t.engine, []string{"/gpu/uvm", "-L", "-s", "256", "-r", "over"}, libraries)
	if err != nil {
		return "", fmt.Errorf("twice the room: %w", err)
	}
	t.note("twice the room, every word checked from both sides: %.1f GB/s", over["over"].GPU)
	return t.managedRestored(ctx, []string{"/gpu/uvm", "-L", "-s", "256", "-r", "none"}, libraries)
}

// uvm runs uvm until it has come to its loop, and returns its lines.
func (t *test) uvm(ctx context.Context, engine string, args, libraries []string) (map[string]uvmLine, error) {
	one := &test{suite: t.suite, engine: engine}
	c, err := one.program(ctx, args, libraries)
	if err == nil {
		if err = waitForLine(ctx, c, `{"row": "loop"`); err != nil {
			err = fmt.Errorf("%w; it wrote %s", err, strings.Join(tail(c.Out.Lines(), 2), "; "))
		}
	}
	for _, cleanup := range slices.Backward(one.cleanups) {
		err = errors.Join(err, cleanup(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return nil, err
	}
	all := map[string]uvmLine{}
	for _, line := range c.Out.Lines() {
		u, err := parseUVM(line)
		if err != nil {
			return nil, err
		}
		all[u.Row] = u
	}
	return all, nil
}

func parseUVM(line string) (uvmLine, error) {
	var u uvmLine
	if err := json.Unmarshal([]byte(line), &u); err != nil || !u.OK {
		return u, fmt.Errorf("uvm says %s (%w)", line, err)
	}
	return u, nil
}

// managedVariables saves a program with managed variables, with the runtime in it and
// with the shared one: it goes on, is saved again and ended, and restored.
func managedVariables(ctx context.Context, t *test) (string, error) {
	var details []string
	for _, kind := range []string{"static", "shared"} {
		libraries, err := t.nvcc(ctx, "variables.cu", "variables-"+kind, "-std=c++17", nvccArch, "-cudart", kind)
		if err != nil {
			return "", err
		}
		args := []string{"/gpu/variables-" + kind}
		c, err := t.program(ctx, args, libraries)
		if err != nil {
			return "", err
		}
		if err := turnsOf(ctx, c, 3); err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		first, err := c.Checkpoint(ctx, t.directory("beside-"+kind), false)
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		if err := turnsOf(ctx, c, len(c.Out.Lines())+3); err != nil {
			return "", fmt.Errorf("%s, after it was saved: %w", kind, err)
		}
		dir := t.directory("variables-" + kind)
		saved, err := c.Checkpoint(ctx, dir, true)
		if err != nil {
			return "", fmt.Errorf("%s, again: %w", kind, err)
		}
		if _, err := c.WaitExit(ctx); err != nil {
			return "", err
		}
		again, err := t.newProgram(ctx, args, libraries)
		if err != nil {
			return "", err
		}
		took, err := again.Restore(ctx, dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		if err := turnsOf(ctx, again, 5); err != nil {
			return "", fmt.Errorf("%s, restored: %w", kind, err)
		}
		details = append(details, fmt.Sprintf("%s runtime: going on %s, ended %s", kind, seconds(first.Total()), times(saved, took)))
	}
	return strings.Join(details, "; "), nil
}

// managedRestored saves uvm in its loop, ends it, and restores it: every turn checks
// every word.
func (t *test) managedRestored(ctx context.Context, args, libraries []string) (string, error) {
	c, err := t.program(ctx, args, libraries)
	if err != nil {
		return "", err
	}
	if err := turnsOf(ctx, c, 3); err != nil {
		return "", err
	}
	dir := t.directory("managed")
	saved, err := c.Checkpoint(ctx, dir, true)
	if err != nil {
		return "", err
	}
	if _, err := c.WaitExit(ctx); err != nil {
		return "", err
	}
	again, err := t.newProgram(ctx, args, libraries)
	if err != nil {
		return "", err
	}
	took, err := again.Restore(ctx, dir)
	if err != nil {
		return "", err
	}
	return "saved in turns and restored: " + times(saved, took), turnsOf(ctx, again, 3)
}

// turnsOf waits for turns of uvm, and for each to be right.
func turnsOf(ctx context.Context, c *rig.Container, n int) error {
	return c.Wait(ctx, "turns", func(lines []string) (bool, error) {
		turns := 0
		for _, line := range lines {
			u, err := parseUVM(line)
			if err != nil {
				return false, err
			}
			if u.Row == "loop" {
				turns++
			}
		}
		return turns >= n, nil
	})
}
