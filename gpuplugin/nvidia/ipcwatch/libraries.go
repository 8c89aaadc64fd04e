// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
	d, err := openIn(root, dir, unix.S_IFDIR)
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
	f, err := openIn(root, path, unix.S_IFREG)
	if err != nil {
		return nil
	}
	return f
}

// openIn opens what is at a path below a root directory, if it is of that kind
// (stat's S_IFREG, S_IFDIR): no device and no pipe is opened to see that it is one.
// Links are followed in the root, and never out of it (openat2, Linux 5.6).
func openIn(root *os.File, path string, kind uint32) (*os.File, error) {
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != kind {
		return nil, fmt.Errorf("%s has the mode %#o", path, st.Mode)
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(fd))
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only read
	}
}
