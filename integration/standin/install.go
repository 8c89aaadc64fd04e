// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// InstallDriver copies the stand-in's libraries into a directory as a driver's
// installer does, under the names of a version and with the links to them.
func InstallDriver(dir, libraries, version string) error {
	for _, soname := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		name := strings.TrimSuffix(soname, ".1")
		if err := CopyProgram(filepath.Join(dir, name+"."+version), filepath.Join(libraries, soname)); err != nil {
			return err
		}
		for link, target := range map[string]string{soname: name + "." + version, name: soname} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				return err
			}
		}
	}
	return nil
}
