// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// expectListeners waits until so many processes of the container run libhetcuda.
func (c *container) expectListeners(ctx context.Context, t *testing.T, d *daemon, want int) {
	t.Helper()
	err := testbed.Eventually(ctx, fmt.Sprintf("%d processes run the library", want), func() error {
		_, out := c.execOutput(t, d, "sh", "-c", "ls /run/hetgpu/control | grep -c ^hetcuda.[0-9]")
		if got := strings.TrimSpace(out); got != fmt.Sprint(want) {
			return fmt.Errorf("%s do", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A process that enters by exec runs the library, in a restored container too.
// CRIU doesn't save it, so while it is there nothing is saved.
func TestGPUSplitExec(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy()
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	var dir string
	for range 2 {
		p, exit, out := c.exec(t, d, newID(t), "env", "HETGPU_STANDIN="+d.gpu.Dir, inContainer+"/toy", "-i", "10")
		out.waitFor(ctx, t, "tick 3 ")
		c.expectListeners(ctx, t, d, 2)
		expectError(t, c.checkpointTo(ctx, t.TempDir()+"/snapshot", false), "started in the container by exec")
		c.expectStates(ctx, 2, "running")
		c.ticksOn(ctx, 1)
		if err := p.Kill(ctx, 9); err != nil {
			t.Fatal(err)
		}
		waitExit(ctx, t, exit)
		if strings.Contains(out.String(), "error") {
			t.Errorf("the process of the exec says %q", out)
		}
		if _, err := p.Delete(ctx); err != nil {
			t.Error(err)
		}
		dir = c.mustCheckpoint(ctx, true)
		expectSplit(t, dir)
		c.waitExit(ctx)
		c.delete(ctx)
		c.remove()
		c = d.restore(ctx, t, s, dir)
		c.ticksOn(ctx, 1)
	}
	c.stop(ctx)
}

// What an exec leaves running in the background has the container's first process
// for a parent, and is saved with it.
func TestGPUSplitExecBackground(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.splitToy()
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	file := filepath.Join(d.gpu.Dir, "background")
	t.Cleanup(func() { _ = os.Remove(file) })
	start := fmt.Sprintf("HETGPU_STANDIN=%s %s/toy -i 10 -b 3000000 </dev/null >%s 2>&1 &", d.gpu.Dir, inContainer, file)
	if status, out := c.execOutput(t, d, "sh", "-c", start); status != 0 {
		t.Fatal(out)
	}
	last := 0
	goesOn := func() {
		t.Helper()
		before := last
		err := testbed.Eventually(ctx, "the process in the background goes on", func() error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			lines := strings.Split(string(text), "\n")
			for _, line := range lines[:len(lines)-1] {
				if _, last, err = parseTick(line + "\n"); err != nil {
					return err
				}
			}
			if last < before+3 {
				return fmt.Errorf("it was at tick %d and is at %d", before, last)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	goesOn()
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	if m := expectSplit(t, dir); m.Split() != 2 || m.Memory.Bytes < 3000000 {
		t.Errorf("%d processes are split, memory %+v", m.Split(), m.Memory)
	}
	r := d.restore(ctx, t, s, dir)
	goesOn()
	r.expectStates(ctx, 2, "running")
	r.ticksOn(ctx, 1)
	r.stop(ctx)
}
