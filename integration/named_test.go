// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/checkpoint"
)

// named is a counter that is restored from a snapshot that it names.
func named(snapshot string) spec {
	s := counting("-m", "8", "-f", "/data")
	s.opts = append(s.opts, oci.WithAnnotations(map[string]string{"io.hetgpu.restore": snapshot}))
	return s
}

// A container names what `hetgpu checkpoint` made, and is restored from it, any
// client having started it: twice, beside the original, with its files.
func TestNamedSnapshot(t *testing.T) {
	skipOnStock(t, "it knows no annotation")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d.configure(t, fmt.Sprintf("restore.dirs = [%q]", dir))
		c := d.run(ctx, t, counting("-m", "8", "-f", "/data"))
		c.stdout.waitMore(ctx, t, 3)
		if status, out := c.execOutput(t, d, "sh", "-c", "rm /etc/group; echo text >/made"); status != 0 {
			t.Fatal(out)
		}
		after := c.stdout.last(t)
		hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", filepath.Join(dir, "one"))
		for range 2 {
			r := d.run(ctx, t, named("one"))
			expectWentOn(t, r.stdout.waitMore(ctx, t, 3), after)
			expectOwnCgroup(t, d, r)
			if status, out := r.execOutput(t, d, "sh", "-c", "cat /made; ls /etc"); status != 0 || out != "text\npasswd\n" {
				t.Errorf("exit status %d, and it sees %q", status, out)
			}
			r.stop(ctx)
			r.remove()
		}
		// The same name with another user.
		s := named("one")
		s.opts = append(s.opts, oci.WithUserID(7))
		other := d.createContainer(ctx, t, s)
		if task, err := other.tryCreateTask(ctx, s); err == nil || !strings.Contains(err.Error(), "the user is 7, and was 0") {
			t.Errorf("%v, %v", task, err)
		}
		other.remove()
		c.stop(ctx)
		c.remove()
		if _, err := os.Stat(filepath.Join(dir, "one", "hetgpu.json")); err != nil {
			t.Errorf("the snapshot: %v", err)
		}
		d.expectNothingLeft(t)
	})
}
