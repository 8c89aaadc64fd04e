// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestAddDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes device nodes")
	}
	mode := os.FileMode(0o640)
	one := uint32(1)
	device := specs.LinuxDevice{Path: "/dev/sub/gpu", Type: "c", Major: 1, Minor: 3, FileMode: &mode, UID: &one, GID: &one}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, root string)
		// made says that the node is there afterwards.
		made, fails bool
	}{
		"missing": {func(*testing.T, string) {}, true, false},
		"there": {func(t *testing.T, root string) {
			t.Helper()
			must(t, os.MkdirAll(filepath.Join(root, "dev/sub"), 0o755))
			must(t, os.WriteFile(filepath.Join(root, "dev/sub/gpu"), []byte("its own"), 0o600))
		}, false, false},
		"with another number": {func(t *testing.T, root string) {
			t.Helper()
			must(t, os.MkdirAll(filepath.Join(root, "dev/sub"), 0o755))
			must(t, unix.Mknod(filepath.Join(root, "dev/sub/gpu"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		}, true, false},
		"with its number": {func(t *testing.T, root string) {
			t.Helper()
			must(t, os.MkdirAll(filepath.Join(root, "dev/sub"), 0o755))
			must(t, unix.Mknod(filepath.Join(root, "dev/sub/gpu"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		}, false, false},
		"a link leads out": {func(t *testing.T, root string) {
			t.Helper()
			must(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
			must(t, os.Symlink(t.TempDir(), filepath.Join(root, "dev/sub")))
		}, false, true},
		"a link leads to a volume": {func(t *testing.T, root string) {
			t.Helper()
			must(t, os.MkdirAll(filepath.Join(root, "volume"), 0o755))
			must(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
			must(t, os.Symlink("../volume", filepath.Join(root, "dev/sub")))
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tc.prepare(t, dir)
			root, err := os.OpenRoot(dir)
			must(t, err)
			defer func() { _ = root.Close() }()
			if err := addDevice(root, device); (err != nil) != tc.fails {
				t.Fatalf("error: %v", err)
			}
			var st unix.Stat_t
			err = unix.Lstat(filepath.Join(dir, "dev/sub/gpu"), &st)
			is := err == nil && st.Mode == unix.S_IFCHR|0o640 && st.Rdev == unix.Mkdev(1, 3) && st.Uid == 1 && st.Gid == 1
			if is != tc.made {
				t.Errorf("mode %o, device %x, owner %d:%d, %v", st.Mode, st.Rdev, st.Uid, st.Gid, err)
			}
		})
	}
}

func TestCharDevice(t *testing.T) {
	d, err := charDevice("/dev/null")
	if err != nil || d.Type != "c" || d.Major != 1 || d.Minor != 3 || d.FileMode.Perm() != 0o666 || d.Path != "/dev/null" {
		t.Errorf("/dev/null is %+v, %v", d, err)
	}
	if d, err := charDevice(filepath.Join(t.TempDir(), "none")); d != nil || err != nil {
		t.Errorf("one that is missing is %+v, %v", d, err)
	}
	if d, err := charDevice(t.TempDir()); d != nil || err == nil {
		t.Errorf("a directory is %+v", d)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
