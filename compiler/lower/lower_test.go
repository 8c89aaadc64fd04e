// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var update = flag.Bool("update", false, "write what the tests get to testdata")

// lower makes the IR of a program, which has to be valid and to be read again.
func lower(t *testing.T, text string) *ir.Module {
	t.Helper()
	src, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Lower(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.Verify(m); err != nil {
		t.Fatalf("%v\n%s", err, m)
	}
	again, err := ir.Parse(m.String())
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != m.String() {
		t.Error("the text form is not read as it is written")
	}
	return m
}

// TestGolden compares the IR of testdata/*.ptx with what is beside it.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(names) == 0 {
		t.Fatal("there are no samples", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := lower(t, string(text)).String()
			golden := strings.TrimSuffix(name, ".ptx") + ".ir"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the IR is not that of %s:\n%s", golden, got)
			}
		})
	}
}

// TestCorpus lowers all kernels of the corpus.
func TestCorpus(t *testing.T) {
	names, err := filepath.Glob("../corpus/kernels/*.ptx")
	if err != nil || len(names) == 0 {
		t.Fatal("there is no corpus", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lower(t, string(text))
	}
}
