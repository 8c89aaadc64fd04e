// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Neither the host's name nor a thread may change: a thread that ends takes the
// children along that it started.
func TestSetHostname(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes UTS namespaces")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo here; read x; hostname")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	host, err := os.Hostname()
	must(t, err)
	seen := make(map[string]bool)
	for range 50 {
		must(t, setHostname(cmd.Process.Pid, "another"))
		now := threads(t)
		for id := range seen {
			if !now[id] {
				t.Fatalf("thread %s has ended", id)
			}
		}
		maps.Copy(seen, now)
	}
	if now, err := os.Hostname(); err != nil || now != host {
		t.Errorf("the host is called %s now, %v", now, err)
	}
	must(t, in.Close())
	if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "another" {
		t.Errorf("its hostname is %q, %v", line, err)
	}
	must(t, cmd.Wait())
	if err := setHostname(cmd.Process.Pid, "another"); !ended(err) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

func threads(t *testing.T) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	must(t, err)
	ids := make(map[string]bool, len(entries))
	for _, e := range entries {
		ids[e.Name()] = true
	}
	return ids
}
