// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if tracked != errors.Is(err, os.ErrNotExist) || !tracked && link != "../first" {
			t.Errorf("tracked %t: parent leads to %q, %v", tracked, link, err) // the test's CRIU makes none
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
