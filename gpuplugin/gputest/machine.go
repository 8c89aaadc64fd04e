// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package gputest is a machine with GPUs that is made of software: processes
// with states and device memory, a driver that takes them through lock,
// checkpoint, restore and unlock with the errors that the real one has, and
// faults on demand. It is for tests of whatever stands on a driver.
//
// A [Machine] satisfies the driver interface of gpuplugin/nvidia and writes the
// procfs that belongs to it. It must not know who uses it.
//
// Machine.mu guards all of a machine and is not held while a call hangs.
package gputest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Op is a call of the driver.
type Op string

// The calls, named as [gpuplugin.ProcessError] names them.
const (
	OpState      Op = "state"
	OpLock       Op = "lock"
	OpCheckpoint Op = "checkpoint"
	OpRestore    Op = "restore"
	OpUnlock     Op = "unlock"
	OpInventory  Op = "inventory"
	OpUsage      Op = "usage"
)

// Memory is the device memory of a process in bytes, by device UUID.
type Memory map[string]uint64

// Machine is a host with GPUs. Its methods may be called at the same time.
type Machine struct {
	tb     testing.TB
	procfs string

	mu      sync.Mutex
	driver  string
	api     int
	devices []gpuplugin.Device
	procs   map[int]*process
	faults  []*Fault
	calls   []string
	changed chan struct{} // closed and replaced at each recorded call
}

// process is one process of the machine.
type process struct {
	// state is empty for a process without CUDA state.
	state  gpuplugin.State
	memory Memory
}

// New returns a machine with driver 580 and these devices.
func New(tb testing.TB, devices ...gpuplugin.Device) *Machine {
	tb.Helper()
	return &Machine{
		tb:      tb,
		procfs:  tb.TempDir(),
		driver:  "580.159.04",
		api:     13000,
		devices: devices,
		procs:   map[int]*process{},
		changed: make(chan struct{}),
	}
}

// H200 returns a device as [New] takes it, the n-th of its kind.
func H200(n int) gpuplugin.Device {
	return gpuplugin.Device{
		UUID:        fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n),
		Vendor:      "nvidia",
		Model:       "NVIDIA H200",
		MemoryBytes: 143771 << 20,
		Minor:       n,
		PCI:         fmt.Sprintf("0000:%02x:00.0", n+1),
	}
}

// ProcRoot is the machine's own procfs.
func (m *Machine) ProcRoot() string { return m.procfs }

// SetDriver changes the version of the driver.
func (m *Machine) SetDriver(version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.driver = version
}

// SetAPI changes the version of CUDA that the driver offers.
func (m *Machine) SetAPI(version int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.api = version
}

// Run adds a process that uses device memory.
func (m *Machine) Run(pid int, memory Memory) {
	m.tb.Helper()
	m.add(pid, &process{state: gpuplugin.StateRunning, memory: maps.Clone(memory)})
}

// RunPlain adds a process without CUDA state. It holds the device files that
// are given, as a forked child of a CUDA program does.
func (m *Machine) RunPlain(pid int, files ...string) {
	m.tb.Helper()
	m.add(pid, &process{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writeFiles(pid, files); err != nil {
		m.tb.Fatal(err)
	}
}

func (m *Machine) add(pid int, p *process) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.dir(pid)
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o750); err != nil {
		m.tb.Fatal(err)
	}
	for name, text := range map[string]string{
		"comm": fmt.Sprintf("toy%d\n", pid),
		"stat": fmt.Sprintf("%d (toy%d) S 1\n", pid, pid),
		"maps": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			m.tb.Fatal(err)
		}
	}
	m.procs[pid] = p
	if err := m.syncFiles(pid); err != nil {
		m.tb.Fatal(err)
	}
}

// SetState puts a process into a state as somebody else would have done.
func (m *Machine) SetState(pid int, state gpuplugin.State) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.procs[pid].state = state
	if err := m.syncFiles(pid); err != nil {
		m.tb.Fatal(err)
	}
}

// Exit ends a process. What it had on devices and in its memory is lost.
func (m *Machine) Exit(pid int) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.procs, pid)
	if err := os.RemoveAll(m.dir(pid)); err != nil {
		m.tb.Fatal(err)
	}
}

// Image is a process on disk.
type Image struct{ process }

// Dump is what CRIU's dump has of a process: its host memory. GPU state that
// isn't there (the process is not checkpointed) is lost, and so it fails the
// test.
func (m *Machine) Dump(pid int) Image {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.procs[pid]
	if p.state != "" && p.state != gpuplugin.StateCheckpointed {
		m.tb.Fatalf("process %d was dumped in state %s: its GPU state is lost", pid, p.state)
	}
	return Image{process{state: p.state, memory: maps.Clone(p.memory)}}
}

// Revive is CRIU's restore of an image, as another process or the same.
func (m *Machine) Revive(pid int, image Image) {
	m.tb.Helper()
	m.add(pid, &process{state: image.state, memory: maps.Clone(image.memory)})
}

// StateOf returns the state of a process without the driver, "" if there is no
// such process or no CUDA state.
func (m *Machine) StateOf(pid int) gpuplugin.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.procs[pid]; p != nil {
		return p.state
	}
	return ""
}

// MemoryOf returns what a process has, on devices or saved from them.
func (m *Machine) MemoryOf(pid int) Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.procs[pid]; p != nil {
		return maps.Clone(p.memory)
	}
	return nil
}

// Calls returns the calls that changed something or tried to, in order, each as
// "lock 7".
func (m *Machine) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Await returns when a call has been made, at latest when ctx ends, and says
// whether it was. A call that hangs has been made.
func (m *Machine) Await(ctx context.Context, op Op, pid int) bool {
	want := call(op, pid)
	for {
		m.mu.Lock()
		made, changed := slices.Contains(m.calls, want), m.changed
		m.mu.Unlock()
		if made {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Inventory lists driver and devices.
func (m *Machine) Inventory(ctx context.Context) (gpuplugin.Inventory, error) {
	if err := m.begin(ctx, OpInventory, 0); err != nil {
		return gpuplugin.Inventory{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	inv := gpuplugin.Inventory{Driver: m.driver, API: m.api, Devices: slices.Clone(m.devices)}
	for i, d := range inv.Devices {
		inv.Devices[i].UsedBytes += m.used(d.UUID, nil)
	}
	return inv, nil
}

// Usage is the device memory that the processes use, by device UUID.
func (m *Machine) Usage(ctx context.Context, pids []int) (map[string]uint64, error) {
	if err := m.begin(ctx, OpUsage, 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]uint64{}
	for _, d := range m.devices {
		if used := m.used(d.UUID, pids); used > 0 {
			out[d.UUID] = used
		}
	}
	return out, nil
}

// used is what the processes have on a device; nil stands for all.
func (m *Machine) used(uuid string, pids []int) uint64 {
	var sum uint64
	for pid, p := range m.procs {
		if p.state != gpuplugin.StateCheckpointed && (pids == nil || slices.Contains(pids, pid)) {
			sum += p.memory[uuid]
		}
	}
	return sum
}

// State is what the driver says of a process.
func (m *Machine) State(ctx context.Context, pid int) (gpuplugin.State, error) {
	if err := m.begin(ctx, OpState, pid); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(pid)
	if err != nil {
		return "", err
	}
	return p.state, nil
}

// Lock takes a process from running to locked.
func (m *Machine) Lock(ctx context.Context, pid int, _ time.Duration) error {
	return m.move(ctx, OpLock, pid, gpuplugin.StateRunning, gpuplugin.StateLocked, nil)
}

// Checkpoint takes a process from locked to checkpointed.
func (m *Machine) Checkpoint(ctx context.Context, pid int) error {
	return m.move(ctx, OpCheckpoint, pid, gpuplugin.StateLocked, gpuplugin.StateCheckpointed, nil)
}

// Restore takes a process from checkpointed to locked.
func (m *Machine) Restore(ctx context.Context, pid int, devices gpuplugin.DeviceMap) error {
	return m.move(ctx, OpRestore, pid, gpuplugin.StateCheckpointed, gpuplugin.StateLocked, func(p *process) error {
		return m.place(p, devices)
	})
}

// Unlock takes a process from locked to running.
func (m *Machine) Unlock(ctx context.Context, pid int) error {
	return m.move(ctx, OpUnlock, pid, gpuplugin.StateLocked, gpuplugin.StateRunning, nil)
}

// move is one step of a process between two states.
func (m *Machine) move(ctx context.Context, op Op, pid int, from, to gpuplugin.State, work func(*process) error) error {
	fault := m.fault(op, pid)
	if !fault.After {
		if err := fault.strike(ctx); err != nil {
			return err
		}
	}
	if err := m.step(op, pid, from, to, work); err != nil {
		return err
	}
	if fault.After {
		return fault.strike(ctx)
	}
	return nil
}

func (m *Machine) step(op Op, pid int, from, to gpuplugin.State, work func(*process) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.find(pid)
	if err != nil {
		return err
	}
	if p.state != from {
		return driverError(op, helperapi.Class_CLASS_ILLEGAL_STATE, 401, "CUDA_ERROR_ILLEGAL_STATE")
	}
	if work != nil {
		if err := work(p); err != nil {
			return err
		}
	}
	p.state = to
	return m.syncFiles(pid)
}

// place puts the memory of a process on its devices or those of the map.
func (m *Machine) place(p *process, devices gpuplugin.DeviceMap) error {
	memory := Memory{}
	for uuid, bytes := range p.memory {
		if to, ok := devices[uuid]; ok {
			uuid = to
		} else if len(devices) > 0 {
			return driverError(OpRestore, helperapi.Class_CLASS_OTHER, 1, "CUDA_ERROR_INVALID_VALUE")
		}
		i := slices.IndexFunc(m.devices, func(d gpuplugin.Device) bool { return d.UUID == uuid })
		if i < 0 {
			return driverError(OpRestore, helperapi.Class_CLASS_OTHER, 100, "CUDA_ERROR_NO_DEVICE")
		}
		if m.devices[i].UsedBytes+m.used(uuid, nil)+bytes > m.devices[i].MemoryBytes {
			return driverError(OpRestore, helperapi.Class_CLASS_OTHER, 2, "CUDA_ERROR_OUT_OF_MEMORY")
		}
		memory[uuid] = bytes
	}
	p.memory = memory
	return nil
}

func (m *Machine) find(pid int) (*process, error) {
	p := m.procs[pid]
	switch {
	case p == nil:
		return nil, driverError(OpState, helperapi.Class_CLASS_GONE, 304, "CUDA_ERROR_OPERATING_SYSTEM")
	case p.state == "":
		return nil, driverError(OpState, helperapi.Class_CLASS_NO_STATE, 3, "CUDA_ERROR_NOT_INITIALIZED")
	}
	return p, nil
}

func driverError(op Op, class helperapi.Class, code int, name string) error {
	return &helperapi.Error{Class: class, Call: string(op), Code: code, Name: name}
}

func call(op Op, pid int) string { return fmt.Sprintf("%s %d", op, pid) }

func (m *Machine) dir(pid int) string { return filepath.Join(m.procfs, strconv.Itoa(pid)) }

// syncFiles gives the process the device files that its state has it hold.
func (m *Machine) syncFiles(pid int) error {
	p := m.procs[pid]
	var files []string
	if p.state == gpuplugin.StateRunning || p.state == gpuplugin.StateLocked {
		files = append(files, "/dev/nvidiactl", "/dev/nvidia-uvm")
		for _, d := range m.devices {
			if _, ok := p.memory[d.UUID]; ok {
				files = append(files, "/dev/nvidia"+strconv.Itoa(d.Minor))
			}
		}
	}
	return m.writeFiles(pid, files)
}

func (m *Machine) writeFiles(pid int, files []string) error {
	dir := filepath.Join(m.dir(pid), "fd")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	for i, f := range files {
		if err := os.Symlink(f, filepath.Join(dir, strconv.Itoa(i+3))); err != nil {
			return err
		}
	}
	return nil
}

// Map adds a line to the process's maps.
func (m *Machine) Map(pid int, line string) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := os.WriteFile(filepath.Join(m.dir(pid), "maps"), []byte(line+"\n"), 0o600); err != nil {
		m.tb.Fatal(err)
	}
}
