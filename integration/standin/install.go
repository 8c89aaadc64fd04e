// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"fmt"
	"os"
	"path/filepath"
)

// Install copies the stand-in's libraries and programs, and libhetcuda into a
// directory of its own, from where they were built. A copy, since others may
// build while tests run.
func Install(programs, libhetcuda, built string) error {
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1", "toy", "vmmtoy", "ranks", "ckpt"} {
		if err := CopyProgram(filepath.Join(programs, name), filepath.Join(built, "standin", name)); err != nil {
			return fmt.Errorf("the stand-in for a GPU is missing, run 'make standin': %w", err)
		}
	}
	if err := CopyProgram(filepath.Join(libhetcuda, "libcuda.so.1"), filepath.Join(built, "libhetcuda", "libcuda.so.1")); err != nil {
		return fmt.Errorf("libhetcuda is missing, run 'make build': %w", err)
	}
	return nil
}

// CopyProgram copies a program, and makes the directory that it goes to.
func CopyProgram(to, from string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
