// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which Linux has fixed for user space.
const ticksPerSecond = 100

// startTime is when a process was started, in nanoseconds since boot, rounded
// down (field 22 of proc_pid_stat(5)).
func startTime(procfs string, pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if errors.Is(err, unix.ESRCH) {
		err = fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have spaces and parentheses of its own.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("process %d: stat is not understood: %q", pid, stat)
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	return ticks * (1e9 / ticksPerSecond), err
}

// sleptFor is how much CLOCK_BOOTTIME, by which the kernel counts the start of
// processes, is ahead of CLOCK_MONOTONIC, by which it stamps the calls.
func sleptFor() uint64 {
	var boot, mono unix.Timespec
	// Neither can fail on a kernel that has uprobes.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return uint64(max(boot.Nano()-mono.Nano(), 0))
}

// mapping is a piece of a library in the memory of a process.
type mapping struct {
	start, end, offset uint64
	path               string
	file               inode
	code               bool
}

// librariesIn lists where a process maps files named libcuda.so*.
func librariesIn(procfs string, pid int) ([]mapping, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []mapping
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m, ok, err := parseMapping(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if !ok {
			continue
		}
		// The file itself and not its name, which may be another's in there.
		var st unix.Stat_t
		link := filepath.Join(dir, "map_files", fmt.Sprintf("%x-%x", m.start, m.end))
		if err := unix.Stat(link, &st); err != nil {
			return nil, fmt.Errorf("process %d: stat of its mapping %s: %s", pid, link, err) //nolint:errorlint // ENOENT is no exit here
		}
		m.file = inode{st.Dev, st.Ino}
		out = append(out, m)
	}
	return out, lines.Err()
}

// parseMapping reads a line of proc_pid_maps(5); ok says that it's of libcuda.
func parseMapping(line string) (m mapping, ok bool, err error) {
	fields := strings.Fields(line)
	if len(fields) < 6 || !strings.HasPrefix(filepath.Base(fields[5]), "libcuda.so") {
		return m, false, nil
	}
	m.path, m.code = fields[5], strings.Contains(fields[1], "x")
	if _, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.start, &m.end, &m.offset); err != nil {
		return m, false, fmt.Errorf("maps: %q: %w", line, err)
	}
	return m, true, nil
}
