// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
)

// images is a directory of CRIU's.
type images struct{ criu, dir string }

func newImages(t *testing.T) images {
	t.Helper()
	tool, err := criu.Probe(t.Context(), "")
	if err != nil {
		t.Skipf("needs CRIU: %v", err)
	}
	return images{criu: tool.Path, dir: t.TempDir()}
}

// run runs CRIU and returns its log.
func (i images) run(t *testing.T, action string, args ...string) (log string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	// Toys are in the host's cgroups, often the root: CRIU would save the whole
	// tree below, and make the cgroups of other tests' containers again.
	args = append([]string{action, "--images-dir", i.dir, "--log-file", action + ".log", "--manage-cgroups=ignore"}, args...)
	out, err := exec.CommandContext(ctx, i.criu, args...).CombinedOutput()
	text, readErr := os.ReadFile(filepath.Join(i.dir, action+".log"))
	if readErr != nil {
		t.Fatalf("criu %s: %v, %v: %s", action, err, readErr, out)
	}
	return string(text), err
}

// dump dumps a toy, which ends.
func (i images) dump(t *testing.T, y *toy, args ...string) {
	t.Helper()
	if log, err := i.run(t, "dump", append(args, "--tree", strconv.Itoa(y.pid()))...); err != nil {
		t.Fatalf("criu dump: %v\n%s", err, log)
	}
	select {
	case err := <-y.ended: // CRIU has killed it
		if err == nil {
			t.Fatal("the toy ended by itself")
		}
	case <-time.After(timeout):
		t.Fatal("the toy is still there after its dump")
	}
}

func (i images) restore(t *testing.T, args ...string) {
	t.Helper()
	if log, err := i.run(t, "restore", append(args, "--restore-detached")...); err != nil {
		t.Fatalf("criu restore: %v\n%s", err, log)
	}
}

func TestCRIURefusesARunningProcess(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	i := newImages(t)
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 1)
	for _, steps := range []string{"", "l"} {
		if steps != "" {
			b.must(t, steps, y.pid())
		}
		log, err := i.run(t, "dump", "--tree", strconv.Itoa(y.pid()), "--file-locks")
		if err == nil || !strings.Contains(log, "Can't dump file") {
			t.Errorf("criu dump after %q: %v\n%s", steps, err, log)
		}
	}
	b.must(t, "u", y.pid())
	y.goesOn(t, 0)
}

func TestCheckpointDumpRestore(t *testing.T) {
	here, there := standin.H200s(1, 1), standin.H200s(1, 2)
	// Not with sanitizers: CRIU can't dump their shadow memory.
	b := newBench(t, "plain", here)
	i := newImages(t)
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 3)
	b.must(t, "lc", y.pid())
	i.dump(t, y)
	b.used(t, here.GPUs[0], 0)
	i.restore(t)

	// CRIU has brought back the process and nothing on the device.
	b.state(t, y.pid(), "checkpointed")
	b.used(t, here.GPUs[0], 0)
	b.refused(t, "CUDA_ERROR_ILLEGAL_STATE", "u", y.pid())
	y.rests(t, 0)

	if err := b.Set(there); err != nil {
		t.Fatal(err)
	}
	b.must(t, "-m", here.GPUs[0].UUID+"="+there.GPUs[0].UUID, "ru", y.pid())
	b.used(t, there.GPUs[0], mib)
	y.goesOn(t, 0)

	// Once more: what was restored can be checkpointed.
	b.must(t, "lcru", y.pid())
	y.goesOn(t, 0)
}

func TestCheckpointDumpRestoreOfRanks(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(2, 1))
	i := newImages(t)
	y := b.start(t, nil, "-n", "2", "-c", "-i", "20")
	pids := y.ranks(t, 2)
	b.must(t, "-t", 20, "ac", pids[0], pids[1])
	i.dump(t, y)
	for _, pid := range pids {
		gone(t, pid) // reaped, so that CRIU may use the number again
	}
	i.restore(t)
	b.must(t, "r", pids[0], pids[1])
	b.must(t, "u", pids[0], pids[1])
	y.goesOn(t, 0)
	y.goesOn(t, 1)
}

// Were CRIU to dump a process that has its state on the device (here the device
// files are ones that it can dump), that state would be gone.
func TestCRIUAloneLosesTheDevice(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	i := newImages(t)
	for _, node := range []string{"nvidiactl", "nvidia0"} {
		path := filepath.Join(b.DevDir(), node)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/null", path); err != nil {
			t.Fatal(err)
		}
	}
	// It finds out at its next tick, and ends: not before CRIU has let go of it.
	y := b.start(t, nil, "-i", "500")
	y.reaches(t, 0, 3)
	i.dump(t, y, "--file-locks")
	i.restore(t, "--file-locks")
	gone(t, y.pid())
	text, err := os.ReadFile(y.output)
	if err != nil || !strings.Contains(string(text), "CUDA_ERROR_CONTEXT_IS_DESTROYED") {
		t.Errorf("the toy ended with %v: %s", err, text)
	}
}

// gone waits until a process has ended and its number is free.
func gone(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := testbed.Eventually(ctx, fmt.Sprintf("process %d is gone", pid), func() error {
		// An orphan is this process's to reap (TestMain).
		var status syscall.WaitStatus
		_, waitErr := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill: %w; wait: %w", err, waitErr)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
