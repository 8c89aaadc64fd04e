// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		unified    bool
	}{
		"unified":          {"0::/kubepods/pod1/c\n", "/kubepods/pod1/c", true},
		"version 1":        {"9:freezer:/default/c\n2:cpu,cpuacct:/x\n0::/\n", "/freezer/default/c", false},
		"hybrid":           {"0::/system.slice\n12:freezer:/c\n", "/freezer/c", false},
		"both, unified":    {"12:freezer:/c\n0::/system.slice\n", "/system.slice", true},
		"colons in a path": {"0::/system.slice:ctr:id\n", "/system.slice:ctr:id", true},
		"no freezer":       {"2:cpu,cpuacct:/x\n", "", false},
		"empty":            {"", "", false},
		"not a line":       {"nonsense\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.Mkdir(filepath.Join(proc, "5"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, "5", "cgroup"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := of(proc, "/", 5, tc.unified)
			if tc.want == "" {
				if err == nil {
					t.Fatalf("got %+v, want an error", c)
				}
				return
			}
			if err != nil || c.Path() != tc.want || c.Unified() != tc.unified {
				t.Errorf("got %+v, %v", c, err)
			}
		})
	}
	if _, err := of(t.TempDir(), "", 5, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want a missing process", err)
	}
}

// The real freezer of this machine, whichever version it has.
func TestFreezeAndThaw(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a cgroup")
	}
	self, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	root := Root
	if !self.unified {
		root = filepath.Join(Root, "freezer")
	}
	c := &Cgroup{dir: filepath.Join(root, fmt.Sprintf("hetgpu-test-%d", os.Getpid())), unified: self.unified}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Thaw(context.Background()); err != nil {
			t.Error(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := os.Remove(c.dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(c.dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	pids, err := c.PIDs()
	if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Fatalf("processes are %v, %v", pids, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, step := range []struct {
		do   func(context.Context) error
		want bool
	}{{c.Freeze, true}, {c.Freeze, true}, {c.Thaw, false}, {c.Thaw, false}, {c.Freeze, true}} {
		if err := step.do(ctx); err != nil {
			t.Fatal(err)
		}
		if frozen, err := c.Frozen(); err != nil || frozen != step.want {
			t.Fatalf("frozen is %t, %v, want %t", frozen, err, step.want)
		}
	}
	// It is frozen now, and dies nevertheless.
	if err := c.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process ended with %v", err)
	}
	if err := c.Kill(ctx); err != nil {
		t.Errorf("kill of an empty group: %v", err)
	}
}

func TestFreezeEndsWithItsContext(t *testing.T) {
	dir := t.TempDir() // a freezer that never gets there
	for name, text := range map[string]string{"cgroup.freeze": "0\n", "cgroup.events": "populated 1\nfrozen 0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	if err := (&Cgroup{dir: dir, unified: true}).Freeze(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %v, want %v and the group", err, why)
	}
}

func TestPIDs(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup.procs": "10\n", "a/cgroup.procs": "", "a/b/cgroup.procs": "11\n12\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cgroup{dir: dir}
	pids, err := c.PIDs()
	slices.Sort(pids)
	if err != nil || !slices.Equal(pids, []int{10, 11, 12}) {
		t.Errorf("got %v, %v", pids, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "cgroup.procs"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PIDs(); err == nil {
		t.Error("a process of another PID namespace was not noticed")
	}
	if pids, err := (&Cgroup{dir: filepath.Join(dir, "gone")}).PIDs(); err != nil || len(pids) > 0 {
		t.Errorf("a group that is gone has %v, %v", pids, err)
	}
}

func TestNamed(t *testing.T) {
	for _, tc := range []struct{ dir, path, want string }{
		{"/g/default/c", "/default/c", "/g/default/c"},
		{"/g/default/c/init.scope", "/default/c", "/g/default/c"},
		{"/g/default/c/a/b", "/default/c", "/g/default/c"},
		{"/g/system.slice/ctr-c.scope/init", "system.slice:ctr:c", "/g/system.slice/ctr-c.scope"},
		{"/g/elsewhere", "/default/c", "/g/elsewhere"},
		{"/g/elsewhere", "", "/g/elsewhere"},
	} {
		if got := (&Cgroup{dir: tc.dir}).named(tc.path).dir; got != tc.want {
			t.Errorf("%s of %s: %s, want %s", tc.path, tc.dir, got, tc.want)
		}
	}
}

// What can't be frozen is killed nevertheless.
func TestKillWithoutFreeze(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // a freezer that never gets there
	for name, text := range map[string]string{
		"cgroup.freeze": "0\n", "cgroup.events": "frozen 0\n", "cgroup.procs": strconv.Itoa(cmd.Process.Pid) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Cgroup{dir: dir, unified: true}).Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	if err := (&Cgroup{dir: filepath.Join(dir, "gone"), unified: true}).Kill(t.Context()); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
}

// The groups of a restore that did not get far are removed with what is in
// them, on the machine's real hierarchy; those of somebody else never.
func TestFreshAndRemove(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a cgroup")
	}
	path := fmt.Sprintf("/hetgpu-test-remove-%d", os.Getpid())
	groups, err := Fresh(path)
	if err != nil || len(groups) == 0 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	self, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{Root + path}
	if !self.unified {
		dirs = []string{Root + "/freezer" + path, Root + "/memory" + path}
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := Fresh(path); err != nil || len(again) > 0 {
		t.Errorf("groups that are there already: %d, %v", len(again), err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := groups.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	for _, none := range []string{"", "/", "system.slice:ctr:c"} {
		if groups, err := Fresh(none); err != nil || len(groups) > 0 {
			t.Errorf("%q: %d groups, %v", none, len(groups), err)
		}
	}
}
