// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package gpuengine_test runs the driver engine, the real device helper and the
// stand-in for the driver on real processes, without containers.
package gpuengine_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// timeout bounds each step of a test.
const timeout = 20 * time.Second

// "make integration" passes it to every package; no shim runs in this one.
var _ = flag.String("runtime", "", "ignored")

// bin is where the stand-in and the helper are.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpuengine:", err)
		status = 1
	}
	os.Exit(status)
}

func build(m *testing.M) (status int, err error) {
	bin, err = os.MkdirTemp("", "gpuengine")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(bin)
	for _, args := range [][]string{
		{"make", "-s", "-j2", "-C", "../standin", "OUT=" + bin},
		{"go", "build", "-o", bin, "../../cmd/hetgpu-gpu"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return 1, fmt.Errorf("%v: %w\n%s", args, err, out)
		}
	}
	return m.Run(), nil
}

// bench is a machine, a helper and an engine.
type bench struct {
	*standin.Machine
	*nvidia.Engine
	helper *nvidia.Helper
}

func newBench(t *testing.T, spec standin.Spec, opts ...nvidia.Option) *bench {
	t.Helper()
	m, err := standin.New(t.TempDir(), spec)
	if err != nil {
		t.Fatal(err)
	}
	h := nvidia.NewHelper(nvidia.HelperConfig{Binary: filepath.Join(bin, "hetgpu-gpu"), Env: helperEnv(m)})
	h.Warm(t.Context())
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{Machine: m, Engine: nvidia.NewEngine(h, opts...), helper: h}
}

func helperEnv(m *standin.Machine) []string {
	return append(os.Environ(), m.HelperEnv(bin)...)
}

// toy is a running toy: a parent without CUDA and its ranks.
type toy struct {
	pid    int
	output string
	// pids are the parent and the ranks.
	pids []int
}

// start starts a toy of n > 1 ranks and waits until each has ticked.
func (b *bench) start(t *testing.T, n int, args ...string) *toy {
	t.Helper()
	return b.startProgram(t, "toy", n, append([]string{"-i", "5"}, args...)...)
}

// startProgram starts another program with ranks.
func (b *bench) startProgram(t *testing.T, program string, n int, args ...string) *toy {
	t.Helper()
	y := &toy{output: filepath.Join(t.TempDir(), "output")}
	out, err := os.OpenFile(y.output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(bin, program), append([]string{"-n", strconv.Itoa(n)}, args...)...)
	cmd.Env = append(os.Environ(), b.Env()...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                                      // with that signal
	})
	y.pid = cmd.Process.Pid
	for rank := range n {
		y.reaches(t, rank, 1)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", y.pid, y.pid))
	if err != nil {
		t.Fatal(err)
	}
	y.pids = []int{y.pid}
	for word := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		y.pids = append(y.pids, pid)
	}
	return y
}

// last is the last tick of a rank. A line that isn't the next tick of its rank
// (a wrong sum, a CUDA error) is an error.
func (y *toy) last(rank int) (int, error) {
	text, err := os.ReadFile(y.output)
	if err != nil {
		return 0, err
	}
	ticks := map[int]int{}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[:len(lines)-1] {
		var r, k int
		var sum string
		if _, err := fmt.Sscanf(line, "rank %d tick %d sum %s", &r, &k, &sum); err != nil || k != ticks[r]+1 {
			return 0, fmt.Errorf("after tick %d: %q", ticks[r], line)
		}
		ticks[r] = k
	}
	return ticks[rank], nil
}

func (y *toy) reaches(t *testing.T, rank, tick int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := testbed.Eventually(ctx, fmt.Sprintf("rank %d comes to tick %d", rank, tick), func() error {
		k, err := y.last(rank)
		switch {
		case err != nil:
			return testbed.Permanent(err)
		case k < tick:
			return fmt.Errorf("it is at tick %d", k)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goesOn waits until every rank has made three more ticks, each correct.
func (y *toy) goesOn(t *testing.T) {
	t.Helper()
	for rank := range len(y.pids) - 1 {
		k, err := y.last(rank)
		if err != nil {
			t.Fatal(err)
		}
		y.reaches(t, rank, k+3)
	}
}

// find asks the engine for the toy's processes; all ranks have to be running.
func (b *bench) find(t *testing.T, y *toy) []gpuplugin.Process {
	t.Helper()
	procs, err := b.Processes(t.Context(), y.pids)
	if err != nil {
		t.Fatal(err)
	}
	if len(procs) != len(y.pids)-1 {
		t.Fatalf("found %v among %v", procs, y.pids)
	}
	for i, p := range procs {
		if p.PID != y.pids[i+1] || p.State != gpuplugin.StateRunning {
			t.Fatalf("found %v among %v", procs, y.pids)
		}
	}
	return procs
}

// states asserts the state of every process, asked of the driver.
func (b *bench) states(t *testing.T, procs []gpuplugin.Process, want gpuplugin.State) {
	t.Helper()
	for _, p := range procs {
		got, err := b.helper.State(t.Context(), p.PID)
		if err != nil || got != want {
			t.Errorf("process %d is %q, %v; want %s", p.PID, got, err, want)
		}
	}
}

func (b *bench) faults(t *testing.T, rules ...string) {
	t.Helper()
	if err := b.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
}
