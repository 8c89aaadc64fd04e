// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of its own for a snapshot.
func smallDisk(t *testing.T, mebibytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mebibytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that is full: seen beforehand, while CRIU writes, and when only the
// manifest is missing.
func TestFaultsDiskFull(t *testing.T) {
	for name, tc := range map[string]struct {
		size int
		// stage is where somebody fills the disk up.
		stage string
		// exit says that the container is to end; it does not, without a snapshot.
		exit bool
		says []string
	}{
		"seen beforehand":           {8, "", false, []string{"preflight: no space for the snapshot", "8 MiB free"}},
		"during the dump":           {64, "network-lock", false, []string{"dump: runc checkpoint", "CRIU says", "the log is"}},
		"before the manifest":       {64, "post-dump", false, []string{"no space left on device"}},
		"during the dump, exit":     {64, "network-lock", true, []string{"dump: runc checkpoint", "CRIU says", "the log is"}},
		"before the manifest, exit": {64, "post-dump", true, []string{"no space left on device"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			disk := smallDisk(t, tc.size)
			h, withHook := newHook(t)
			s := d.toy("-n", "2")
			s.opts = append(s.opts, withHook)
			p := d.patient(ctx, t, s, 2)
			p.dir = filepath.Join(disk, "snapshot")
			h.at(t, tc.stage, fmt.Sprintf("dd if=/dev/zero of=%s/fill bs=64k 2>/dev/null; exit 0", disk))
			expectError(t, p.checkpointTo(ctx, p.dir, tc.exit), tc.says...)
			h.at(t, "", "")
			p.expectUnharmed(ctx)
			if tc.stage != "" {
				if left := list(disk); len(left) != 1 || left[0] != "fill" {
					t.Errorf("on the disk is %v", left)
				}
			}
			p.startOver()
			p.expectRecovered(ctx)
		})
	}
}
