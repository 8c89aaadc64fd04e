// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(inDir(m)) }

func inDir(m *testing.M) int {
	dir, err := os.MkdirTemp("", "opencl-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programDir = dir
	return m.Run()
}
