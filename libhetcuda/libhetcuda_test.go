// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package libhetcuda_test builds the C library and runs its test programs
// (test/*.c): plain, with AddressSanitizer and UndefinedBehaviorSanitizer, and
// programs that are built for musl over the library as it is.
package libhetcuda_test

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
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

// variant is one way to build the library, and its programs over it.
type variant struct {
	name, sanitize string
	// musl is for programs of that C library, with the library of the plain
	// variant.
	musl bool
}

var (
	plain    = variant{name: "plain"}
	musl     = variant{name: "musl", musl: true}
	variants = []variant{plain, {name: "sanitized", sanitize: "address,undefined"}, musl}
)

// programs are in test/, each with what it is about in its first comment.
var (
	programs = []string{"forward", "opened", "gate", "step", "control", "forked", "missing", "bench"}
	// withParts have parts of the library in themselves.
	withParts = []string{"memory_alloc", "memory_park", "memory_threads", "memory_vmm", "pool_order", "pool_threads", "image"}
)

// build returns the directory of a variant's library, and that of its programs.
func build(t *testing.T, v variant) (library, tests string) {
	t.Helper()
	name, target := v.name, "test-programs"
	if v.musl {
		name, target = plain.name, "over-library"
	}
	library, err := filepath.Abs(filepath.Join("..", "bin", "libhetcuda", name))
	if err != nil {
		t.Fatal(err)
	}
	tests = filepath.Join(library, "test")
	args := []string{"-s", "-j2", "OUT=" + library, "SANITIZE=" + v.sanitize, "VERSION=test", "all", target}
	if v.musl {
		tests = filepath.Join(library, "musl")
		args = append(args, "PROGRAM_CC=musl-gcc", "TEST="+tests)
	}
	if text, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the %s variant, run 'make setup' if the compiler is missing: %v\n%s", v.name, err, text)
	}
	return library, tests
}

func TestPrograms(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			_, dir := build(t, v)
			list := programs
			if !v.musl {
				list = slices.Concat(programs, withParts)
			}
			for _, program := range list {
				t.Run(program, func(t *testing.T) { run(t, dir, program) })
			}
		})
	}
}

// Where glibc keeps no static TLS for libraries that are opened later, as where
// others have used it up.
func TestOpenedWithoutStaticTLS(t *testing.T) {
	_, dir := build(t, plain)
	run(t, dir, "opened", "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0")
}

// run runs one program with a control directory of its own.
func run(t *testing.T, dir, program string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program))
	control := controlDir(t)
	driver := filepath.Join(dir, "libcuda-real.so")
	if program == "missing" {
		driver = filepath.Join(dir, "nothing.so")
	}
	cmd.Env = append(os.Environ(), "HETCUDA_REAL="+driver, "HETCUDA_CONTROL="+control, "LD_LIBRARY_PATH="+filepath.Join(dir, "files"))
	cmd.Env = append(cmd.Env, env...)
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
	dir, tests := build(t, plain)
	driver := t.TempDir()
	if err := os.Symlink(filepath.Join(tests, "libcuda-real.so"), filepath.Join(driver, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	// The program itself wants to be told; what the library says is enough.
	cmd := exec.Command(filepath.Join(tests, "missing"))
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

// A driver that is there and can't be loaded is NVIDIA's in an image with musl: the
// program gets an error, and is told why, as its linker would have told it.
func TestExplainsDriver(t *testing.T) {
	driver := filepath.Join(t.TempDir(), "libcuda.so.580.159.04")
	source := "extern int function_of_glibc(void); int cuInit(unsigned f) { return f ? 0 : function_of_glibc(); }\n"
	if err := os.WriteFile(driver+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-nostdlib", "-o", driver, driver+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, v := range []variant{plain, musl} {
		t.Run(v.name, func(t *testing.T) {
			_, tests := build(t, v)
			// It fails unless cuInit returns CUDA_ERROR_NO_DEVICE.
			cmd := exec.Command(filepath.Join(tests, "missing"))
			cmd.Env = append(os.Environ(), "HETCUDA_REAL="+driver, "HETCUDA_LOG=", "LD_LIBRARY_PATH=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for _, want := range []string{"the driver's library can't be loaded", driver, "function_of_glibc"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("%s\nwant %q", out, want)
				}
			}
			if advised := strings.Contains(string(out), "gcompat"); advised != v.musl {
				t.Errorf("advice for another C library than glibc: %v\n%s", advised, out)
			}
		})
	}
}

// The library is loaded into programs of images that are older than what it is
// built on, or have musl, and exports the driver's functions and nothing else.
func TestSymbols(t *testing.T) {
	dir, _ := build(t, plain)
	lib, err := elf.Open(filepath.Join(dir, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lib.Close() }()

	needs, err := lib.DynamicVersionNeeds()
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range needs {
		for _, of := range need.Needs {
			if version, ok := strings.CutPrefix(of.Dep, "GLIBC_"); !ok || newer(t, version) {
				t.Errorf("%s has to have %s, see src/glibc.h", need.Name, of.Dep)
			}
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
	expectInMusl(t, symbols)
	slices.Sort(exported)
	if want := exports(t); !slices.Equal(exported, want) {
		t.Errorf("%d symbols are exported, exports.txt has %d names", len(exported), len(want))
	}
	if needed, err := lib.ImportedLibraries(); err != nil || !slices.Equal(needed, []string{"libdl.so.2", "libpthread.so.0", "libc.so.6"}) {
		t.Errorf("it needs %v, %v", needed, err)
	}
}

// expectInMusl fails unless musl has what the library must have.
func expectInMusl(t *testing.T, symbols []elf.Symbol) {
	t.Helper()
	// A program's linker is musl itself.
	_, tests := build(t, musl)
	program, err := elf.Open(filepath.Join(tests, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	linker, err := io.ReadAll(program.Section(".interp").Open())
	if err != nil {
		t.Fatal(err)
	}
	libc, err := elf.Open(string(bytes.TrimRight(linker, "\x00")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = libc.Close() }()
	has, err := libc.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		needed := s.Section == elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_WEAK
		if needed && !slices.ContainsFunc(has, func(h elf.Symbol) bool { return h.Name == s.Name && h.Section != elf.SHN_UNDEF }) {
			t.Errorf("%s is not in musl", s.Name)
		}
	}
}

// What the handler of SIGSEGV does needs no thread-local memory of ours: a thread that
// has none yet may be inside of malloc, which would make it some.
func TestHandlerWithoutTLS(t *testing.T) {
	library, _ := build(t, plain)
	for _, part := range []string{"watch", "serve", "pages", "tree"} {
		object, err := elf.Open(filepath.Join(library, "obj", part+".o"))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := object.Symbols()
		if err := errors.Join(err, object.Close()); err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_TLS {
				t.Errorf("%s.c uses %s", part, s.Name)
			}
		}
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
