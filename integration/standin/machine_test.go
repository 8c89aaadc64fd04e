// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// timeout bounds each step of a test.
const timeout = 20 * time.Second

// "make integration" passes it to every package; no shim runs in this one.
var _ = flag.String("runtime", "", "ignored")

// variants are the builds that every test of the driver runs against.
var variants = []struct{ name, sanitize string }{
	{"plain", ""},
	{"address", "address,undefined"},
	{"thread", "thread"},
}

// built is where a variant was built.
func built(variant string) string {
	return filepath.Join("..", "..", "bin", "standin", variant)
}

func TestMain(m *testing.M) {
	flag.Parse()
	for _, v := range variants {
		out, err := exec.Command("make", "-s", "-j2", "OUT="+built(v.name), "SANITIZE="+v.sanitize).CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "build the %s variant: %v\n%s", v.name, err, out)
			os.Exit(1)
		}
	}
	// Ranks outlive their parent by a moment, and CRIU wants their numbers
	// again: do not depend on how soon the machine's first process reaps them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become a subreaper:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bench is one machine and the programs of one variant.
type bench struct {
	*standin.Machine
	bin string
	env []string // more for its programs
}

func newBench(t *testing.T, variant string, s standin.Spec) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it reaches into other processes")
	}
	m, err := standin.New(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(built(variant))
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Machine: m, bin: bin}
}

func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(b.bin, name), args...)
	c.Env = append(os.Environ(), b.Env()...)
	// The sanitizer would wait a second at each end for more to happen.
	c.Env = append(c.Env, "TSAN_OPTIONS=atexit_sleep_ms=0 halt_on_error=1")
	c.Env = append(c.Env, b.env...)
	c.WaitDelay = time.Second
	return c
}

// ckpt runs steps on processes and returns the lines it printed.
func (b *bench) ckpt(t *testing.T, args ...any) (lines []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	words := strings.Fields(fmt.Sprintln(args...))
	out, err := b.command(ctx, "ckpt", words...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("ckpt %v: %v: %s", words, context.Cause(ctx), out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
}

// must runs steps that have to succeed.
func (b *bench) must(t *testing.T, args ...any) {
	t.Helper()
	if lines, err := b.ckpt(t, args...); err != nil {
		t.Fatalf("ckpt %v: %v: %q", args, err, lines)
	}
}

// refused runs steps of which the last has to fail with an error of that name.
func (b *bench) refused(t *testing.T, want string, args ...any) {
	t.Helper()
	lines, err := b.ckpt(t, args...)
	last := strings.Fields(lines[len(lines)-1])
	if err == nil || len(last) < 3 || last[2] != want {
		t.Fatalf("ckpt %v: %v: %q, want %s", args, err, lines, want)
	}
}

// state asserts the state of a process.
func (b *bench) state(t *testing.T, pid int, want string) {
	t.Helper()
	lines, err := b.ckpt(t, "s", pid)
	if err != nil || !strings.HasSuffix(lines[0], " CUDA_SUCCESS "+want) {
		t.Fatalf("state: %v: %q, want %s", err, lines, want)
	}
}

// used asserts how much device memory of a GPU processes have.
func (b *bench) used(t *testing.T, gpu standin.GPU, want uint64) {
	t.Helper()
	if got, err := b.UsedBytes(gpu.UUID); err != nil || got != want {
		t.Fatalf("%s: %d bytes in use, %v; want %d", gpu.UUID, got, err, want)
	}
}

// toy is a running toy. Its output goes to a file, which CRIU can restore.
type toy struct {
	*exec.Cmd
	output string
	ended  chan error
}

// start starts a toy in a session and process group of its own.
func (b *bench) start(t *testing.T, attr *syscall.SysProcAttr, args ...string) *toy {
	t.Helper()
	return b.startProgram(t, attr, "toy", args...)
}

// startProgram starts another program that prints what a toy prints.
func (b *bench) startProgram(t *testing.T, attr *syscall.SysProcAttr, program string, args ...string) *toy {
	t.Helper()
	y := &toy{
		Cmd:    b.command(context.WithoutCancel(t.Context()), program, args...),
		output: filepath.Join(t.TempDir(), "output"),
		ended:  make(chan error, 1),
	}
	f, err := os.OpenFile(y.output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	y.Stdout, y.Stderr = f, f
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setsid = true
	y.SysProcAttr = attr
	if err := y.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { y.ended <- y.Wait() }()
	t.Cleanup(func() {
		// The group, for the ranks; it may have ended by itself.
		if err := syscall.Kill(-y.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	})
	return y
}

func (y *toy) pid() int { return y.Process.Pid }

// ranks waits until each of n ranks has come to a tick and returns their PIDs.
func (y *toy) ranks(t *testing.T, n int) []int {
	t.Helper()
	for r := range n {
		y.reaches(t, r, 1)
	}
	children := fmt.Sprintf("/proc/%d/task/%d/children", y.pid(), y.pid())
	text, err := os.ReadFile(children)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for w := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(w)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != n {
		t.Fatalf("%d ranks, want %d", len(pids), n)
	}
	return pids
}

// last is the last tick of a rank. Any line that is not the next tick of its
// rank is an error.
func (y *toy) last(rank int) (int, error) {
	text, err := os.ReadFile(y.output)
	if err != nil {
		return 0, err
	}
	ticks := map[int]int{}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[:len(lines)-1] {
		var r, k int
		var sum string
		full := line
		if !strings.HasPrefix(line, "rank ") {
			full = "rank 0 " + line
		}
		if _, err := fmt.Sscanf(full, "rank %d tick %d sum %s", &r, &k, &sum); err != nil || k != ticks[r]+1 {
			return 0, fmt.Errorf("after tick %d of rank %d: %q", ticks[r], r, line)
		}
		ticks[r] = k
	}
	return ticks[rank], nil
}

// reaches waits until a rank has come to a tick.
func (y *toy) reaches(t *testing.T, rank, tick int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := testbed.Eventually(ctx, fmt.Sprintf("rank %d comes to tick %d", rank, tick), func() error {
		k, err := y.last(rank)
		if err != nil {
			return testbed.Permanent(err)
		}
		if k < tick {
			return fmt.Errorf("it is at tick %d", k)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goesOn waits until a rank has made three more ticks, without a gap.
func (y *toy) goesOn(t *testing.T, rank int) {
	t.Helper()
	k, err := y.last(rank)
	if err != nil {
		t.Fatal(err)
	}
	y.reaches(t, rank, k+3)
}

// rests asserts that a rank makes no tick for longer than ten take.
func (y *toy) rests(t *testing.T, rank int) {
	t.Helper()
	before, err := y.last(rank)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(150 * time.Millisecond)
	if after, err := y.last(rank); err != nil || after > before+1 { // one may have been under way
		t.Fatalf("rank %d went on from tick %d to %d, %v", rank, before, after, err)
	}
}

// fails waits until the toy has ended by itself and returns its last line.
func (y *toy) fails(t *testing.T) string {
	t.Helper()
	select {
	case err := <-y.ended:
		if err == nil {
			t.Fatal("the toy ended well")
		}
	case <-time.After(timeout):
		t.Fatal("the toy goes on")
	}
	text, err := os.ReadFile(y.output)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// held lists the device files that a process has open.
func (b *bench) held(t *testing.T, pid int) (names []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		// The node, or what it is a link to (standin.Machine).
		if strings.HasPrefix(target, b.Dir) || target == "/dev/fuse" || target == "/dev/loop-control" {
			names = append(names, target)
		}
	}
	return names
}
