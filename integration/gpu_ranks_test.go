// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
)

// ranks is a container whose processes wait for one another in their kernels, on
// two GPUs, with the split engine.
func (d *daemon) ranks(n int, args ...string) spec {
	return spec{
		args: append([]string{inContainer + "/ranks", "-n", strconv.Itoa(n)}, args...),
		opts: []oci.SpecOpts{d.withProgram, d.withRealLibrary, d.withGPUs(0, 1), annotated("io.hetgpu.engine", "split")},
	}
}

// Ranks are stopped at the same point of what they do together, as often as one
// likes, and go on with the right sums; and again where they are restored.
func TestGPURanks(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks int
		args  []string
	}{
		"two":               {2, []string{"-i", "10"}},
		"four with proxies": {4, []string{"-i", "10", "-p", "-b", "-s", "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			s := d.ranks(tc.ranks, tc.args...)
			c := d.run(ctx, t, s)
			c.ticksOn(ctx, tc.ranks)
			var stops []float64
			for range 5 {
				dir := c.mustCheckpoint(ctx, false)
				m := expectSplit(t, dir)
				if m.Split() != tc.ranks {
					t.Errorf("%d processes are split", m.Split())
				}
				for _, p := range m.Phases {
					if p.Name == checkpoint.PhaseLock {
						stops = append(stops, p.Seconds)
					}
				}
				c.expectGoesOn(ctx, tc.ranks)
			}
			t.Logf("seconds until all were locked: %.3f", stops)
			before := c.ticksOn(ctx, tc.ranks)
			for range 2 {
				dir := c.mustCheckpoint(ctx, true)
				c.waitExit(ctx)
				c.delete(ctx)
				c.remove()
				c = d.restore(ctx, t, s, dir)
				c.expectGoesOn(ctx, tc.ranks)
				if first := c.firstTick(); first <= before[0] {
					t.Errorf("it went on at tick %d, and was saved after %d", first, before[0])
				}
			}
			c.stop(ctx)
			c.remove()
			d.expectNothingLeft(t)
			for _, gpu := range usual.GPUs {
				d.expectUsed(t, gpu, 0)
			}
		})
	}
}

// A rank that does not come, and one that has died, are no reason to wait for
// longer than the operation may take; the others are as they were.
func TestGPURanksThatDoNotCome(t *testing.T) {
	for name, kill := range map[string]bool{"blocked": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			s := d.ranks(3, "-d", "5")
			s.opts = append(slices.Clone(s.opts), annotated("io.hetgpu.checkpoint.timeout", "10s"))
			c := d.run(ctx, t, s)
			err := c.stdout.wait(ctx, "the last ticks", func(string) bool {
				now := c.ticks()
				return len(now) == 3 && now[0] == 5 && now[1] == 5 && now[2] == 5
			})
			if err != nil {
				t.Fatal(err)
			}
			left := c.gpuProcesses(ctx)
			if kill {
				if status, out := c.execOutput(t, d, "/bin/sh", "-c", "kill -9 $(grep -lx toy1 /proc/[0-9]*/comm | sed 's,/proc/,,; s,/comm,,')"); status != 0 {
					t.Fatal(out)
				}
				left = []int{left[0], left[2]}
			}
			start := time.Now()
			p := &patient{container: c, ranks: 3, dir: filepath.Join(t.TempDir(), "snapshot")}
			err = p.checkpointDirectly(ctx, false)
			expectError(t, err, "gpu-lock", "busy all the time")
			for _, pid := range []int{left[0], left[len(left)-1]} {
				expectError(t, err, fmt.Sprintf("the GPU of process %d was busy", pid))
			}
			if !kill && !strings.Contains(err.Error(), fmt.Sprintf("the GPU of process %d was at rest", left[1])) {
				t.Errorf("error is %v", err)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			c.expectStates(ctx, len(left), "running")
			c.stop(ctx)
		})
	}
}
