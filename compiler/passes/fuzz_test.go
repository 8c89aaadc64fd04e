// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// FuzzPrepare: what the verifier accepts goes through the passes and is accepted
// again, and each of its kernels has a plan whose points can be peeled.
func FuzzPrepare(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		before, _, _ := strings.Cut(string(text), "====\n")
		f.Add(before)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ir.Parse(text)
		if err != nil || ir.Verify(m) != nil {
			return
		}
		if err := passes.Prepare(m); err != nil {
			t.Fatal(err)
		}
		if err := ir.Verify(m); err != nil {
			t.Fatalf("%v\n%s", err, m)
		}
		for _, k := range m.Funcs {
			if k.Kernel {
				peelAll(t, m, k)
			}
		}
	})
}
