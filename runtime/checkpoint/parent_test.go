// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Where CRIU can't leave memory in the snapshot before, device memory is left there
// all the same: the link is made by us, and CRIU is not told.
func TestMemoryParent(t *testing.T) {
	for _, tracked := range []bool{false, true} {
		base := t.TempDir()
		w := newSplitWorld(t)
		first, second := filepath.Join(base, "first"), filepath.Join(base, "second")
		if _, err := w.container().Checkpoint(t.Context(), splitRequest(first, false)); err != nil {
			t.Fatal(err)
		}
		r := splitRequest(second, false)
		r.MemoryParent, r.Manifest.Options.Incremental = "../first", true
		if tracked {
			r.Parent = "../first"
		}
		w.calls = nil
		if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if w.parent != first {
			t.Errorf("saved on top of %q", w.parent)
		}
		link, err := os.Readlink(filepath.Join(second, "parent"))
		if err != nil || link != "../first" {
			t.Errorf("tracked %t: parent leads to %q, %v", tracked, link, err)
		}
		if tracked {
			continue
		}
		if _, err := snapshot.Open(second); err != nil {
			t.Error(err)
		}
	}
}

// Without the snapshot before nothing is started, wherever it is that it has gone:
// no memory is loaded.
func TestRestoreWithoutParent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(base string) error
		text   string
	}{
		"moved together":     {func(string) error { return nil }, ""},
		"moved away":         {func(base string) error { return os.Rename(filepath.Join(base, "first"), filepath.Join(base, "else")) }, "leads to none"},
		"its file is gone":   {func(base string) error { return os.Remove(filepath.Join(base, "first", memfile.DataName(0))) }, "parent/hetgpu-mem-0.img"},
		"its file is longer": {func(base string) error { return os.Truncate(filepath.Join(base, "first", memfile.DataName(0)), 8192) }, "8192 bytes"},
		"a file in its place": {func(base string) error {
			return errors.Join(os.RemoveAll(filepath.Join(base, "first")), os.WriteFile(filepath.Join(base, "first"), nil, 0o600))
		}, "leads to none"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			w := newSplitWorld(t)
			w.data = true
			for _, r := range []Request{splitRequest(filepath.Join(base, "first"), false), second(filepath.Join(base, "second"))} {
				if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if err := tc.change(base); err != nil {
				t.Fatal(err)
			}
			moved := base + "-moved"
			if err := os.Rename(base, moved); err != nil {
				t.Fatal(err)
			}
			m, err := snapshot.ReadManifest(filepath.Join(moved, "second"))
			if err != nil || m.Memory.ReusedBytes != 4096 || !m.Options.WholePages || m.Version != 6 {
				t.Fatalf("manifest %+v, %v", m, err)
			}
			again := newSplitWorld(t)
			r, err := Open(t.Context(), filepath.Join(moved, "second"), Target{GPU: again.gpu(), Library: library})
			if err == nil {
				err = r.Verified(t.Context())
				r.Close(t.Context())
			}
			if tc.text == "" && err != nil || tc.text != "" && (!errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), tc.text)) {
				t.Errorf("err = %v", err)
			}
			if loaded := inOrder(again.calls, []string{"load"}); loaded != (tc.text == "") {
				t.Errorf("called %v", again.calls)
			}
			// Nor is anything stopped to add to what is not whole.
			third := second(filepath.Join(moved, "third"))
			third.MemoryParent = "../second"
			w.calls = nil
			_, err = w.container().Checkpoint(t.Context(), third)
			if (err == nil) != (tc.text == "") || inOrder(w.calls, []string{"lock"}) != (tc.text == "") {
				t.Errorf("a third on top: %v; called %v", err, w.calls)
			}
		})
	}
}

// A snapshot that has left nothing in the one before does not need it, if it is known that
// CRIU hasn't either.
func TestRestoreOfWhole(t *testing.T) {
	for _, whole := range []bool{true, false} {
		base := t.TempDir()
		w := newSplitWorld(t) // whose memory is zero
		r := second(filepath.Join(base, "second"))
		r.Manifest.Options.WholePages = whole
		for _, r := range []Request{splitRequest(filepath.Join(base, "first"), false), r} {
			if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(base, "first")); err != nil {
			t.Fatal(err)
		}
		again := newSplitWorld(t)
		restore, err := Open(t.Context(), r.Dir, Target{GPU: again.gpu(), Library: library})
		if err == nil {
			err = restore.Verified(t.Context())
			restore.Close(t.Context())
		}
		if whole && err != nil || !whole && (!errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "leads to none")) {
			t.Errorf("whole %t: err = %v", whole, err)
		}
	}
}

// A snapshot before that is not what it was when the checkpoint is complete makes that
// fail, and the container goes on: it would not be restorable.
func TestParentChangesMeanwhile(t *testing.T) {
	for name, change := range map[string]func(base string) error{
		"moved":   func(base string) error { return os.Rename(filepath.Join(base, "first"), filepath.Join(base, "else")) },
		"removed": func(base string) error { return os.RemoveAll(filepath.Join(base, "first")) },
		"another in its place": func(base string) error {
			return errors.Join(os.Rename(filepath.Join(base, "first"), filepath.Join(base, "else")), os.Rename(filepath.Join(base, "other"), filepath.Join(base, "first")))
		},
		"its link leads to another": func(base string) error {
			return errors.Join(os.Remove(filepath.Join(base, "link")), os.Symlink("other", filepath.Join(base, "link")))
		},
		"pages are gone":                      func(base string) error { return os.Remove(filepath.Join(base, "first", "pages-1.img")) },
		"what it has left in another is gone": func(base string) error { return os.Remove(filepath.Join(base, "oldest", memfile.DataName(0))) },
	} {
		for _, ending := range []string{"goes on", "exit", "exit by CRIU"} {
			t.Run(name+", "+ending, func(t *testing.T) {
				base := t.TempDir()
				w := newSplitWorld(t)
				w.data = true
				on := second(filepath.Join(base, "first"))
				on.MemoryParent = "../oldest"
				for _, r := range []Request{splitRequest(filepath.Join(base, "oldest"), false), on, splitRequest(filepath.Join(base, "other"), false)} {
					if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.Symlink("first", filepath.Join(base, "link")), os.Mkdir(filepath.Join(base, "third"), 0o700)); err != nil {
					t.Fatal(err)
				}
				r := second(filepath.Join(base, "third"))
				r.MemoryParent = "../link"
				r.Exit, r.TCPEstablished = ending != "goes on", ending == "exit by CRIU"
				w.data, w.calls, w.count = false, nil, map[string]int{}
				w.cancel["save 1"] = func() {
					if err := change(base); err != nil {
						t.Error(err)
					}
				}
				_, err := w.container().Checkpoint(t.Context(), r)
				if !errors.Is(err, ErrParent) || !strings.Contains(err.Error(), "is not what it was when the checkpoint began") {
					t.Errorf("err = %v", err)
				}
				if w.called("kill") || r.TCPEstablished && w.called("dump") {
					t.Errorf("called %v", w.calls)
				}
				w.asFound(t, map[int]gpuplugin.State{100: gpuplugin.StateRunning, 101: gpuplugin.StateRunning}, false, r.Dir)
			})
		}
	}
}

// A path leads where the kernel finds it, and not where its text says.
func TestParentBehindLink(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "disk/sub"), 0o700), os.Symlink("disk/sub", filepath.Join(base, "snap"))); err != nil {
		t.Fatal(err)
	}
	w := newSplitWorld(t)
	w.data = true
	first := filepath.Join(base, "disk/first")
	for _, r := range []Request{splitRequest(first, false), splitRequest(filepath.Join(base, "first"), false)} {
		if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	r := second(filepath.Join(base, "snap/second"))
	r.MemoryParent = "../../first"
	if _, err := w.container().Checkpoint(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if w.parent != first {
		t.Errorf("saved on top of %s", w.parent)
	}
	r = second(filepath.Join(base, "snap/third"))
	r.MemoryParent = first
	if _, err := w.container().Checkpoint(t.Context(), r); err == nil || !strings.Contains(err.Error(), "is an absolute path") {
		t.Errorf("err = %v", err)
	}
}

// second is a request for a snapshot beside "first", which only device memory is
// left in.
func second(dir string) Request {
	r := splitRequest(dir, false)
	r.MemoryParent, r.Manifest.Options.Incremental, r.Manifest.Options.WholePages = "../first", true, true
	return r
}

// A snapshot that nothing can be left in is found out before anything is changed.
func TestMemoryParentRefused(t *testing.T) {
	base := t.TempDir()
	for name, of := range map[string]*world{"split": newSplitWorld(t), "driver": newWorld(t)} {
		r := splitRequest(filepath.Join(base, name), false)
		if name == "driver" {
			r.Manifest.Library = nil
		}
		if _, err := of.container().Checkpoint(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		parent string
		change func(c *Container, r *Request)
		is     error
		text   string
	}{
		"missing":         {"../missing", nil, os.ErrNotExist, "missing"},
		"no snapshot":     {"../empty", nil, snapshot.ErrNoManifest, "the snapshot before"},
		"of another":      {"../split", func(_ *Container, r *Request) { r.Manifest.Container.ID = "other" }, ErrParent, "container c (namespace n)"},
		"other namespace": {"../split", func(_ *Container, r *Request) { r.Manifest.Container.Namespace = "other" }, ErrParent, "container c (namespace n)"},
		"other devices":   {"../split", func(c *Container, _ *Request) { c.Minors = []int{1} }, ErrParent, "of the devices " + gpu0 + ", GPU-1, and the container has GPU-1"},
		"the driver's":    {"../driver", nil, ErrParent, "no device memory in files of its own (engine driver)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSplitWorld(t)
			c, dir := w.container(), filepath.Join(base, "second")
			r := splitRequest(dir, false)
			r.MemoryParent = test.parent
			if test.change != nil {
				test.change(c, &r)
			}
			_, err := c.Checkpoint(t.Context(), r)
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
			if inOrder(w.calls, []string{"lock"}) {
				t.Errorf("called %v", w.calls)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Error("the directory was left")
			}
		})
	}
}
