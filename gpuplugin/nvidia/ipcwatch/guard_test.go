// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
)

// lib is a library whose functions return what they are told. One says so and
// waits for a byte if that is negative.
const lib = `
#include <unistd.h>
int cuIpcOpenMemHandle_v2(int result)
{
	char c;

	return result >= 0 ? result : write(1, "w\n", 2) != 2 || read(0, &c, 1) != 1;
}
int cuIpcCloseMemHandle(int result) { return result; }
int cuIpcOpenEventHandle(int result) { return result; }
`

// program calls them as it is told, and says so.
const program = `
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int cuIpcOpenMemHandle_v2(int);
int cuIpcCloseMemHandle(int);
int cuIpcOpenEventHandle(int);
int main(void)
{
	char c;

	while (read(0, &c, 1) == 1) {
		if (c == 'w') {
			cuIpcOpenMemHandle_v2(-1);
			continue;
		}
		printf("%c\n", c);
		switch (c) {
		case 'o': cuIpcOpenMemHandle_v2(0); break;
		case 'O': cuIpcOpenMemHandle_v2(1); break;
		case 'c': cuIpcCloseMemHandle(0); break;
		case 'C': cuIpcCloseMemHandle(1); break;
		case 'e': cuIpcOpenEventHandle(0); break;
		case 'E': cuIpcOpenEventHandle(1); break;
		case 'f': /* a child that opens one and exits */
			if (fork() == 0) {
				cuIpcOpenMemHandle_v2(0);
				_exit(0);
			}
			wait(0);
		}
		fflush(stdout);
	}
	return 0;
}
`

// build compiles the library and the program and returns the directory.
func build(t *testing.T) string {
	t.Helper()
	if err := ipcwatch.Supported(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"lib.c": lib, "program.c": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"-shared -fPIC -O1 -Wl,-soname,libcuda.so.1 -o libcuda.so.1 lib.c",
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
		c.tell(string(call))
		if line, err := c.out.ReadString('\n'); err != nil || line != string(call)+"\n" {
			c.t.Fatalf("%c: %q, %v", call, line, err)
		}
	}
}

func (c *child) tell(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		c.t.Fatal(err)
	}
}

func processes(children ...*child) (procs []gpuplugin.Process) {
	for _, c := range children {
		procs = append(procs, gpuplugin.Process{PID: c.pid, State: gpuplugin.StateRunning})
	}
	return procs
}

// guard watches the library in a directory.
func guard(t *testing.T, dir string) *ipcwatch.Guard {
	t.Helper()
	g := ipcwatch.NewGuard()
	g.Attach(t.Context(), []int{os.Getpid()}, dir)
	g.Wait(t.Context())
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// wantCheck fails unless Check has this to say, "" for nothing.
func wantCheck(t *testing.T, g *ipcwatch.Guard, procs []gpuplugin.Process, want string) {
	t.Helper()
	err := g.Check(t.Context(), procs)
	if want == "" {
		if err != nil {
			t.Errorf("err = %v", err)
		}
		return
	}
	if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("err = %v, want %q", err, want)
	}
}

func wantArmed(t *testing.T, c *child, want int) {
	t.Helper()
	const all = 3
	if got, functions, err := ipcwatch.Armed(c.pid); err != nil || got != want || functions != all {
		t.Errorf("%d of %d functions have a breakpoint, %v; want %d of %d", got, functions, err, want, all)
	}
}

func TestCounts(t *testing.T) { testCounts(t) }

// Kernels before 6.6 set each probe by itself.
func TestCountsByEach(t *testing.T) {
	if !ipcwatch.AttachesMany() {
		t.Skip("this kernel sets each probe by itself, so TestCounts has shown it")
	}
	ipcwatch.AttachEach(t)
	testCounts(t)
}

func testCounts(t *testing.T) {
	t.Helper()
	dir := build(t)
	g := guard(t, dir)
	for calls, want := range map[string]string{
		"":                          "",
		"oc":                        "",
		"o":                         "1 legacy CUDA IPC handles",
		"oooc":                      "2 legacy CUDA IPC handles",
		"OE":                        "",
		"oC":                        "1 legacy CUDA IPC handles",
		"c":                         "closed handles",
		"oce":                       "1 legacy CUDA IPC events",
		"f":                         "",
		"of":                        "1 legacy CUDA IPC handles",
		strings.Repeat("oc", 5000):  "",
		strings.Repeat("oco", 1000): "1000 legacy CUDA IPC handles",
	} {
		t.Run(fmt.Sprintf("%.6s", calls), func(t *testing.T) {
			c, idle := start(t, dir), start(t, dir)
			c.do(calls)
			wantCheck(t, g, processes(c, idle), want)
			err := g.Check(t.Context(), processes(c, idle))
			if err != nil && !strings.Contains(err.Error(), "process "+strconv.Itoa(c.pid)) || err != nil && strings.Contains(err.Error(), "process "+strconv.Itoa(idle.pid)) {
				t.Errorf("the wrong process is named: %v", err)
			}
		})
	}
}

func TestCallUnderWay(t *testing.T) {
	dir := build(t)
	g := guard(t, dir)
	c, idle := start(t, dir), start(t, dir)
	c.do("w")
	wantCheck(t, g, processes(c, idle), "under way")
	c.tell("x")
	c.do("-")
	wantCheck(t, g, processes(c, idle), "1 legacy CUDA IPC handles")
	c.do("c")
	wantCheck(t, g, processes(c, idle), "")
}

// A process alone has nobody to share with, so what can't be told is no reason
// to refuse it; what was seen is.
func TestProcessAlone(t *testing.T) {
	dir, elsewhere := build(t), build(t)
	g := guard(t, dir)
	a, b := start(t, dir), start(t, elsewhere)
	wantCheck(t, g, processes(b), "")
	a.do("o")
	wantCheck(t, g, processes(a), "1 legacy CUDA IPC handles")
}

func TestUnwatched(t *testing.T) {
	dir, elsewhere := build(t), build(t)
	g := guard(t, dir)
	a, b := start(t, dir), start(t, elsewhere)
	wantCheck(t, g, processes(a, b), filepath.Join(elsewhere, "libcuda.so.1"))
	if err := g.Check(t.Context(), processes(a, b)); !errors.Is(err, ipcwatch.ErrUnwatched) {
		t.Errorf("err = %v", err)
	}
	wantCheck(t, g, append(processes(a), gpuplugin.Process{PID: 1 << 22}), "")
	wantCheck(t, g, append(processes(a), gpuplugin.Process{PID: os.Getpid()}), "no file named libcuda.so")
}

// What a process maps when the guard is attached is watched wherever it is: so
// restored processes are found.
func TestProcessesThatExist(t *testing.T) {
	dir := build(t)
	a, b := start(t, dir), start(t, dir)
	wantArmed(t, a, 0)
	g := ipcwatch.NewGuard()
	g.Attach(t.Context(), []int{a.pid, b.pid, 1 << 22})
	wantCheck(t, g, processes(a, b), "")
	wantArmed(t, a, 3)
	b.do("o")
	wantCheck(t, g, processes(a, b), "1 legacy CUDA IPC handles")
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	wantArmed(t, a, 0)
	wantCheck(t, g, processes(a, b), "the watch has ended")
	wantCheck(t, g, processes(b), "")
}

func TestGuardsDoNotDisturbOneAnother(t *testing.T) {
	dir := build(t)
	g := guard(t, dir)
	a, b := start(t, dir), start(t, dir)
	a.do("o")
	other := ipcwatch.NewGuard()
	other.Attach(t.Context(), []int{os.Getpid()}, dir)
	a.do("c")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	wantArmed(t, a, 3)
	wantCheck(t, g, processes(a, b), "")
}

func TestClean(t *testing.T) {
	dir := build(t)
	g, other := guard(t, dir), guard(t, dir)
	a, b := start(t, dir), start(t, dir)
	both := processes(a, b)
	a.do("oc") // it has been hit once
	undo, err := ipcwatch.Clean([]int{a.pid, 1 << 22, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	wantArmed(t, a, 0)
	wantArmed(t, b, 3)
	a.do("oc") // it works, and nobody sees it
	wantCheck(t, g, both, "the probe of")
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	wantArmed(t, a, 3)
	wantCheck(t, g, both, "")
	a.do("o")
	wantCheck(t, g, both, "1 legacy CUDA IPC handles")
	wantCheck(t, other, both, "1 legacy CUDA IPC handles")
}

func TestCleanIsNotNeededWithoutProbes(t *testing.T) {
	dir := build(t)
	a := start(t, dir)
	undo, err := ipcwatch.Clean([]int{a.pid})
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	a.do("oc")
}

func TestBlind(t *testing.T) {
	dir := build(t)
	g := guard(t, dir)
	a, b := start(t, dir), start(t, dir)
	g.Blind(errors.New("out of luck"))
	wantCheck(t, g, processes(a, b), "out of luck")
}

// Files that only are named like libraries disturb nobody.
func TestOddFiles(t *testing.T) {
	dir := build(t)
	for _, name := range []string{"libcuda.so", "libcuda.so.2"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("INPUT(libcuda.so.1)"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := guard(t, dir)
	a, b := start(t, dir), start(t, dir)
	wantCheck(t, g, processes(a, b), "")
	a.do("o")
	wantCheck(t, g, processes(a, b), "1 legacy CUDA IPC handles") // and not more under another name
}

// What a program has put in the place of a function is its own.
func TestCleanLeavesHooks(t *testing.T) {
	dir := build(t)
	a := start(t, dir)
	at, err := ipcwatch.Symbol(a.pid, "cuIpcCloseMemHandle")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", a.pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	hook := []byte{0x90, 0x90, 0x90, 0x90}
	if _, err := memory.WriteAt(hook, at); err != nil {
		t.Fatal(err)
	}
	if _, err := ipcwatch.Clean([]int{a.pid}); err != nil {
		t.Fatal(err)
	}
	now := make([]byte, len(hook))
	if _, err := memory.ReadAt(now, at); err != nil || !bytes.Equal(now, hook) {
		t.Errorf("the hook is %x, %v", now, err)
	}
}

// Nobody waits for ever for a file system of the container.
func TestCloseOfHung(t *testing.T) {
	g, goOn := ipcwatch.Hung(time.Millisecond)
	if err := g.Close(); err == nil || !strings.Contains(err.Error(), "did not end within 1ms") {
		t.Errorf("err = %v", err)
	}
	goOn()
	wantCheck(t, g, []gpuplugin.Process{{PID: 1}, {PID: 2}}, "the watch has ended")
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestNeverAttached(t *testing.T) {
	g := ipcwatch.NewGuard()
	wantCheck(t, g, []gpuplugin.Process{{PID: 1}}, "")
	wantCheck(t, g, []gpuplugin.Process{{PID: 1}, {PID: 2}}, "nobody has watched")
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// One that isn't ready in time is never trusted, and one that is, always.
func TestWait(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	dir := build(t)
	a, b := start(t, dir), start(t, dir)
	g := ipcwatch.NewGuard()
	g.Wait(ended)
	g.Attach(t.Context(), []int{a.pid})
	g.Wait(t.Context())
	wantCheck(t, g, processes(a, b), "too late")
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	g = guard(t, dir)
	for range 20 {
		g.Wait(ended)
	}
	wantCheck(t, g, processes(a, b), "")
}
