// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestGolden: all that is printed for a loop with a barrier. Hints for caches and
// the numbers of registers are as they were.
func TestGolden(t *testing.T) {
	in, err := os.ReadFile("testdata/barrier.in.ptx")
	if err != nil {
		t.Fatal(err)
	}
	got := compileText(t, string(in)).text
	const file = "testdata/barrier.out.ptx"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what comes out:\n%s", file, got)
	}
}
