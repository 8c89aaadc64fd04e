// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package driverlibs finds the user-space libraries of NVIDIA's driver on a
// host, and knows their names. A driver's libraries have its version as the
// last part of their names (libcuda.so.580.159.04), are of one release, and
// only work with a kernel driver of the same.
//
// It loads none of them.
package driverlibs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
)

// Library is one library of the driver.
type Library struct {
	// Path is where it is on the host, below the root that was searched.
	Path string
	// Names are its own file name and those of the links to it in its directory
	// (libcuda.so.580.159.04, libcuda.so.1, libcuda.so), sorted.
	Names []string
}

// Name is the library's file name.
func (l Library) Name() string { return filepath.Base(l.Path) }

// CUDA is the stem of the library that programs load.
const CUDA = "libcuda.so"

// versioned is the name of a library with the driver's version: two or three
// numbers, of which the first is its release. Sonames have one (libcuda.so.1).
var versioned = lazyregexp.New(`^(lib[^/]+\.so)\.([0-9]{3,4}(?:\.[0-9]+){1,2})$`)

// Split takes a library's file name apart; ok is false if it is none of a
// driver's.
func Split(name string) (stem, version string, ok bool) {
	m := versioned.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// usual are the directories in which distributions and NVIDIA's installer put
// the libraries, for where the linker's cache names none.
var usual = []string{
	"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current",
	"/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib", "/usr/lib/nvidia", "/lib64", "/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib", "/usr/lib/wsl/lib",
}

// cacheTimeout bounds a look into the linker's cache.
const cacheTimeout = 10 * time.Second

// Dirs are the directories, as seen below root, in which the driver may be, the
// likeliest first: where the linker finds it, and the usual.
func Dirs(ctx context.Context, root string) []string {
	args := []string{"-p"}
	if root != "/" {
		args = []string{"-r", root, "-p"}
	}
	// A host without a linker's cache has the usual directories.
	cache, err := execx.Output(ctx, cacheTimeout, "/sbin/ldconfig", args...)
	if err != nil {
		cache = ""
	}
	return slices.Concat(cached(cache, runtime.GOARCH), usual)
}

// tag is the word of ldconfig's list for an architecture's libraries.
func tag(arch string) string {
	switch arch {
	case "amd64":
		return "x86-64"
	case "arm64":
		return "AArch64"
	}
	return ""
}

// cached are the directories of libcuda.so.1 in what `ldconfig -p` prints.
func cached(list, arch string) (dirs []string) {
	for line := range strings.Lines(list) {
		what, file, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if !ok || !strings.HasPrefix(what, CUDA+".1 ") || !strings.Contains(what, tag(arch)) {
			continue
		}
		if dir := filepath.Dir(file); filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// ErrNone means that a host has no libraries of a driver, or not of that version.
var ErrNone = errors.New("the driver's libraries are not installed")

// Find lists the libraries of a driver in the first of the directories below root
// that has its libcuda. Where version is "" it is any driver's.
func Find(root string, dirs []string, version string) ([]Library, error) {
	for _, dir := range dirs {
		libs, err := list(filepath.Join(root, dir), version)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for the driver's libraries: %w", err)
		}
		if slices.ContainsFunc(libs, func(l Library) bool { return strings.HasPrefix(l.Name(), CUDA+".") }) {
			return libs, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no %s.%s below %s in %s", ErrNone, CUDA, version, root, strings.Join(dirs, ", "))
}

// list lists one directory.
func list(dir, version string) ([]Library, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	links := map[string]string{}
	var libs []Library
	for _, e := range entries {
		name := e.Name()
		switch _, v, ok := Split(name); {
		case e.Type() == fs.ModeSymlink && strings.HasPrefix(name, "lib"):
			target, err := os.Readlink(filepath.Join(dir, name))
			if err == nil && (!strings.Contains(target, "/") || filepath.Dir(target) == dir) {
				links[name] = filepath.Base(target)
			}
		case ok && e.Type().IsRegular() && (version == "" || v == version):
			libs = append(libs, Library{Path: filepath.Join(dir, name), Names: []string{name}})
		}
	}
	for name := range links {
		target := follow(links, name)
		if i := slices.IndexFunc(libs, func(l Library) bool { return l.Name() == target }); i >= 0 {
			libs[i].Names = append(libs[i].Names, name)
		}
	}
	for _, l := range libs {
		slices.Sort(l.Names)
	}
	return libs, nil
}

// follow follows links as far as the kernel does (Linux, MAXSYMLINKS).
func follow(links map[string]string, name string) string {
	for range 40 {
		next, ok := links[name]
		if !ok {
			break
		}
		name = next
	}
	return name
}
