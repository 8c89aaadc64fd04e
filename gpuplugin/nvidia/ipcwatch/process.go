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
	if err != nil {
		return 0, gone(err)
	}
	// The name, in parentheses, may have spaces and parentheses of its own.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("process %d: stat is not understood: %q", pid, stat)
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	return ticks * (1e9 / ticksPerSecond), err
}

// gone makes the errors of a process that exits while one looks at it those of
// one that isn't there.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return err
}

// inode names a file, whatever its path.
type inode struct{ dev, ino uint64 }

func inodeOf(f *os.File) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return inode{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// mapping is a piece of a library in the memory of a process.
type mapping struct {
	start, end, offset uint64
	path               string
	code               bool
	// link leads to the file itself and not to its name, which may be
	// another's where we are.
	link string
	file inode
}

// at is where the process has what is at an offset in the file.
func (m mapping) at(offset uint64) (address int64, ok bool) {
	if !m.code || offset < m.offset || offset-m.offset >= m.end-m.start {
		return 0, false
	}
	return int64(m.start + offset - m.offset), true
}

// librariesIn lists where a process maps files named libcuda.so*.
func librariesIn(procfs string, pid int) ([]mapping, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil, gone(err)
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
		var st unix.Stat_t
		m.link = filepath.Join(dir, "map_files", fmt.Sprintf("%x-%x", m.start, m.end))
		if err := unix.Stat(m.link, &st); err != nil {
			return nil, gone(&os.PathError{Op: "stat", Path: m.link, Err: err})
		}
		m.file = inode{st.Dev, st.Ino}
		out = append(out, m)
	}
	return out, gone(lines.Err())
}

// parseMapping reads a line of proc_pid_maps(5); ok says that it's of libcuda.
func parseMapping(line string) (m mapping, ok bool, err error) {
	// address perms offset dev inode path; the path may have spaces.
	fields := strings.Fields(line)
	at := strings.IndexByte(line, '/')
	if len(fields) < 6 || at < 0 || !isLibrary(filepath.Base(line[at:])) {
		return m, false, nil
	}
	m.path, m.code = line[at:], strings.Contains(fields[1], "x")
	if _, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.start, &m.end, &m.offset); err != nil {
		return m, false, fmt.Errorf("maps: %q: %w", line, err)
	}
	return m, true, nil
}

// isLibrary tells whether a file with this name is libcuda.
func isLibrary(name string) bool { return strings.HasPrefix(name, "libcuda.so") }

// shown is a path that a container chose, as it may get into a log.
func shown(path string) string { return strings.Trim(strconv.Quote(path), `"`) }
