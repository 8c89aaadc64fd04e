// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Machine is where the devices are; package driver has one.
type Machine interface {
	// Open makes a device ready, until Close.
	Open(uuid string) (GPU, error)
}

// GPU is what is needed of a device. Any number of goroutines may call it.
type GPU interface {
	// Granularity is what sizes of memory are multiples of.
	Granularity() uint64
	// Free is how much memory can still be had.
	Free() (uint64, error)
	// Create makes memory, of which Export makes descriptors, and Import makes
	// the memory of a descriptor, which stays open and must be of a device.
	Create(size uint64) (handle uint64, err error)
	Export(handle uint64) (fd int, err error)
	Import(fd int) (handle uint64, err error)
	Release(handle uint64) error
	// Reserve takes addresses. Memory is mapped there, and can be used after
	// Access of the range.
	Reserve(size uint64) (address uint64, err error)
	FreeRange(address, size uint64) error
	Map(address, size, handle uint64) error
	Unmap(address, size uint64) error
	Access(address, size uint64) error
	// HostAlloc makes memory that the device copies to and from by itself.
	HostAlloc(size int) ([]byte, error)
	HostFree(mem []byte) error
	NewStream() (Stream, error)
	// Digest computes what memfile.DigestOf would of ranges of mapped memory.
	Digest(ranges []Range, sums []Sum) error
	Close() error
}

// Stream is a queue of copies of a device.
type Stream interface {
	ToHost(to []byte, from uint64) error
	FromHost(to uint64, from []byte) error
	Copy(to, from, size uint64) error
	Zero(to, size uint64) error
	// Wait returns when all that was queued is done.
	Wait() error
	Close() error
}

// Range is mapped memory, of a multiple of 4096 bytes.
type Range struct{ Address, Size uint64 }

// Sum is the two halves of a digest, and the bits that any word has.
type Sum struct{ A, B, Seen uint64 }

// device is a GPU that is open, and its pinned memory, which is kept.
type device struct {
	GPU
	uuid string
	cfg  Config

	// slots are those that nobody uses; made is how many there are.
	slots chan []byte
	mu    sync.Mutex
	made  int
}

func newDevice(gpu GPU, uuid string, cfg Config) *device {
	return &device{GPU: gpu, uuid: uuid, cfg: cfg, slots: make(chan []byte, cfg.Slots)}
}

// slot returns pinned memory, when there is some, for put.
func (d *device) slot(ctx context.Context) ([]byte, error) {
	select {
	case s := <-d.slots:
		return s, nil
	default:
	}
	if s, err := d.makeSlot(); s != nil || err != nil {
		return s, err
	}
	select {
	case s := <-d.slots:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// makeSlot returns nil if there are enough.
func (d *device) makeSlot() ([]byte, error) {
	d.mu.Lock()
	if d.made == d.cfg.Slots {
		d.mu.Unlock()
		return nil, nil
	}
	d.made++
	d.mu.Unlock()
	s, err := d.HostAlloc(d.cfg.slotRoom())
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.made--
		return nil, err
	}
	return s[:d.cfg.SlotSize], nil
}

// slotRoom is how long a slot is: behind the last block there is room to encrypt
// it where it is.
func (c Config) slotRoom() int {
	if c.KeyFile == "" {
		return c.SlotSize
	}
	return c.SlotSize + memfile.TagSize
}

func (d *device) put(slot []byte) { d.slots <- slot }

// pin makes all slots.
func (d *device) pin() error {
	for {
		s, err := d.makeSlot()
		if s == nil || err != nil {
			return err
		}
		d.put(s)
	}
}

// close frees everything. Nobody uses a slot.
func (d *device) close() error {
	var errs []error
	for len(d.slots) > 0 {
		slot := <-d.slots
		errs = append(errs, d.HostFree(slot[:cap(slot)]))
	}
	return errors.Join(append(errs, d.Close())...)
}

// area is memory of one device, mapped in one range.
type area struct {
	device  *device
	foreign bool // the driver's: it is not for us to end it
	base    uint64
	size    uint64
	used    uint64
	mapped  []Range
	handles []uint64
}

// round makes a size one that memory can have.
func (d *device) round(size uint64) uint64 {
	g := d.Granularity()
	return (size + g - 1) / g * g
}

// newArea takes the addresses.
func newArea(d *device, size uint64) (*area, error) {
	base, err := d.Reserve(size)
	if err != nil {
		return nil, err
	}
	return &area{device: d, base: base, size: size}, nil
}

// add maps memory behind what is there, and takes over the handle, also if it
// fails.
func (a *area) add(handle, size uint64) (address uint64, err error) {
	a.handles = append(a.handles, handle)
	if size%a.device.Granularity() != 0 {
		return 0, fmt.Errorf("device memory of %d bytes, no multiple of %d", size, a.device.Granularity())
	}
	address = a.base + a.used
	if err := a.device.Map(address, size, handle); err != nil {
		return 0, err
	}
	a.used += size
	a.mapped = append(a.mapped, Range{address, size})
	return address, nil
}

// open lets the device use all that was added.
func (a *area) open() error {
	if a.used == 0 {
		return nil
	}
	return a.device.Access(a.base, a.used)
}

// close lets go of everything; the memory lives on where others hold it.
func (a *area) close() error {
	if a.foreign {
		return nil
	}
	var errs []error
	for _, r := range a.mapped {
		errs = append(errs, a.device.Unmap(r.Address, r.Size))
	}
	for _, h := range a.handles {
		errs = append(errs, a.device.Release(h))
	}
	return errors.Join(append(errs, a.device.FreeRange(a.base, a.size))...)
}

func closeAreas(areas []*area) error {
	var errs []error
	for _, a := range areas {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}
