// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package libhetcuda_test builds the C library and runs its test programs
// (test/*.c), plain and with AddressSanitizer and UndefinedBehaviorSanitizer.
package libhetcuda_test

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// skipped is the exit status of a program that can't be run here.
const skipped = 77

// oldest is the C library that the library has to run with.
var oldest = []int{2, 28}

var variants = []struct{ name, sanitize string }{
	{"plain", ""},
	{"sanitized", "address,undefined"},
}

// programs are in test/, each with what it is about in its first comment.
var programs = []string{
	"forward", "gate", "step", "control", "forked", "missing", "bench",
	"memory_alloc", "memory_park", "memory_threads", "memory_vmm", "pool_order", "pool_threads",
}

// build returns the directory of a variant.
func build(t *testing.T, name, sanitize string) string {
	t.Helper()
	out, err := filepath.Abs(filepath.Join("..", "bin", "libhetcuda", name))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "-s", "-j2", "OUT="+out, "SANITIZE="+sanitize, "VERSION=test", "all", "test-programs")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the %s variant: %v\n%s", name, err, text)
	}
	return out
}

func TestPrograms(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			dir := filepath.Join(build(t, v.name, v.sanitize), "test")
			for _, program := range programs {
				t.Run(program, func(t *testing.T) { run(t, dir, program) })
			}
		})
	}
}

// run runs one program with a control directory of its own.
func run(t *testing.T, dir, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program))
	control := controlDir(t)
	driver := filepath.Join(dir, "libcuda-real.so")
	if program == "missing" {
		driver = filepath.Join(dir, "nothing.so")
	}
	cmd.Env = append(os.Environ(), "HETCUDA_REAL="+driver, "HETCUDA_CONTROL="+control)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == skipped {
		t.Skip(strings.TrimSpace(string(out)))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
}

// Where nobody says which file it is and no kernel module which version, the
// driver is what the linker would find, were we not there.
func TestFindsDriver(t *testing.T) {
	dir := build(t, "plain", "")
	driver := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "test", "libcuda-real.so"), filepath.Join(driver, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	// The program itself wants to be told; what the library says is enough.
	cmd := exec.Command(filepath.Join(dir, "test", "missing"))
	cmd.Env = append(os.Environ(), "HETCUDA_REAL=", "HETCUDA_LOG=1", "LD_LIBRARY_PATH=relative:"+dir+":"+driver)
	out, _ := cmd.CombinedOutput()
	if want := "the driver's library is " + driver + "/libcuda.so.1\n"; !strings.Contains(string(out), want) {
		t.Errorf("%s\nwant %s", out, want)
	}
}

// controlDir makes a control directory.
func controlDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hetcuda") //nolint:usetesting // t.TempDir has names too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// One program connects as a user who is not root.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The library is loaded into programs of images that are older than what it is
// built on, and exports the driver's functions and nothing else.
func TestSymbols(t *testing.T) {
	lib, err := elf.Open(filepath.Join(build(t, "plain", ""), "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lib.Close() }()

	imported, err := lib.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range imported {
		if version, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && newer(t, version) {
			t.Errorf("%s is of glibc %s, see src/glibc.h", s.Name, version)
		}
	}

	var exported []string
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported = append(exported, s.Name)
		}
	}
	slices.Sort(exported)
	if want := exports(t); !slices.Equal(exported, want) {
		t.Errorf("%d symbols are exported, exports.txt has %d names", len(exported), len(want))
	}
	if needed, err := lib.ImportedLibraries(); err != nil || !slices.Equal(needed, []string{"libdl.so.2", "libpthread.so.0", "libc.so.6"}) {
		t.Errorf("it needs %v, %v", needed, err)
	}
}

// newer says whether a version of glibc is later than the oldest one.
func newer(t *testing.T, version string) bool {
	t.Helper()
	var have []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatalf("glibc %s?", version)
		}
		have = append(have, n)
	}
	return slices.Compare(have, oldest) > 0
}

// exports reads the list that everything is generated from.
func exports(t *testing.T) []string {
	t.Helper()
	f, err := os.Open("exports.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var names []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	slices.Sort(names)
	return names
}
