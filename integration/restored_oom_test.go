// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
)

// A restored container that runs out of memory tells of it, as any other does.
// The program takes the memory when a file appears, after the restore.
func TestRestoredOutOfMemory(t *testing.T) {
	needsMemoryController(t)
	skipOnStock(t, "it watches no restored container")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := t.TempDir()
		s := shell(`i=0; while [ ! -e /shared/go ]; do i=$((i+1)); echo $i; sleep 0.02; done; x=x; while :; do x=$x$x; done`)
		s.opts = []oci.SpecOpts{oci.WithMemoryLimit(32 << 20), withBind(dir, "/shared")}
		c, ref, _ := d.checkpointed(ctx, t, s)
		c.stop(ctx)
		c.remove()
		w := d.watch(ctx, c.id)
		r := d.ctrRestore(ctx, t, c.id, ref)
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if status := r.waitExit(ctx); status != 137 {
			t.Errorf("exited with %d, not 137", status)
		}
		w.until(ctx, t, "oom")
		r.remove()
		d.expectNothingLeftOfRestore(t)
	})
}
