// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// machine has devices whose memory is memfds, mapped where they say. What is
// left of it at the end of a test is an error.
type machine struct {
	mu   sync.Mutex
	gpus map[string]*gpu
}

type gpu struct {
	tb testing.TB

	mu      sync.Mutex
	free    uint64
	opens   int
	handles map[uint64]uint64 // and sizes
	ranges  map[uint64]uint64
	hosts   int
	streams int
	// fail makes calls fail, by name; block is closed to let copies go on.
	fail  map[string]error
	block chan struct{}
}

func newMachine(tb testing.TB, uuids ...string) *machine {
	tb.Helper()
	m := &machine{gpus: map[string]*gpu{}}
	for _, uuid := range uuids {
		m.gpus[uuid] = &gpu{
			tb: tb, free: 1 << 30, handles: map[uint64]uint64{}, ranges: map[uint64]uint64{}, fail: map[string]error{},
		}
	}
	return m
}

func (m *machine) Open(uuid string) (datapath.GPU, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.gpus[uuid]
	if !ok {
		return nil, fmt.Errorf("there is no device %s", uuid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opens++
	return g, g.fail["Open"]
}

// left says what is still there.
func (g *gpu) left() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d handles, %d ranges, %d streams", len(g.handles), len(g.ranges), g.streams)
}

func (g *gpu) failing(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fail[name]
}

func (g *gpu) set(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail[name] = err
}

func (g *gpu) Granularity() uint64   { return 4096 }
func (g *gpu) Free() (uint64, error) { return g.free, g.failing("Free") }

func (g *gpu) Create(size uint64) (uint64, error) {
	if err := g.failing("Create"); err != nil {
		return 0, err
	}
	if size > g.free {
		return 0, &helperapi.Error{Class: helperapi.Class_CLASS_NO_MEMORY, Call: "cuMemCreate"}
	}
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err == nil {
		// Memory is as somebody has left it.
		_, err = unix.Pwrite(fd, []byte("rubbish"), 0)
	}
	if err != nil {
		return 0, err
	}
	return g.handle(fd, size), nil
}

func (g *gpu) handle(fd int, size uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handles[uint64(fd)] = size
	return uint64(fd)
}

func (g *gpu) Export(handle uint64) (int, error) {
	if err := g.failing("Export"); err != nil {
		return -1, err
	}
	return unix.FcntlInt(uintptr(handle), unix.F_DUPFD_CLOEXEC, 0)
}

func (g *gpu) Import(fd int) (uint64, error) {
	if err := g.failing("Import"); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, fmt.Errorf("descriptor %d is of no memory, %w", fd, err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return g.handle(own, uint64(st.Size)), nil
}

func (g *gpu) Release(handle uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.handles[handle]; !ok {
		g.tb.Errorf("handle %d released twice", handle)
	}
	delete(g.handles, handle)
	return unix.Close(int(handle))
}

func (g *gpu) Reserve(size uint64) (uint64, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ranges[uint64(uintptr(p))] = size
	return uint64(uintptr(p)), err
}

func (g *gpu) FreeRange(address, size uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ranges[address] != size {
		g.tb.Errorf("range %#x freed, of %d bytes", address, size)
	}
	delete(g.ranges, address)
	return unix.MunmapPtr(pointer(address), uintptr(size))
}

func (g *gpu) Map(address, size, handle uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.handles[handle] < size {
		return fmt.Errorf("%d bytes of a handle of %d", size, g.handles[handle])
	}
	_, err := unix.MmapPtr(int(handle), 0, pointer(address), uintptr(size), unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}

func (g *gpu) Unmap(address, size uint64) error {
	_, err := unix.MmapPtr(-1, 0, pointer(address), uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	return err
}

func (g *gpu) Access(address, size uint64) error {
	return unix.Mprotect(bytesAt(address, size), unix.PROT_READ|unix.PROT_WRITE)
}

func (g *gpu) HostAlloc(size int) ([]byte, error) {
	if err := g.failing("HostAlloc"); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts++
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func (g *gpu) HostFree(mem []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts--
	return unix.Munmap(mem)
}

func (g *gpu) Digest(ranges []datapath.Range, sums []datapath.Sum) error {
	for i, r := range ranges {
		d, zero := memfile.DigestOf(bytesAt(r.Address, r.Size))
		sums[i] = datapath.Sum{A: le(d[:8]), B: le(d[8:])}
		if !zero {
			sums[i].Seen = 1
		}
	}
	return g.failing("Digest")
}

func le(b []byte) (v uint64) {
	for i := range b {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

func (g *gpu) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opens--
	return nil
}

func (g *gpu) NewStream() (datapath.Stream, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fail["NewStream"]; err != nil {
		return nil, err
	}
	g.streams++
	return &stream{gpu: g}, nil
}

// stream does at Wait what was queued, as a device that takes its time.
type stream struct {
	gpu  *gpu
	todo []func()
}

func (s *stream) queue(name string, f func()) error {
	s.todo = append(s.todo, f)
	return s.gpu.failing(name)
}

func (s *stream) ToHost(to []byte, from uint64) error {
	return s.queue("ToHost", func() { copy(to, bytesAt(from, uint64(len(to)))) })
}

func (s *stream) FromHost(to uint64, from []byte) error {
	return s.queue("FromHost", func() { copy(bytesAt(to, uint64(len(from))), from) })
}

func (s *stream) Copy(to, from, size uint64) error {
	return s.queue("Copy", func() { copy(bytesAt(to, size), bytesAt(from, size)) })
}

func (s *stream) Zero(to, size uint64) error {
	return s.queue("Zero", func() { clear(bytesAt(to, size)) })
}

func (s *stream) Wait() error {
	s.gpu.mu.Lock()
	block := s.gpu.block
	s.gpu.mu.Unlock()
	if block != nil {
		<-block
	}
	for _, f := range s.todo {
		f()
	}
	s.todo = nil
	return s.gpu.failing("Wait")
}

func (s *stream) Close() error {
	s.gpu.mu.Lock()
	defer s.gpu.mu.Unlock()
	s.gpu.streams--
	return nil
}

func pointer(address uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

func bytesAt(address, size uint64) []byte { return unsafe.Slice((*byte)(pointer(address)), size) }

func uintptrOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }
