// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rootfs_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/rootfs"
)

// overlay mounts an overlay whose directories are in dir, with a lower directory
// that fill makes, and returns it.
func overlay(t *testing.T, dir string, fill func(lower string), options ...string) (merged, upper, lower string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount an overlay")
	}
	lower, upper, merged = filepath.Join(dir, "lower"), filepath.Join(dir, "upper"), filepath.Join(dir, "merged")
	for _, name := range []string{lower, upper, merged, filepath.Join(dir, "work")} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill(lower)
	data := append([]string{"lowerdir=" + lower, "upperdir=" + upper, "workdir=" + filepath.Join(dir, "work")}, options...)
	if err := unix.Mount("overlay", merged, "overlay", 0, strings.Join(data, ",")); err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return merged, upper, lower
}

// do is a list of steps, each of which has to succeed.
func do(t *testing.T, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

func write(name, text string) error { return os.WriteFile(name, []byte(text), 0o640) }

func fill(t *testing.T) func(string) {
	return func(dir string) {
		do(t, os.Mkdir(dir+"/kept", 0o755), write(dir+"/kept/a", "lower a"), write(dir+"/kept/gone", "x"),
			os.MkdirAll(dir+"/replaced/deep", 0o755), write(dir+"/replaced/old", "x"), write(dir+"/replaced/deep/old", "x"),
			os.Mkdir(dir+"/removed", 0o755), write(dir+"/removed/x", "x"), write(dir+"/file", "lower"))
	}
}

// change makes a change of each kind.
func change(t *testing.T, dir string) {
	t.Helper()
	long := filepath.Join(dir, strings.Repeat("n", 120))
	do(t, write(dir+"/kept/a", "upper a"), os.Remove(dir+"/kept/gone"), write(dir+"/kept/new", "new"),
		os.RemoveAll(dir+"/replaced"), os.Mkdir(dir+"/replaced", 0o700), write(dir+"/replaced/new", "new"),
		os.RemoveAll(dir+"/removed"),
		write(dir+"/empty", ""), write(long, "long name"), write(dir+"/one", "linked"), os.Link(dir+"/one", dir+"/two"),
		os.Symlink("one", dir+"/symlink"), os.Symlink("missing", dir+"/dangling"), unix.Mkfifo(dir+"/fifo", 0o622),
		unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))), unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0),
		os.Lchown(dir+"/one", 1000, 1001), os.Lchown(dir+"/symlink", 7, 8), unix.Chmod(dir+"/kept/new", 0o4711), unix.Chmod(dir+"/replaced", 0o1777),
		unix.Lsetxattr(dir+"/one", "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0),
		unix.Lsetxattr(dir+"/kept/a", "user.mine", []byte("of\x00mine"), 0))
	// Not a multiple of anything, and one with a hole in it.
	random := make([]byte, 300_001)
	_, _ = rand.Read(random)
	do(t, os.WriteFile(dir+"/random", random, 0o600))
	f, err := os.OpenFile(dir+"/sparse", os.O_CREATE|os.O_WRONLY, 0o600)
	do(t, err)
	_, err = f.WriteAt([]byte("end of hole"), 3<<20)
	do(t, err, f.Truncate(5<<20), f.Close())
	old := time.Unix(1_000_000_000, 123_000_000)
	do(t, os.Chtimes(dir+"/kept/new", old, old), os.Chtimes(dir+"/replaced", old, old))
}

// tree describes everything below a directory.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found, inodes := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		name, _ := filepath.Rel(root, file)
		var st unix.Stat_t
		do(t, unix.Lstat(file, &st))
		text := fmt.Sprintf("mode %o owner %d:%d device %d", st.Mode, st.Uid, st.Gid, st.Rdev)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(file)
			do(t, err)
			text += fmt.Sprintf(" time %d data %x", st.Mtim.Nano(), data)
			if first, ok := inodes[st.Ino]; ok {
				text += " link to " + first
			}
			inodes[st.Ino] = name
		case unix.S_IFLNK:
			target, err := os.Readlink(file)
			do(t, err)
			text += " to " + target
		}
		for _, key := range []string{"security.capability", "user.mine"} {
			buf := make([]byte, 64)
			if n, err := unix.Lgetxattr(file, key, buf); err == nil {
				text += fmt.Sprintf(" %s=%q", key, buf[:n])
			}
		}
		found[name] = text
		return nil
	})
	do(t, err)
	return found
}

// expectSame fails for each file that differs.
func expectSame(t *testing.T, got, want map[string]string) {
	t.Helper()
	short := func(s string) string { return s[:min(len(s), 200)] }
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s:\n got %s\nwant %s", name, short(got[name]), short(text))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

// What containerd makes of the layer and of the lower directory is what the
// container saw.
func TestCaptureApply(t *testing.T) {
	dir := t.TempDir()
	merged, upper, lower := overlay(t, dir, fill(t))
	change(t, merged)
	want := tree(t, merged)
	delete(want, "socket")
	if got, err := rootfs.Upper(merged); err != nil || got != upper {
		t.Errorf("the upper directory is %q, %v", got, err)
	}
	layer, err := rootfs.Capture(t.Context(), upper, t.TempDir(), dir)
	do(t, err)
	// What is written afterwards is not in it.
	do(t, write(merged+"/random", "later"), write(merged+"/later", "later"), os.Remove(merged+"/one"))
	var packed bytes.Buffer
	do(t, layer.WriteTar(t.Context(), &packed))
	if s := layer.Stats(); s.Files < 15 || s.Bytes < 5<<20 {
		t.Errorf("%+v", s)
	}
	do(t, layer.Close(), layer.Close())
	_, err = archive.Apply(t.Context(), lower, &packed)
	do(t, err)
	expectSame(t, tree(t, lower), want)
}

// The same files give the same tar.
func TestWriteTarTwice(t *testing.T) {
	dir := t.TempDir()
	merged, upper, _ := overlay(t, dir, fill(t))
	change(t, merged)
	var packed [2]bytes.Buffer
	for i := range packed {
		layer, err := rootfs.Capture(t.Context(), upper, dir)
		do(t, err)
		do(t, layer.WriteTar(t.Context(), &packed[i]), layer.Close())
	}
	if !bytes.Equal(packed[0].Bytes(), packed[1].Bytes()) {
		t.Error("two tars of the same files differ")
	}
	for in := tar.NewReader(&packed[0]); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		for key := range h.PAXRecords {
			if strings.Contains(key, "overlay.") {
				t.Errorf("%s has %s", h.Name, key)
			}
		}
	}
}

// On a file system that shares blocks nothing is copied, also where the first
// directory is on another.
func TestCaptureShares(t *testing.T) {
	for _, make := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1"}, {"mkfs.btrfs", "-q"}} {
		t.Run(make[0], func(t *testing.T) {
			dir := disk(t, make...)
			merged, upper, lower := overlay(t, dir, fill(t))
			change(t, merged)
			want := tree(t, merged)
			delete(want, "socket")
			for _, staging := range [][]string{{dir}, {t.TempDir(), dir}} {
				layer, err := rootfs.Capture(t.Context(), upper, staging...)
				do(t, err)
				if s := layer.Stats(); s.Cloned != s.Bytes {
					t.Errorf("%d of %d bytes were shared", s.Cloned, s.Bytes)
				}
				var packed bytes.Buffer
				do(t, layer.WriteTar(t.Context(), &packed), layer.Close())
				again := filepath.Join(t.TempDir(), "again")
				do(t, os.CopyFS(again, os.DirFS(lower)))
				_, err = archive.Apply(t.Context(), again, &packed)
				do(t, err)
				got := tree(t, again)
				for _, name := range []string{"random", "sparse", "kept/a", "two"} {
					if got[name] != want[name] {
						t.Errorf("%s differs", name)
					}
				}
			}
		})
	}
}

// disk makes and mounts a file system of its own.
func disk(t *testing.T, mkfs ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a disk")
	}
	program, err := exec.LookPath(mkfs[0])
	if err != nil {
		t.Skipf("%v", err)
	}
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	do(t, write(image, ""), os.Truncate(image, 400<<20))
	if out, err := exec.CommandContext(t.Context(), program, append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("it can't be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestCaptureRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		options []string
		change  func(dir string) error
		says    string
	}{
		"redirect":        {[]string{"redirect_dir=on"}, func(dir string) error { return os.Rename(dir+"/kept", dir+"/moved") }, "redirect"},
		"metacopy":        {[]string{"metacopy=on"}, func(dir string) error { return os.Chmod(dir+"/file", 0o600) }, "metacopy"},
		"whiteout's name": {nil, func(dir string) error { return write(dir+"/.wh.file", "") }, ".wh.file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			merged, upper, _ := overlay(t, dir, fill(t), tc.options...)
			do(t, tc.change(merged))
			layer, err := rootfs.Capture(t.Context(), upper, dir)
			if layer != nil || !errors.Is(err, rootfs.ErrLayer) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, %v", layer, err)
			}
		})
	}
}

func TestCaptureCanceled(t *testing.T) {
	dir := t.TempDir()
	do(t, write(dir+"/a", "a"))
	ctx, cancel := context.WithCancelCause(t.Context())
	layer, err := rootfs.Capture(ctx, dir, t.TempDir())
	do(t, err)
	cancel(errors.New("enough"))
	if err := layer.WriteTar(ctx, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
	do(t, layer.Close())
	if _, err := rootfs.Capture(ctx, dir, t.TempDir()); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
}

func TestUpperOfOthers(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc"} {
		if upper, err := rootfs.Upper(dir); !errors.Is(err, rootfs.ErrNotOverlay) {
			t.Errorf("%s: %q, %v", dir, upper, err)
		}
	}
}
