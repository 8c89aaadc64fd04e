// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package standin describes machines with GPUs to the stand-ins of libcuda and
// NVML (the C code in src), for tests on machines that have none: which GPUs
// there are, what goes wrong, and what was asked of the driver.
//
// It knows nothing of containers or of the shim.
package standin

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// GPU is one device of a machine.
type GPU struct {
	// UUID is "GPU-" and a UUID.
	UUID string
	// Name is the model. Only GPUs of the same name take one another's state.
	Name string
	// Memory is in bytes, and Used what somebody outside of the test uses.
	Memory, Used uint64
	// Minor is the number of the device node.
	Minor int
	// MIG says that the GPU is split.
	MIG bool
}

// Spec is what a machine consists of.
type Spec struct {
	// Driver is the version of the driver, and CUDA that of its API (13000).
	Driver string
	CUDA   int
	GPUs   []GPU
}

// H200s is a machine with n GPUs of 64 MiB. The same series gives the same
// UUIDs.
func H200s(n, series int) Spec {
	s := Spec{Driver: "580.159.04", CUDA: 13000}
	for i := range n {
		s.GPUs = append(s.GPUs, GPU{
			UUID:   fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", series, i),
			Name:   "NVIDIA H200",
			Memory: 64 << 20,
			Minor:  i,
		})
	}
	return s
}

// WithMemory is the same machine with so many bytes on each GPU.
func (s Spec) WithMemory(bytes uint64) Spec {
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		s.GPUs[i].Memory = bytes
	}
	return s
}

// Machine is a directory that the stand-ins read (src/machine.h).
type Machine struct {
	// Dir has to be at the same path in every container.
	Dir string
	// Major and Minor are the numbers of the character device that stands for
	// /dev/nvidiactl and /dev/nvidiaN: one that opens and that CRIU refuses.
	Major, Minor int64
}

// refused lists character devices that can be opened and that CRIU can't dump
// ("Can't dump file 3 of that type"), as tried with CRIU 4.2.1.
var refused = []struct {
	host         string
	major, minor int64
}{
	{"/dev/fuse", 10, 229},
	{"/dev/loop-control", 10, 237},
}

// New makes a machine in a directory that it creates.
func New(dir string, s Spec) (*Machine, error) {
	if err := os.MkdirAll(filepath.Join(dir, "dev"), 0o755); err != nil {
		return nil, err
	}
	m := &Machine{Dir: dir}
	return m, m.Set(s)
}

// Set makes it another machine. Device memory stays.
func (m *Machine) Set(s Spec) error {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s\ncuda %d\n", s.Driver, s.CUDA)
	if err := m.node("nvidiactl"); err != nil {
		return err
	}
	for _, g := range s.GPUs {
		mig := 0
		if g.MIG {
			mig = 1
		}
		fmt.Fprintf(&b, "gpu %s minor=%d memory=%d used=%d mig=%d name=%s\n", g.UUID, g.Minor, g.Memory, g.Used, mig, g.Name)
		if err := m.node("nvidia" + strconv.Itoa(g.Minor)); err != nil {
			return err
		}
	}
	return m.replace("machine", b.String())
}

// SetFaults replaces the faults (README.md has their syntax); none ends them.
// What counts the calls starts again.
func (m *Machine) SetFaults(rules ...string) error {
	return m.replace("faults", strings.Join(append(rules, ""), "\n"))
}

// Env is what a process needs to use the machine without a container.
func (m *Machine) Env() []string {
	return []string{"HETGPU_STANDIN=" + m.Dir, "HETGPU_STANDIN_DEV=" + m.DevDir()}
}

// HelperEnv is what a device helper needs besides, to load the stand-ins that are in
// a directory ([Install]).
func (m *Machine) HelperEnv(libraries string) []string {
	return append(m.Env(), "HETGPU_LIBCUDA="+filepath.Join(libraries, "libcuda.so.1"), "HETGPU_LIBNVML="+filepath.Join(libraries, "libnvidia-ml.so.1"))
}

// DevDir has the device nodes, for processes outside of a container.
func (m *Machine) DevDir() string { return filepath.Join(m.Dir, "dev") }

// UsedBytes is the device memory of a GPU that processes have, or descriptors
// that they hold. What a process that is gone has left is nobody's.
func (m *Machine) UsedBytes(uuid string) (uint64, error) {
	owned, err := filepath.Glob(filepath.Join(m.Dir, "owners", "*", uuid+".*"))
	if err != nil {
		return 0, err
	}
	shared, err := filepath.Glob(filepath.Join(m.Dir, "memory", uuid+".*"))
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, f := range append(owned, shared...) {
		info, err := os.Stat(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if m.counts(f, info) {
			sum += uint64(info.Size())
		}
	}
	return sum, nil
}

// counts tells whether a file is memory that is in use. Memory that can be
// shared has a link in the directory of its owner; the link does not count.
func (m *Machine) counts(file string, info fs.FileInfo) bool {
	dir := filepath.Dir(file)
	if dir == filepath.Join(m.Dir, "memory") {
		return locked(file)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 1 && locked(filepath.Join(dir, "lock"))
}

// locked tells whether anybody has a lock on a file: the owner of a directory, or
// who holds memory.
func locked(file string) bool {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// Call is one line of the log of the checkpoint API.
type Call struct {
	// Op is "lock", "checkpoint", "restore", "unlock", "state" or "tid".
	Op string
	// PID is the process on the host, and NSPID in its own PID namespace.
	PID, NSPID int
	// Comm is the name of its main thread.
	Comm string
	// Done tells the end of a call from its begin, and Result is its CUresult.
	Done   bool
	Result int
}

// Calls lists what was asked of the driver so far, in order.
func (m *Machine) Calls() ([]Call, error) {
	f, err := os.Open(filepath.Join(m.Dir, "calls"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var calls []Call
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		c, err := parseCall(lines.Text())
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, lines.Err()
}

func parseCall(line string) (Call, error) {
	var c Call
	var end string
	_, err := fmt.Sscanf(line, "%s pid=%d nspid=%d comm=%s %s", &c.Op, &c.PID, &c.NSPID, &c.Comm, &end)
	if err != nil {
		return c, fmt.Errorf("line %q of the stand-in's log: %w", line, err)
	}
	result, done := strings.CutPrefix(end, "result=")
	if c.Done = done; done {
		c.Result, err = strconv.Atoi(result)
	}
	return c, err
}

// node makes a device node, or, on a file system where those can't be opened,
// a link to the host's own.
func (m *Machine) node(name string) error {
	path := filepath.Join(m.DevDir(), name)
	if m.opens(path) {
		return nil
	}
	for _, r := range refused {
		os.Remove(path)
		err := syscall.Mknod(path, syscall.S_IFCHR|0o666, int(r.major<<8|r.minor))
		if err == nil && m.opens(path) {
			return nil
		}
		os.Remove(path)
		if err = os.Symlink(r.host, path); err != nil {
			return err
		}
		if m.opens(path) {
			return nil
		}
	}
	return fmt.Errorf("no character device of this machine can stand for %s: /dev/fuse and /dev/loop-control can't be opened", name)
}

// Nodes makes device nodes in a directory, for what looks for the driver's there.
func (m *Machine) Nodes(dir string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, int(m.Major<<8|m.Minor)); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
	}
	return nil
}

// opens tries a device node, and notes its numbers if it can be used.
func (m *Machine) opens(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var s syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &s) != nil || s.Mode&syscall.S_IFMT != syscall.S_IFCHR {
		return false
	}
	m.Major, m.Minor = int64(s.Rdev>>8&0xfff), int64(s.Rdev&0xff)
	return true
}

// replace writes a file so that readers see the old one or the new one.
func (m *Machine) replace(name, content string) error {
	path := filepath.Join(m.Dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
