// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ringPages is the room for samples on one CPU, which is a power of 2: two
	// thousand calls that nobody has read yet.
	ringPages = 16
	// wakeup is how many bytes of it are filled before the reader is woken.
	wakeup = 8 << 10
)

// uprobePMU is the number under which perf_event_open(2) knows uprobes.
func uprobePMU() (uint32, error) {
	text, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(n), err
}

// onlineCPUs parses a list such as "0-3,8".
func onlineCPUs() ([]int, error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(text)))
}

func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, err
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// probe is a breakpoint whose hits on one CPU go to that CPU's ring.
type probe struct {
	fd int
	// id is what its samples carry.
	id uint64
}

// sampleType is what a sample has, in the order of struct sample.
const sampleType = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME

// openProbe probes a file at an offset, in all processes.
func openProbe(pmu uint32, f *os.File, offset uint64, r *ring) (*probe, error) {
	path := append(fmt.Appendf(nil, "/proc/self/fd/%d", f.Fd()), 0)
	var pin runtime.Pinner
	pin.Pin(&path[0])
	defer pin.Unpin()
	attr := &unix.PerfEventAttr{
		Type:        pmu,
		Sample:      1,
		Sample_type: sampleType,
		Bits:        unix.PerfBitUseClockID | unix.PerfBitWatermark,
		Wakeup:      wakeup,
		Clockid:     unix.CLOCK_MONOTONIC,
		Ext1:        uint64(uintptr(unsafe.Pointer(&path[0]))),
		Ext2:        offset,
	}
	fd, err := openEvent(attr, r.cpu)
	if err != nil {
		return nil, err
	}
	p := &probe{fd: fd}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.fd); err != nil {
		return nil, errors.Join(fmt.Errorf("share the ring: %w", err), p.close())
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&p.id))); errno != 0 {
		return nil, errors.Join(fmt.Errorf("ask for the id: %w", errno), p.close())
	}
	return p, nil
}

func (p *probe) close() error { return unix.Close(p.fd) }

// openEvent opens an event of all processes on one CPU.
func openEvent(attr *unix.PerfEventAttr, cpu int) (int, error) {
	attr.Size = uint32(unsafe.Sizeof(*attr))
	fd, err := unix.PerfEventOpen(attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return fd, os.NewSyscallError("perf_event_open", err)
}

// ring is the memory into which the kernel writes the samples of one CPU. It
// belongs to an event that never occurs.
type ring struct {
	cpu    int
	fd     int
	memory []byte
	meta   *unix.PerfEventMmapPage
}

func newRing(cpu int) (*ring, error) {
	attr := &unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Sample_type: sampleType,
		Bits:        unix.PerfBitUseClockID | unix.PerfBitWatermark,
		Wakeup:      wakeup,
		Clockid:     unix.CLOCK_MONOTONIC,
	}
	fd, err := openEvent(attr, cpu)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(fd, 0, (1+ringPages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), unix.Close(fd))
	}
	return &ring{cpu: cpu, fd: fd, memory: memory, meta: (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))}, nil
}

func (r *ring) close() error { return errors.Join(unix.Munmap(r.memory), unix.Close(r.fd)) }

// sample is one call of a probed function.
type sample struct {
	id       uint64
	pid, tid uint32
	time     uint64 // of CLOCK_MONOTONIC, in nanoseconds
}

const (
	headerSize = 8 // struct perf_event_header
	sampleSize = headerSize + 24
)

// read hands over what has come in, and returns false if the kernel had to drop
// some of it.
func (r *ring) read(visit func(sample)) (complete bool) {
	complete = true
	data := r.memory[os.Getpagesize():]
	head, tail := atomic.LoadUint64(&r.meta.Data_head), r.meta.Data_tail
	for tail < head {
		kind := binary.NativeEndian.Uint32(copyOut(data, tail, 4))
		size := uint64(binary.NativeEndian.Uint16(copyOut(data, tail+6, 2)))
		if size < headerSize || tail+size > head {
			complete = false // not a record: start again at what comes next
			tail = head
			break
		}
		switch {
		case kind == unix.PERF_RECORD_SAMPLE && size >= sampleSize:
			b := copyOut(data, tail+headerSize, sampleSize-headerSize)
			visit(sample{
				id:   binary.NativeEndian.Uint64(b),
				pid:  binary.NativeEndian.Uint32(b[8:]),
				tid:  binary.NativeEndian.Uint32(b[12:]),
				time: binary.NativeEndian.Uint64(b[16:]),
			})
		case kind == unix.PERF_RECORD_LOST, kind == unix.PERF_RECORD_LOST_SAMPLES, kind == unix.PERF_RECORD_SAMPLE:
			complete = false
		}
		tail += size
	}
	atomic.StoreUint64(&r.meta.Data_tail, tail)
	return complete
}

// copyOut copies from a ring whose size is a power of 2.
func copyOut(data []byte, at, n uint64) []byte {
	out := make([]byte, n)
	at &= uint64(len(data)) - 1
	copied := copy(out, data[at:])
	copy(out[copied:], data)
	return out
}
