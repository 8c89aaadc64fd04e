// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A CRIU that dumps one of the container's processes is ended, and nothing
// else: not one that dumps another's, nor what only mentions it.
func TestEndCRIU(t *testing.T) {
	for name, tc := range map[string]struct {
		line  string
		ended bool
	}{
		"ours":           {"criu: dump --rpc -t 4711\x00", true},
		"ours, padded":   {"criu: dump --rpc -t 4711      \x00\x00", true},
		"another's":      {"criu: dump --rpc -t 471\x00", false},
		"another's, too": {"criu: dump --rpc -t 47110\x00", false},
		"no CRIU":        {"vi\x00criu: dump --rpc -t 4711\x00", false},
		"a restore":      {"criu: restore --rpc\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(proc, strconv.Itoa(cmd.Process.Pid))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(tc.line), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := endCRIU(t.Context(), proc, []int{4711}); err != nil {
				t.Fatal(err)
			}
			// The first signal wins.
			_ = cmd.Process.Signal(syscall.SIGTERM)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatal(err)
			}
			status, _ := exit.Sys().(syscall.WaitStatus)
			if ended := status.Signal() == syscall.SIGKILL; ended != tc.ended {
				t.Errorf("ended by %v", status.Signal())
			}
		})
	}
}
