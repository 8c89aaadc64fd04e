// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// What a link in the directory would lead to is what is found, whatever the path's text
// says.
func TestBefore(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"disk/sub/new", "disk/sub/first", "disk/first", "first"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"snap": "disk/sub", "disk/sub/away": "../../first", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ dir, relative, want string }{
		{"disk/sub/new", "../first", "disk/sub/first"},
		{"snap/new", "../first", "disk/sub/first"},
		{"snap/new", "../../first", "disk/first"}, // and not "first"
		{"snap/new", "./..//away", "first"},
		{"snap/new", "../away/../disk/first", "disk/first"},
		{"snap/new", "..", "disk/sub"},
		{"snap/later/still", "../../../first", "disk/first"}, // yet to be made
		{"snap/new", "../missing", ""},
		{"dangling/new", "../first", ""},
		{"snap/new", "/" + filepath.Join(base, "first"), ""},
	} {
		got, err := snapshot.Before(filepath.Join(base, test.dir), test.relative)
		if want := filepath.Join(base, test.want); test.want == "" && err == nil || test.want != "" && (err != nil || got != want) {
			t.Errorf("%s from %s: %q, %v", test.relative, test.dir, got, err)
		}
	}
	if _, err := snapshot.Before(base, "missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
	// The kernel's word for it.
	if err := os.Symlink("../../first", filepath.Join(base, "snap/new/parent")); err != nil {
		t.Fatal(err)
	}
	if got, err := filepath.EvalSymlinks(filepath.Join(base, "snap/new/parent")); err != nil || got != filepath.Join(base, "disk/first") {
		t.Errorf("%q, %v", got, err)
	}
}
