// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
)

// usual are the directories in which a container has libcuda: where NVIDIA's
// tools put it and where distributions have it. [toolkits] has more.
var usual = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/cuda/compat",
}

// toolkits is the directory with CUDA's versions (cuda-12.8), which bring a
// libcuda for programs that are newer than the host's driver.
const toolkits = "/usr/local"

// loaded are the names by which programs load the library.
var loaded = []string{"libcuda.so.1", "libcuda.so"}

const (
	// maxLibraries bounds how many files of a container are looked at.
	maxLibraries = 64
	// maxNames bounds how much of a directory is read; a library that was missed
	// is found out when a process uses it.
	maxNames = 1 << 14
)

var errTooMany = errors.New("the container has too many files named libcuda.so*")

// librariesOf opens the files named libcuda.so* that processes map, and those
// that the first of them finds in the usual directories and in dirs, which may
// be files too. These may
// be links and mounts of the container: nothing leads out of it.
func librariesOf(procfs string, pids []int, dirs []string) ([]*os.File, error) {
	files, err := mapped(procfs, pids)
	if err == nil {
		var root *os.File
		if root, err = os.Open(filepath.Join(procfs, strconv.Itoa(pids[0]), "root")); err == nil {
			defer root.Close()
			var found []*os.File
			found, err = below(root, dirs)
			files = append(files, found...)
		}
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// mapped opens the libraries that processes map, each once.
func mapped(procfs string, pids []int) (files []*os.File, err error) {
	seen := make(map[inode]bool)
	for _, pid := range pids {
		maps, err := librariesIn(procfs, pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return files, err
		}
		for _, m := range maps {
			if seen[m.file] {
				continue
			}
			seen[m.file] = true
			f, err := os.Open(m.link)
			if err != nil {
				return files, gone(err)
			}
			if files = append(files, f); len(files) > maxLibraries {
				return files, errTooMany
			}
		}
	}
	return files, nil
}

// below opens the libraries below a root directory.
func below(root *os.File, dirs []string) (files []*os.File, err error) {
	for _, path := range candidates(root, dirs) {
		// What can't be opened is found out when a process uses it.
		f := openFile(root, path)
		if f == nil {
			continue
		}
		if files = append(files, f); len(files) > maxLibraries {
			return files, errTooMany
		}
	}
	return files, nil
}

// candidates are the paths that may be libraries. A directory that is not one of
// the usual may be a mount with millions of files: it isn't listed, and what a
// loader looks for in it is tried.
func candidates(root *os.File, dirs []string) (paths []string) {
	listed := slices.Clone(usual)
	for _, name := range names(root, toolkits) {
		if strings.HasPrefix(name, "cuda-") {
			listed = append(listed, filepath.Join(toolkits, name, "compat"))
		}
	}
	for _, dir := range dirs {
		if isLibrary(filepath.Base(dir)) {
			paths = append(paths, dir)
			continue
		}
		for _, name := range loaded {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	for _, dir := range listed {
		for _, name := range names(root, dir) {
			if isLibrary(name) {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	return paths
}

// names lists a directory, up to maxNames; nil if it can't be.
func names(root *os.File, dir string) []string {
	handle, err := pathrs.OpenatInRoot(root, dir)
	if err != nil {
		return nil
	}
	defer handle.Close()
	d, err := pathrs.Reopen(handle, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer d.Close()
	// What there was before an error is as good as any.
	list, _ := d.Readdirnames(maxNames)
	return list
}

// openFile opens a regular file; nil if it isn't one or can't be opened.
func openFile(root *os.File, path string) *os.File {
	handle, err := pathrs.OpenatInRoot(root, path)
	if err != nil {
		return nil
	}
	defer handle.Close()
	if info, err := handle.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := pathrs.Reopen(handle, os.O_RDONLY)
	if err != nil {
		return nil
	}
	return f
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only read
	}
}
