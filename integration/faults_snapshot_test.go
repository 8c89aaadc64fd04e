// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// edit changes the contents of a file.
func edit(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, change(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit.
func flip(at int, bit uint) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at] ^= 1 << bit
		return data
	}
}

// pagesOf returns a file of memory pages that is not empty.
func pagesOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "pages-*.img"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Size() > 8192 {
			return file
		}
	}
	t.Fatalf("%s has no pages: %v", dir, list(dir))
	return ""
}

// newerFormat makes a manifest one of the next format version, with the right
// digest.
func newerFormat(data []byte) []byte {
	const head, middle = `{"digest":"`, `","manifest":`
	at := bytes.Index(data, []byte(middle)) + len(middle)
	body := bytes.Replace(bytes.TrimSuffix(data[at:], []byte("}\n")), []byte(`"version":1`), fmt.Appendf(nil, `"version":%d`, snapshot.Version+1), 1)
	return fmt.Appendf(nil, "%ssha256:%x%s%s}\n", head, sha256.Sum256(body), middle, body)
}

// What is not what was saved is refused before anything starts, whatever bit of
// it has changed, and nothing is left of the try.
func TestFaultsSnapshotDamaged(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2")
	dir, _ := d.saved(ctx, t, s, 2)
	manifest, err := os.ReadFile(filepath.Join(dir, snapshot.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		damage func(t *testing.T, dir string)
		says   []string
	}{
		"page file, one bit": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, pagesOf(t, dir), flip(4096, 3))
		}, []string{"pages-", "digest"}},
		"image, one bit": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, "core-1.img"), flip(40, 0))
		}, []string{"core-1.img", "digest"}},
		"image missing": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, "pstree.img")); err != nil {
				t.Fatal(err)
			}
		}, []string{"pstree.img is missing"}},
		"image cut short": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, pagesOf(t, dir), func(data []byte) []byte { return data[:len(data)-4096] })
		}, []string{"pages-", "bytes, and the manifest says"}},
		"image too many": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "core-99.img"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"core-99.img is not in the manifest"}},
		"image swapped for a link": {func(t *testing.T, dir string) {
			t.Helper()
			name := filepath.Join(dir, "pstree.img")
			if err := os.Rename(name, name+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(name+".moved", name); err != nil {
				t.Fatal(err)
			}
		}, []string{"pstree.img"}},
		"manifest empty": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, snapshot.ManifestName), func([]byte) []byte { return nil })
		}, []string{snapshot.ManifestName}},
		"newer format": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, snapshot.ManifestName), newerFormat)
		}, []string{snapshot.ManifestName, fmt.Sprintf("version %d", snapshot.Version+1)}},
	}
	// The digest, the envelope, the version, and what is in between.
	for i := range 10 {
		at := i * (len(manifest) - 1) / 9
		cases[fmt.Sprintf("manifest, one bit of byte %d", at)] = struct {
			damage func(t *testing.T, dir string)
			says   []string
		}{func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, snapshot.ManifestName), flip(at, uint(i%8)))
		}, []string{snapshot.ManifestName, "damaged"}}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			damaged := copySnapshot(t, dir)
			tc.damage(t, damaged)
			seen, before := len(d.callsSoFar(t)), list(damaged)
			c := d.expectRestoreFails(ctx, t, s, damaged, tc.says...)
			if c.task != nil {
				t.Error("a task was created")
			}
			if calls := d.callsSoFar(t)[seen:]; len(calls) != 0 {
				t.Errorf("the driver was asked for %v", calls)
			}
			if after := list(damaged); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the snapshot had %v and has %v", before, after)
			}
		})
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
}
