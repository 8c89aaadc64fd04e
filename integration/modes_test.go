// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nobody but root gets to what shims and device helpers have: their sockets, the
// bundles with the control directories, what lasts until the next boot, the logs of
// failures and the snapshots. (What is in a snapshot TestCheckpoint looks at.)
func TestModes(t *testing.T) {
	skipOnStock(t, "it has another socket, and nothing else of this")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, d.splitToy())
		c.ticksOn(ctx, 1)
		saved := c.mustCheckpoint(ctx, false)
		bundle := filepath.Join(d.Dir, "state", "io.containerd.runtime.v2.task", d.Namespace, c.id)
		var shim struct{ Address string }
		data, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
		if err == nil {
			err = json.Unmarshal(data, &shim)
		}
		if err != nil {
			t.Fatal(err)
		}
		for path, kind := range map[string]fs.FileMode{
			strings.TrimPrefix(shim.Address, "unix://"): fs.ModeSocket,
			bundle: fs.ModeDir, saved: fs.ModeDir, filepath.Join(d.hetgpu, "state"): fs.ModeDir,
		} {
			info, err := os.Lstat(path)
			if err != nil {
				t.Error(err)
				continue
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || st.Uid != 0 || info.Mode().Type() != kind || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s is %v, of user %d", path, info.Mode(), st.Uid)
			}
		}
		// The helper's are descriptors without a name.
		if found, err := filepath.Glob(filepath.Join(bundle, "*.sock")); err != nil || len(found) > 0 {
			t.Errorf("sockets %q, %v", found, err)
		}
		c.stop(ctx)
	})
}
