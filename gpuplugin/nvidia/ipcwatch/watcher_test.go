// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
)

// lib is a library that has the functions; they do nothing.
const lib = `
int cuIpcOpenMemHandle_v2(void **p, long h, unsigned f) { return h != 7; }
int cuIpcCloseMemHandle(void *p) { return p != 0; }
int other(void) { return 3; }
`

// program calls them as it is told, and says so.
const program = `
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int cuIpcOpenMemHandle_v2(void **, long, unsigned);
int cuIpcCloseMemHandle(void *);
int main(void)
{
	int c;

	while ((c = getchar()) != EOF) {
		if (c == 'o')
			cuIpcOpenMemHandle_v2(0, 7, 0);
		else if (c == 'c')
			cuIpcCloseMemHandle(0);
		else if (c == 'f' && fork() == 0) { /* a child that opens one and exits */
			cuIpcOpenMemHandle_v2(0, 7, 0);
			_exit(0);
		}
		while (c == 'f' && wait(0) > 0)
			;
		printf("%c\n", c);
		fflush(stdout);
	}
	return 0;
}
`

// build compiles the library and the program and returns the directory.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"lib.c": lib, "program.c": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"-shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 lib.c",
		"-o program program.c -L. -l:libcuda.so.1 -Wl,-rpath,$ORIGIN",
	} {
		cmd := exec.Command("gcc", strings.Fields(args)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gcc %s: %v\n%s", args, err, out)
		}
	}
	return dir
}

// child is a running program.
type child struct {
	t   *testing.T
	pid int
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "program"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // with that signal
	})
	c := &child{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	c.do("-") // it has loaded the library then
	return c
}

// do has the program make calls and waits until it has.
func (c *child) do(calls string) {
	c.t.Helper()
	for _, call := range calls {
		if _, err := fmt.Fprintf(c.in, "%c", call); err != nil {
			c.t.Fatal(err)
		}
		if line, err := c.out.ReadString('\n'); err != nil || line != string(call)+"\n" {
			c.t.Fatalf("%c: %q, %v", call, line, err)
		}
	}
}

// process is the child as the engine knows it.
func (c *child) process() gpuplugin.Process {
	return gpuplugin.Process{PID: c.pid, State: gpuplugin.StateRunning}
}

// watch returns a watcher of the library, or skips if the kernel has no
// uprobes for us.
func watch(t *testing.T, dir string) *ipcwatch.Watcher {
	t.Helper()
	w, err := ipcwatch.New()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if dir != "" {
		if err := w.Add(filepath.Join(dir, "libcuda.so.1")); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func wantOpen(t *testing.T, w *ipcwatch.Watcher, pid, want int) {
	t.Helper()
	if got, err := w.Open(pid); err != nil || got != want {
		t.Errorf("Open(%d) = %d, %v; want %d", pid, got, err, want)
	}
}

func TestCounts(t *testing.T) {
	dir := build(t)
	before := start(t, dir)
	w := watch(t, dir)
	after, idle := start(t, dir), start(t, dir)
	before.do("oo")
	after.do("oooc")
	wantOpen(t, w, before.pid, 2)
	wantOpen(t, w, after.pid, 2)
	wantOpen(t, w, idle.pid, 0)
	after.do("cc")
	wantOpen(t, w, after.pid, 0)
	after.do("c") // one too many
	wantOpen(t, w, after.pid, 0)
	before.do("f")
	wantOpen(t, w, before.pid, 2)
	wantOpen(t, w, os.Getpid(), 0)
}

// More calls than a ring has room for, but not all of a sudden.
func TestManyCalls(t *testing.T) {
	dir := build(t)
	w := watch(t, dir)
	c := start(t, dir)
	for i := range 20 {
		c.do(strings.Repeat("oc", 250) + "o")
		wantOpen(t, w, c.pid, i+1)
	}
}

func TestCheck(t *testing.T) {
	dir := build(t)
	w := watch(t, dir)
	a, b := start(t, dir), start(t, dir)
	both := []gpuplugin.Process{a.process(), b.process()}
	a.do("oc")
	if err := w.Check(t.Context(), both); err != nil {
		t.Errorf("nothing is open: %v", err)
	}
	b.do("o")
	err := w.Check(t.Context(), both)
	if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), "process "+strconv.Itoa(b.pid)) ||
		strings.Contains(err.Error(), "process "+strconv.Itoa(a.pid)) || !strings.Contains(err.Error(), "1 legacy CUDA IPC") {
		t.Errorf("err = %v", err)
	}
	if err := w.Check(t.Context(), both[:1]); err != nil {
		t.Errorf("the other alone: %v", err)
	}
}

func TestCheckRefusesWhatIsNotWatched(t *testing.T) {
	dir, elsewhere := build(t), build(t)
	w := watch(t, dir)
	a, b := start(t, dir), start(t, elsewhere)
	err := w.Check(t.Context(), []gpuplugin.Process{a.process(), b.process()})
	if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), filepath.Join(elsewhere, "libcuda.so.1")) {
		t.Errorf("err = %v", err)
	}
	if err := w.Check(t.Context(), []gpuplugin.Process{b.process()}); err != nil {
		t.Errorf("a process alone: %v", err)
	}
	if err := w.Check(t.Context(), []gpuplugin.Process{a.process(), {PID: 1 << 22}}); err != nil {
		t.Errorf("a process that exited: %v", err)
	}
}

// codeOf is what the memory of a process has at each function.
func codeOf(t *testing.T, w *ipcwatch.Watcher, pid int) []byte {
	t.Helper()
	code, err := w.CodeOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestCleanAndRearm(t *testing.T) {
	dir := build(t)
	w, other := watch(t, dir), watch(t, dir)
	a, b := start(t, dir), start(t, dir)
	a.do("o")
	b.do("o")
	original := codeOf(t, w, a.pid)
	if err := w.Clean([]gpuplugin.Process{a.process(), {PID: 1 << 22}}); err != nil {
		t.Fatal(err)
	}
	cleaned := codeOf(t, w, a.pid)
	if bytes.Equal(cleaned, original) {
		t.Errorf("the code is as it was with the probes: %x", cleaned)
	}
	if want := w.OriginalCode(); !bytes.Equal(cleaned, want) {
		t.Errorf("the code is %x, want %x", cleaned, want)
	}
	a.do("o") // is not seen
	b.do("o")
	wantOpen(t, w, a.pid, 1)
	wantOpen(t, w, b.pid, 2)
	w.Rearm(t.Context())
	a.do("o")
	b.do("o")
	wantOpen(t, w, a.pid, 2)
	wantOpen(t, w, b.pid, 3)
	wantOpen(t, other, a.pid, 2)
}

func TestCloseRemovesTheProbes(t *testing.T) {
	dir := build(t)
	w := watch(t, "")
	if err := w.Add(filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	c := start(t, dir)
	c.do("oc")
	probed := codeOf(t, w, c.pid)
	second, err := ipcwatch.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Add(filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if got := codeOf(t, w, c.pid); !bytes.Equal(got, probed) {
		t.Errorf("the other watcher's probes went too: %x, was %x", got, probed)
	}
	c.do("o")
	wantOpen(t, w, c.pid, 1)
}

func TestAfterClose(t *testing.T) {
	dir := build(t)
	w := watch(t, dir)
	c := start(t, dir)
	c.do("o")
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Open(c.pid); !errors.Is(err, ipcwatch.ErrLost) {
		t.Errorf("Open: %v", err)
	}
	if err := w.Add(filepath.Join(dir, "libcuda.so.1")); !errors.Is(err, ipcwatch.ErrLost) {
		t.Errorf("Add: %v", err)
	}
	procs := []gpuplugin.Process{c.process(), {PID: os.Getpid()}}
	if err := w.Check(t.Context(), procs); !errors.Is(err, gpuplugin.ErrUnsupported) {
		t.Errorf("Check: %v", err)
	}
	if err := w.Clean(procs); err != nil {
		t.Errorf("Clean: %v", err)
	}
	w.Rearm(t.Context())
}

func TestAdd(t *testing.T) {
	dir := build(t)
	w := watch(t, dir)
	if err := w.Add(filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := os.Symlink("libcuda.so.1", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(filepath.Join(dir, "link")); err != nil {
		t.Errorf("under another name: %v", err)
	}
	c := start(t, dir)
	c.do("o")
	wantOpen(t, w, c.pid, 1) // and not 3
	if err := w.Add(filepath.Join(dir, "lib.c")); err == nil {
		t.Error("a text file is accepted")
	}
	if err := w.Add(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestLibraries(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "usr/local/cuda-12.8/compat/libcuda.so.570.2",
		"opt/gpu/libcuda.so.1", "usr/lib64/libcudart.so.12", "home/libcuda.so.1",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A link could lead out of the container's root.
	if err := os.Symlink("/usr/lib/libcuda.so.580.1", filepath.Join(root, "usr/lib/x86_64-linux-gnu/libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(ipcwatch.Libraries(root, "/opt/gpu", "/nonexistent"), " ")
	want := strings.Join([]string{
		root + "/opt/gpu/libcuda.so.1",
		root + "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1",
		root + "/usr/local/cuda-12.8/compat/libcuda.so.570.2",
	}, " ")
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestGuard(t *testing.T) {
	several := []gpuplugin.Process{{PID: 1}, {PID: 2}}
	t.Run("watches", func(t *testing.T) {
		watch(t, "") // or skip
		dir := build(t)
		g := ipcwatch.NewGuard()
		g.Attach(t.Context(), "/", dir)
		if err := g.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, b := start(t, dir), start(t, dir)
		procs := []gpuplugin.Process{a.process(), b.process()}
		if err := g.Check(t.Context(), procs); err != nil {
			t.Error(err)
		}
		a.do("o")
		if err := g.Check(t.Context(), procs); !errors.Is(err, gpuplugin.ErrUnsupported) {
			t.Errorf("err = %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses what it could not watch", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), []byte("no library"), 0o600); err != nil {
			t.Fatal(err)
		}
		g := ipcwatch.NewGuard()
		g.Attach(t.Context(), "/", dir)
		err := g.Check(t.Context(), several)
		if !errors.Is(err, gpuplugin.ErrUnsupported) {
			t.Errorf("err = %v", err)
		}
		if err := g.Check(t.Context(), several[:1]); err != nil {
			t.Errorf("a process alone: %v", err)
		}
		if err := errors.Join(g.Clean(several), g.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses if it was never attached", func(t *testing.T) {
		g := ipcwatch.NewGuard()
		if err := g.Check(t.Context(), several); !errors.Is(err, gpuplugin.ErrUnsupported) {
			t.Errorf("err = %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
