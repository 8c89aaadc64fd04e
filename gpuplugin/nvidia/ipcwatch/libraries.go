// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"os"
	"path/filepath"
	"strings"
)

// usual are the directories in which a container has libcuda: where NVIDIA's
// tools put it, where distributions have it, and where CUDA images bring one
// for newer programs.
var usual = []string{
	"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/*-linux-gnu", "/lib64",
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/cuda*/compat",
}

// Libraries finds the files named libcuda.so* below the root of a container, in
// the usual directories and in others that the container's specification names.
// A process that uses one from elsewhere is found out by [Watcher.Check].
func Libraries(root string, dirs ...string) []string {
	var found []string
	for _, dir := range append(dirs, usual...) {
		// The only error is that of a pattern that some name has made bad.
		paths, _ := filepath.Glob(filepath.Join(root, dir, "libcuda.so*"))
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && !strings.HasSuffix(path, ".debug") {
				found = append(found, path)
			}
		}
	}
	return found
}
