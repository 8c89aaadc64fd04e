// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// nerdctlTicks returns the last tick in a container's log. The test fails if
// the toy found anything wrong, or if a tick is missing.
func (d *daemon) nerdctlTicks(ctx context.Context, t *testing.T, id string) int {
	t.Helper()
	last := 0
	for _, line := range slices.Collect(strings.Lines(d.nerdctl(ctx, t, "logs", id))) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		_, tick, err := parseTick(line)
		if err != nil || tick != last+1 {
			t.Fatalf("after tick %d the log has %q", last, line)
		}
		last = tick
	}
	return last
}

func (d *daemon) waitNerdctlTick(ctx context.Context, t *testing.T, id string, tick int) {
	t.Helper()
	err := testbed.Eventually(ctx, "the toy goes on", func() error {
		if d.nerdctlTicks(ctx, t, id) < tick {
			return errNotYet
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The same through the real nerdctl: saved with its GPU state, stopped, and
// started again where it was.
func TestGPUNerdctlCheckpoint(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	args := []string{
		"run", "--detach", "--net", "none", "--pull", "never", "--runtime", *runtimeName,
		"--annotation", "io.hetgpu.checkpoint.exit=true",
		"--volume", d.programs + ":" + inContainer + ":ro", "--volume", d.gpu.Dir + ":" + d.gpu.Dir,
		"--env", "HETGPU_STANDIN=" + d.gpu.Dir,
	}
	for _, name := range []string{"nvidiactl", "nvidia0"} {
		node, err := filepath.EvalSymlinks(filepath.Join(d.gpu.DevDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--device", node+":/dev/"+name)
	}
	id := strings.TrimSpace(d.nerdctl(ctx, t, append(args, d.image.Name(), inContainer+"/toy", "-i", "20")...))
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if _, err := d.Nerdctl(ctx, "rm", "--force", id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	})
	d.waitNerdctlTick(ctx, t, id, 3)
	d.nerdctl(ctx, t, "checkpoint", "create", id, "gpu")
	d.waitNerdctlStopped(ctx, t, id)
	d.expectUsed(t, usual.GPUs[0], 0)
	if m := readManifest(t, filepath.Join(d.Dir, "nerdctl", "checkpoints", "gpu")); len(m.Processes) != 1 {
		t.Errorf("the manifest has processes %v", m.Processes)
	}
	last := d.nerdctlTicks(ctx, t, id)
	d.collectGarbage(ctx, t)
	d.nerdctl(ctx, t, "start", "--checkpoint", "gpu", id)
	// No tick is missing or twice in the log, which is one over both lives.
	d.waitNerdctlTick(ctx, t, id, last+3)
	d.expectUsed(t, usual.GPUs[0], mib)
	d.nerdctl(ctx, t, "checkpoint", "rm", id, "gpu")
	d.nerdctl(ctx, t, "rm", "--force", id)
	d.expectNothingLeft(t)
}
