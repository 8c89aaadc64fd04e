// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestBoost(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	first, second := boost(), boost()
	if got := runtime.GOMAXPROCS(0); got != min(runtime.NumCPU(), mostProcessors) {
		t.Errorf("%d processors of %d", got, runtime.NumCPU())
	}
	first()
	if got := runtime.GOMAXPROCS(0); got != min(runtime.NumCPU(), mostProcessors) {
		t.Errorf("%d processors while somebody needs them", got)
	}
	second()
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("%d processors afterwards, want 1", got)
	}
}

// With many processors the digests are computed after the dump, and are the
// same.
func TestSealHashesAfterTheDump(t *testing.T) {
	dir := t.TempDir()
	var want []File
	for _, beside := range []bool{true, false} {
		f, err := Follow(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		f.beside = beside
		if beside {
			for i := range 3 {
				name := filepath.Join(dir, fmt.Sprintf("pages-%d.img", i))
				if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(name, ChunkSize+7); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := f.Seal(t.Context())
		if err != nil || len(got) != 3 {
			t.Fatalf("%d files, %v", len(got), err)
		}
		digests := map[string]string{}
		for _, file := range got {
			digests[file.Name] = fmt.Sprint(file)
		}
		for _, file := range want {
			if digests[file.Name] != fmt.Sprint(file) {
				t.Errorf("%s: %s, then %s", file.Name, fmt.Sprint(file), digests[file.Name])
			}
		}
		want = got
	}
}
