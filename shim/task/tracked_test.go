// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Pages may be left only where the last dump with a parent ended: the kernel knows of
// no others what was written since.
func TestLeavesIn(t *testing.T) {
	c := &container{id: "c", bundle: t.TempDir()}
	dirs, base := map[string]string{}, t.TempDir()
	for _, name := range []string{"A", "B", "C", "of the stock shim", "somewhere/else"} {
		dirs[name] = filepath.Join(base, name)
		if err := os.MkdirAll(dirs[name], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"A", "B", "C"} {
		if err := os.WriteFile(filepath.Join(dirs[name], snapshot.ManifestName), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	delete(dirs, "somewhere/else")
	// By the text of its path this one's neighbors are those.
	link := filepath.Join(base, "link")
	if err := os.Symlink("somewhere/else", link); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for name := range dirs {
			can := false
			for _, w := range want {
				can = can || w == name
			}
			if c.leavesIn(t.Context(), filepath.Join(base, "new"), "../"+name) != can {
				t.Errorf("%s: pages can be left in %s: %t", when, name, !can)
			}
		}
	}
	note := func(dir string) {
		t.Helper()
		if err := c.tracked(dir); err != nil {
			t.Fatal(err)
		}
	}
	expect("before the first", "A", "B", "C", "of the stock shim")
	note("")
	expect("one has failed")
	note(dirs["B"])
	expect("B is complete", "B")
	note("")
	note(dirs["C"])
	expect("C is complete", "C")
	if c.leavesIn(t.Context(), link+"/new", "../../C") { // which is base/somewhere/C
		t.Error("pages can be left in what is not there")
	}
	if !c.leavesIn(t.Context(), link+"/new", "../../../C") {
		t.Error("pages can't be left in C by its way from behind a link")
	}
	if err := c.tracked(dirs["of the stock shim"]); err == nil {
		t.Error("a snapshot without a manifest was noted")
	}
	expect("no other was", "C")
}
