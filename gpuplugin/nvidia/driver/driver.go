// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package driver calls NVIDIA's libraries in the device helper: the process
// checkpoint of libcuda and the inventory of NVML. It is the only package with
// cgo, and only the helper may import it: whoever does loads a driver.
//
// A call may block for as long as the driver blocks, and occupies an operating
// system thread meanwhile; time-outs are the client's business. The package
// must not know of containers, nor of which process belongs to which.
//
// Driver.mu guards the loading of the libraries alone and is never held during
// a call that is about a process.
package driver

import (
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Libraries are the names or paths of the vendor's libraries.
type Libraries struct {
	CUDA string
	NVML string
}

// LibrariesFromEnv takes HETGPU_LIBCUDA and HETGPU_LIBNVML, and the names by
// which the loader finds an installed driver where they aren't set.
func LibrariesFromEnv() Libraries {
	libs := Libraries{CUDA: "libcuda.so.1", NVML: "libnvidia-ml.so.1"}
	if v := os.Getenv("HETGPU_LIBCUDA"); v != "" {
		libs.CUDA = v
	}
	if v := os.Getenv("HETGPU_LIBNVML"); v != "" {
		libs.NVML = v
	}
	return libs
}

// Driver is the loaded driver, or one that is still to be loaded: what fails
// (no device yet, a driver that is being upgraded) is tried again at the next
// call.
type Driver struct {
	libs Libraries

	mu    sync.Mutex
	lib   *cuda // nil until it is loaded
	ready bool  // cuInit has succeeded
	nvml  *nvmlLibrary
	// contexts are those of the devices that are open.
	contexts map[unsafe.Pointer]openContext
}

// New returns a driver whose libraries are not loaded yet.
func New(libs Libraries) *Driver { return &Driver{libs: libs} }

// Init loads and initializes libcuda if that hasn't been done. It takes from
// 10 ms to seconds, so a helper does it before it is asked.
func (d *Driver) Init() error {
	_, err := d.cuda()
	return err
}

func (d *Driver) cuda() (*cuda, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lib, err := d.loadLocked()
	if err != nil || d.ready {
		return lib, err
	}
	if err := lib.init(); err != nil {
		return nil, err
	}
	d.ready = true
	return lib, nil
}

func (d *Driver) loadLocked() (*cuda, error) {
	if d.lib != nil {
		return d.lib, nil
	}
	lib, err := openCUDA(d.libs.CUDA)
	d.lib = lib
	return lib, err
}

// Symbols says which functions of libcuda there are.
func (d *Driver) Symbols() ([]*helperapi.Symbol, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lib, err := d.loadLocked()
	if err != nil {
		return nil, err
	}
	return lib.report(), nil
}

// Inventory lists the driver and the devices. It needs NVML, and libcuda for
// the version of the API only, which is 0 if that one is missing.
func (d *Driver) Inventory() (gpuplugin.Inventory, error) {
	lib, err := d.management()
	if err != nil {
		return gpuplugin.Inventory{}, err
	}
	inv, err := lib.inventory()
	if err != nil {
		return inv, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if cuda, err := d.loadLocked(); err == nil {
		inv.API = cuda.version()
	}
	return inv, nil
}

// Usage is the device memory that the processes use, by device UUID.
func (d *Driver) Usage(pids []int) (map[string]uint64, error) {
	lib, err := d.management()
	if err != nil {
		return nil, err
	}
	return lib.usage(pids)
}

func (d *Driver) management() (*nvmlLibrary, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nvml != nil {
		return d.nvml, nil
	}
	lib, err := openNVML(d.libs.NVML)
	d.nvml = lib
	return lib, err
}

// State is what the driver says of a process.
func (d *Driver) State(pid int) (gpuplugin.State, error) {
	lib, err := d.cuda()
	if err != nil {
		return "", err
	}
	return lib.state(pid)
}

// Lock makes the GPU work of a running process come to rest and keeps it so;
// it fails with [helperapi.ErrNotReady] where that takes longer than timeout.
func (d *Driver) Lock(pid int, timeout time.Duration) error {
	lib, err := d.cuda()
	if err != nil {
		return err
	}
	// 0 would wait without end.
	return lib.lock(pid, uint32(max(timeout.Milliseconds(), 1)))
}

// Checkpoint moves the GPU state of a locked process into its host memory.
func (d *Driver) Checkpoint(pid int) error { return d.operation(symCheckpoint, pid) }

// Unlock lets a locked process go on.
func (d *Driver) Unlock(pid int) error { return d.operation(symUnlock, pid) }

func (d *Driver) operation(sym, pid int) error {
	lib, err := d.cuda()
	if err != nil {
		return err
	}
	return lib.operation(sym, pid)
}

// Restore moves the GPU state of a checkpointed process back to its devices,
// or to those of the map; the process is locked then.
func (d *Driver) Restore(pid int, devices gpuplugin.DeviceMap) error {
	lib, err := d.cuda()
	if err != nil {
		return err
	}
	pairs, err := parsePairs(devices)
	if err != nil {
		return err
	}
	return lib.restore(pid, pairs)
}
