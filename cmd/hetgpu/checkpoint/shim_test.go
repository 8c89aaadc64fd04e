// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// machine makes a /proc in which a container's first process, 40, is the child of
// the shim of a pod, 30, and a bundle of the container with that text.
func machine(t *testing.T, bootstrap string) (proc string) {
	t.Helper()
	dir := t.TempDir()
	proc = filepath.Join(dir, "proc")
	for _, name := range []string{"proc/30", "proc/40", "ns/pod", "ns/c"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"proc/40/stat": "40 (a) b (c) S 30 40 40 0 -1", "ns/c/" + bootstrapName: bootstrap} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "ns/pod"), filepath.Join(proc, "30/cwd")); err != nil {
		t.Fatal(err)
	}
	return proc
}

func TestDialShim(t *testing.T) {
	for bootstrap, says := range map[string]string{
		`{"version":3,"address":"unix:///nowhere/s","protocol":"ttrpc"}`: "connect to the shim of c: ",
		`{"version":3,"address":"unix:///nowhere/s","protocol":"grpc"}`:  "no shim that speaks version 3 over ttrpc",
		`{"version":2,"address":"unix:///nowhere/s","protocol":"ttrpc"}`: "no shim that speaks version 3 over ttrpc",
		`unix:///nowhere/s`: "bootstrap.json: ",
	} {
		_, _, err := dialShim(machine(t, bootstrap), "c", 40)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", bootstrap, err, says)
		}
	}
	if _, _, err := dialShim(machine(t, ""), "c", 41); err == nil || !strings.Contains(err.Error(), "find the shim of c") {
		t.Errorf("without a process: %v", err)
	}
	if _, _, err := dialShim(machine(t, ""), "other", 40); err == nil || !strings.Contains(err.Error(), "other/bootstrap.json") {
		t.Errorf("without a bundle: %v", err)
	}
}

// Each phase is a line where there is no terminal, and the last line on one.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pages-1.img"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	events := `{"expect":4194304}` + "\n" + `{"phase":"dump"}` + "\nnonsense\n" + `{"phase":"seal"}` + "\n" + `{"pha`
	var lines, bar strings.Builder
	w := watchProgress(dir, strings.NewReader(events), Progress{To: &lines})
	w.end()
	if got := lines.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "s dump\n") || !strings.Contains(got, "s seal\n") {
		t.Errorf("%q", got)
	}
	w = &watcher{Progress: Progress{To: &bar, Bar: true}, dir: dir, lines: w.lines, phase: "dump", expect: 4 << 20}
	w.draw()
	if got := bar.String(); !strings.Contains(got, "dump") || !strings.Contains(got, "+++") || !strings.Contains(got, "3.0 MiB") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	w = watchProgress(dir, strings.NewReader(events), Progress{})
	w.end()
}

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, err := newDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, snapshot.LayerName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newDirectory(dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second time: %v", err)
	}
	d.end(nil)
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	d.end(os.ErrClosed)
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		t.Error("it is still there")
	}
}

// The snapshot before is found from the new one, by whatever way the two were named.
func TestParent(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(base, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(deep, link); err != nil {
		t.Fatal(err)
	}
	made, err := newDirectory(filepath.Join(link, "second"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "first"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Parent: filepath.Join(base, "first")}
	if err := o.setParent(made.dir); err != nil || o.Shim.Parent != "../../../first" {
		t.Errorf("%q, %v", o.Shim.Parent, err)
	}
	o.Parent = filepath.Join(base, "missing")
	if err := o.setParent(made.dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--parent") {
		t.Errorf("err = %v", err)
	}
}
