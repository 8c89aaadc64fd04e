// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// procView is what the kernel says of one process.
type procView struct {
	// comm is its name, for people.
	comm string
	// stopped says that a signal or a debugger has stopped it.
	stopped bool
	// files are the NVIDIA device files that it holds open or mapped, sorted.
	files []string
	// managed is an estimate of its managed memory in bytes (see parseMaps).
	managed uint64
}

// viewProcess reads what the kernel says of a process. It fails with
// os.ErrNotExist if there is no such process, and otherwise if any part can't
// be read: half a view could hide a device.
func viewProcess(procfs string, pid int) (procView, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	view, err := readView(dir)
	if errors.Is(err, syscall.ESRCH) { // it exited while we were reading
		err = fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return view, err
}

func readView(dir string) (procView, error) {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return procView{}, err
	}
	view := procView{comm: strings.TrimSpace(string(comm))}
	if view.stopped, err = isStopped(filepath.Join(dir, "stat")); err != nil {
		return view, err
	}
	open, err := openFiles(filepath.Join(dir, "fd"))
	if err != nil {
		return view, err
	}
	mapped, managed, err := mappedFiles(filepath.Join(dir, "maps"))
	if err != nil {
		return view, err
	}
	view.files, view.managed = append(open, mapped...), managed
	slices.Sort(view.files)
	view.files = slices.Compact(view.files)
	return view, nil
}

// isStopped reads the state of a process (field 3 of proc_pid_stat(5)).
func isStopped(path string) (bool, error) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	// The name, in parentheses, may have spaces and parentheses of its own.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && strings.EqualFold(fields[0], "t"), nil
}

// printable is a name that a container chose, as it may get into a log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func openFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		switch {
		case errors.Is(err, os.ErrNotExist): // closed meanwhile
		case err != nil:
			return nil, err
		case isDevice(target):
			files = append(files, target)
		}
	}
	return files, nil
}

func mappedFiles(path string) (files []string, managed uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// start-end perms offset dev inode path (proc_pid_maps(5))
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !isDevice(fields[5]) {
			continue
		}
		files = append(files, fields[5])
		managed += managedBytes(fields)
	}
	return files, managed, lines.Err()
}

// managedBytes is the size of a mapping if it looks like managed memory: of
// /dev/nvidia-uvm, shared and writable, at an offset that is its own address,
// above the low addresses that each CUDA program has for the driver's own use.
// Seen on driver 580; documented nowhere, so it may improve a message and
// decide nothing.
func managedBytes(fields []string) uint64 {
	const lowest = 1 << 40
	start, end, _ := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseUint(start, 16, 64)
	to, err2 := strconv.ParseUint(end, 16, 64)
	offset, err3 := strconv.ParseUint(fields[2], 16, 64)
	if errors.Join(err1, err2, err3) != nil || fields[5] != "/dev/nvidia-uvm" || fields[1] != "rw-s" ||
		offset != from || from < lowest || to < from {
		return 0
	}
	return to - from
}

// isDevice says whether a path is a device file through which GPU state can be
// held. Mode setting, and the capability files, which open nothing by
// themselves, can't.
func isDevice(path string) bool {
	name, ok := strings.CutPrefix(path, "/dev/nvidia")
	return ok && !strings.HasPrefix(name, "-modeset") && !strings.HasPrefix(name, "-caps")
}

// minors are the numbers of the GPUs among device files, without duplicates.
func minors(files []string) []int {
	var out []int
	for _, f := range files {
		if n, err := strconv.Atoi(strings.TrimPrefix(f, "/dev/nvidia")); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	return out
}
