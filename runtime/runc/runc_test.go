// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
)

func TestCRIUConfig(t *testing.T) {
	dir := t.TempDir()
	user := filepath.Join(dir, "user.conf")
	if err := os.WriteFile(user, []byte("tcp-close\nghost-limit 5"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config CRIUConfig
		want   string
	}{
		"nothing":       {CRIUConfig{}, ""},
		"iptables":      {CRIUConfig{NetworkLock: LockIPTables}, ""},
		"lock and time": {CRIUConfig{NetworkLock: LockSkip, Timeout: 90 * time.Second}, "network-lock skip\ntimeout 90\n"},
		"short time":    {CRIUConfig{Timeout: time.Millisecond}, "timeout 1\n"},
		"all flags": {
			CRIUConfig{LogLevel: 4, TCPEstablished: true, TCPClose: true, ExternalUnixSockets: true, FileLocks: true, DeletedFiles: true, Terminal: true, AllowUprobes: true},
			"verbosity 4\ntcp-established\ntcp-close\next-unix-sk\nfile-locks\nlink-remap\nghost-limit 1G\nshell-job\nallow-uprobes\n",
		},
		"the user's come last":  {CRIUConfig{TCPEstablished: true, User: user}, "tcp-established\n# From \"" + user + "\":\ntcp-close\nghost-limit 5\n"},
		"the user's is missing": {CRIUConfig{User: filepath.Join(dir, "none")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "criu.conf")
			if err := tc.config.Write(file); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ := strings.Cut(string(data), "\n") // without the title
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if err := (CRIUConfig{User: dir}).Write(filepath.Join(dir, "out")); err == nil {
		t.Error("a directory was taken for the user's file")
	}
}

func TestCRIUErrors(t *testing.T) {
	var log strings.Builder
	fmt.Fprintln(&log, "(00.001) fine")
	for i := range 100 {
		fmt.Fprintf(&log, "(00.002) Error (criu/x.c:%d): no %d\n(00.003) fine\n", i, i)
	}
	got := CRIUErrors(strings.NewReader(log.String()))
	if len(got) != mostErrorLines || got[len(got)-1] != "Error (criu/x.c:99): no 99" {
		t.Errorf("got %q", got)
	}
	if got := CRIUErrors(strings.NewReader("fine\n")); len(got) != 0 {
		t.Errorf("got %q of a log without errors", got)
	}
}

func TestKeepLogDropsTheOldest(t *testing.T) {
	dir, from := t.TempDir(), filepath.Join(t.TempDir(), "dump.log")
	if err := os.WriteFile(from, []byte("why"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range mostLogs + 5 {
		name := filepath.Join(dir, fmt.Sprintf("20000101T000000.%03d-x.log", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := KeepLog(dir, "ns-id-dump", from)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "why" {
		t.Errorf("kept %q, %v", data, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) != mostLogs {
		t.Errorf("%d logs, %v, want %d", len(names), err, mostLogs)
	}
	if _, err := os.Stat(filepath.Join(dir, "20000101T000000.000-x.log")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the oldest log is still there")
	}
}

// fakeRuntime is a program in the runtime's place; its arguments are in the
// file args beside it.
func fakeRuntime(t *testing.T, script string) *Container {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "runtime")
	text := "#!/bin/sh\necho \"$@\" > " + dir + "/args\necho \"$PATH\" > " + dir + "/path\n" + script
	if err := os.WriteFile(binary, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Container{ID: "c", Namespace: "ns", Bundle: dir, Binary: binary, Root: "/r", CRIU: "/opt/x/criu", LogDir: filepath.Join(dir, "logs")}
}

func (c *Container) seen(t *testing.T, what string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Bundle, what))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestCheckpointArguments(t *testing.T) {
	c := fakeRuntime(t, "")
	c.SystemdCgroup = true
	d := Dump{Dir: "/img", WorkDir: filepath.Join(c.Bundle, "w"), Parent: "../p", EmptyNamespaces: []string{"network"}, TCPEstablished: true, UnixSockets: true, Terminal: true, FileLocks: true}
	if err := c.Checkpoint(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want := "--root /r --systemd-cgroup checkpoint --image-path /img --work-path " + d.WorkDir +
		" --parent-path ../p --leave-running --tcp-established --ext-unix-sk --shell-job --file-locks --empty-ns network c"
	if got := c.seen(t, "args"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := c.seen(t, "path"); !strings.HasPrefix(got, "/opt/x:") {
		t.Errorf("PATH is %s", got)
	}
	if _, err := os.Stat(d.WorkDir); err != nil {
		t.Error("the work directory that the user named is gone")
	}
	if err := c.Checkpoint(t.Context(), Dump{Dir: "/img", Exit: true}); err != nil {
		t.Fatal(err)
	}
	if got := c.seen(t, "args"); strings.Contains(got, "--leave-running") {
		t.Errorf("got %s", got)
	}
	if _, err := os.Stat(filepath.Join(c.Bundle, "work", "hetgpu-dump")); !errors.Is(err, os.ErrNotExist) {
		t.Error("our own work directory is still there")
	}
}

func TestCheckpointFails(t *testing.T) {
	c := fakeRuntime(t, `
while [ $# -gt 0 ]; do [ "$1" = --work-path ] && work=$2; shift; done
echo '(00.01) Error (criu/files.c:1): no such thing' > $work/dump.log
echo 'criu failed: type NOTIFY errno 0' >&2
exit 1`)
	err := c.Checkpoint(t.Context(), Dump{Dir: "/img"})
	e := (*Error)(nil)
	exit := (*execx.ExitError)(nil)
	if !errors.As(err, &e) || !errors.As(err, &exit) || exit.Status != 1 {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"runc checkpoint", "criu failed: type NOTIFY", "no such thing", e.Log} {
		if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q has no %q", err, want)
		}
	}
	if data, err := os.ReadFile(e.Log); err != nil || !strings.Contains(string(data), "no such thing") {
		t.Errorf("the kept log has %q, %v", data, err)
	}
}

func TestMessage(t *testing.T) {
	for out, want := range map[string]string{
		"": "",
		"time=\"x\" level=warning msg=\"69:pts (00.1) Error (a)\"\ntime=\"x\" level=error msg=\"criu failed: type NOTIFY errno 0\"\n": "criu failed: type NOTIFY errno 0",
		"time=\"x\" level=error msg=\"open \\\"/x\\\": no\"\n":                                                                        "open \"/x\": no",
		"time=\"x\" level=error msg=short\n":                                                                                          "short",
		"runc: not found\n":                                                                                                           "runc: not found",
		"time=\"x\" level=info msg=\"fine\"\nwhy\n":                                                                                   "why",
	} {
		if got := message(out); got != want {
			t.Errorf("%q: got %q, want %q", out, got, want)
		}
	}
}

func TestIsWorker(t *testing.T) {
	dir := t.TempDir()
	for _, program := range []string{"criu", "other"} {
		if err := os.WriteFile(filepath.Join(dir, program), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for pid, tc := range map[string]struct {
		exe, line string
		want      bool
	}{
		"1": {"criu", "criu\x00swrk\x003\x00", true},
		"2": {"criu", "criu: dump --rpc -t 7", true},
		"3": {"criu", "/opt/criu\x00--version\x00", false},
		"4": {"criu", "/opt/criu\x00check\x00", false},
		"5": {"other", "criu\x00swrk\x003\x00", false},
		"6": {"gone", "criu\x00swrk\x003\x00", false},
	} {
		if err := os.MkdirAll(filepath.Join(dir, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, tc.exe), filepath.Join(dir, pid, "exe")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, pid, "cmdline"), []byte(tc.line), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isWorker(dir, pid, filepath.Join(dir, "criu")); got != tc.want {
			t.Errorf("process %s: %t, want %t", pid, got, tc.want)
		}
	}
	if isWorker(dir, "1", "") {
		t.Error("without a CRIU there is no worker")
	}
}
