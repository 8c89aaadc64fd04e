// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogged(t *testing.T) {
	got := logged("2026-11-22T09:00:00.000000000Z stdout F rank 0 tick 1 sum a b\n" +
		"2026-11-22T09:00:00.000000001Z stdout P rank 0 \n" +
		"2026-11-22T09:00:00.000000003Z stdout F tick 2 sum c\n" +
		"no line\n" +
		"2026-11-22T09:00:00.000000004Z stderr F \n" +
		"2026-11-22T09:00:00.000000005Z stdout F rank 0 ti")
	if want := "rank 0 tick 1 sum a b\nrank 0 tick 2 sum c\n\n"; got != want {
		t.Errorf("it is %q, not %q", got, want)
	}
}

// pack writes an archive of files with the given sizes.
func pack(t *testing.T, sizes map[string]int) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range []string{"spec.dump", "checkpoint/pages-1.img", "checkpoint/a/b"} {
		size, ok := sizes[name]
		if !ok {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(size), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "archive.tar")
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDamage(t *testing.T) {
	file := pack(t, map[string]int{"spec.dump": 100, "checkpoint/pages-1.img": 5000})
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name, err := damage(file)
	if err != nil || name != "checkpoint/pages-1.img" {
		t.Fatalf("%q, %v", name, err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i := range before {
		if before[i] != after[i] {
			changed++
			if before[i] != 'x' {
				t.Errorf("byte %d was %q, no content of a file", i, before[i])
			}
		}
	}
	if changed != 1 || len(before) != len(after) {
		t.Errorf("%d bytes of %d changed, there are %d now", changed, len(before), len(after))
	}
}

func TestArchived(t *testing.T) {
	files, err := archived(pack(t, map[string]int{"spec.dump": 3, "checkpoint/pages-1.img": 4}))
	if err != nil || len(files) != 2 || files["checkpoint/pages-1.img"].size != 4 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := archived(pack(t, map[string]int{"spec.dump": 3, "checkpoint/a/b": 4})); err == nil || !strings.Contains(err.Error(), "not flat") {
		t.Errorf("an archive with directories: %v", err)
	}
}
