// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// Armed tells how many of the functions have a breakpoint in the memory of a
// process, and how many there are.
func Armed(pid int) (armed, all int, err error) {
	maps, err := librariesIn("/proc", pid)
	if err != nil {
		return 0, 0, err
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, 0, err
	}
	defer memory.Close()
	c := cleaner{procfs: "/proc", known: make(map[inode][]symbol)}
	for _, m := range maps {
		symbols, err := c.symbols(m)
		if err != nil {
			return 0, 0, err
		}
		for _, s := range symbols {
			at, ok := m.at(s.offset)
			if !ok {
				continue
			}
			now := make([]byte, len(s.code))
			if _, err := memory.ReadAt(now, at); err != nil {
				return 0, 0, err
			}
			if all++; !bytes.Equal(now, s.code) {
				armed++
			}
		}
	}
	return armed, all, nil
}

// AttachEach has kernels set probes as those before 6.6 do.
func AttachEach(t *testing.T) {
	t.Helper()
	was := attachKind()
	kind.is = ebpf.AttachNone
	t.Cleanup(func() { kind.is = was })
}

// AttachesMany tells whether this kernel sets many probes at once.
func AttachesMany() bool { return attachKind() == ebpf.AttachTraceUprobeMulti }

// Hung returns a guard whose search for libraries ends by go.
func Hung(timeout time.Duration) (g *Guard, goOn func()) {
	g = NewGuard()
	g.closeTimeout = timeout
	g.attach.Do(func() {})
	return g, func() { close(g.ready) }
}

// Symbol is where a process has a function, for those who write over it.
func Symbol(pid int, name string) (int64, error) {
	maps, err := librariesIn("/proc", pid)
	if err != nil {
		return 0, err
	}
	c := cleaner{procfs: "/proc", known: make(map[inode][]symbol)}
	for _, m := range maps {
		symbols, err := c.symbols(m)
		if err != nil {
			return 0, err
		}
		for _, s := range symbols {
			if at, ok := m.at(s.offset); ok && s.name == name {
				return at, nil
			}
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

// Below lists the files that are found below a root directory.
func Below(dir string, dirs ...string) (found []string, err error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, err := below(root, dirs)
	defer closeAll(files)
	for _, f := range files {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return nil, err
		}
		found = append(found, rel)
	}
	return found, err
}
