// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// exited says whether a process has no thread left that runs. Its memory, and
// all CUDA state with it, is gone then, whether it has been reaped or not.
func exited(pid int) bool { return exitedIn("/proc", pid) }

func exitedIn(procfs string, pid int) bool {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	if !isZombie(stat) {
		return false
	}
	// The first thread may have ended before the others.
	tasks, err := os.ReadDir(filepath.Join(dir, "task"))
	return err == nil && len(tasks) <= 1
}

// isZombie reads the state of proc_pid_stat(5). It follows the name in
// parentheses, and the name may have parentheses of its own.
func isZombie(stat []byte) bool {
	i := bytes.LastIndex(stat, []byte(") "))
	return i >= 0 && i+2 < len(stat) && (stat[i+2] == 'Z' || stat[i+2] == 'X')
}
