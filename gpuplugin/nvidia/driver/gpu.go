// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror -fvisibility=hidden
#include <stdlib.h>
#include "abi.h"
#include "gpu.h"
*/
import "C"

import (
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// digestPTX is the kernel behind [GPU.Digest]. The driver compiles it.
//
//go:embed digest.ptx
var digestPTX string

const (
	digestKernel  = "hetgpu_digest"
	digestThreads = 256
)

// GPU is a device whose memory can be moved, by the device's primary context. Its
// methods may be called by any number of goroutines.
type GPU struct {
	driver      *Driver
	lib         *cuda
	uuid        string
	device      C.int
	ctx         C.struct_hg_ctx
	granularity uint64
	digest      unsafe.Pointer
	// kind is what the driver's descriptors of memory are of.
	kind fileKind
}

// OpenGPU returns the device with a UUID ("GPU-...").
func (d *Driver) OpenGPU(uuid string) (*GPU, error) {
	lib, err := d.cuda()
	if err != nil {
		return nil, err
	}
	want, err := parseUUID(uuid)
	if err != nil {
		return nil, err
	}
	for _, sym := range gpuSymbols {
		if err := lib.need(sym); err != nil {
			return nil, err
		}
	}
	g := &GPU{driver: d, lib: lib, uuid: uuid}
	if err := g.find(want); err != nil {
		return nil, err
	}
	g.ctx.set_current = lib.fns[symCtxSetCurrent]
	// Lanes that wait would take the processors from those that write. It's only
	// slower if that can't be had (the context is there already, say).
	if fn := lib.fns[symPrimarySetFlags]; fn != nil {
		C.hg_primary_blocking(fn, g.device)
	}
	if err := g.check(symPrimaryRetain, C.hg_primary_retain(lib.fns[symPrimaryRetain], &g.ctx.context, g.device)); err != nil {
		return nil, err
	}
	d.retained(g)
	if err := g.prepare(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// GPUs lists the UUIDs of the devices that OpenGPU knows.
func (d *Driver) GPUs() ([]string, error) {
	lib, err := d.cuda()
	if err != nil {
		return nil, err
	}
	for _, sym := range gpuSymbols {
		if err := lib.need(sym); err != nil {
			return nil, err
		}
	}
	var uuids []string
	err = (&GPU{lib: lib}).each(func(_ C.int, uuid [16]byte) bool {
		h := hex.EncodeToString(uuid[:])
		uuids = append(uuids, "GPU-"+strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"))
		return true
	})
	return uuids, err
}

// each visits the devices until visit returns false.
func (g *GPU) each(visit func(device C.int, uuid [16]byte) bool) error {
	var n C.int
	if err := g.check(symDeviceGetCount, C.hg_call_out(g.lib.fns[symDeviceGetCount], &n)); err != nil {
		return err
	}
	for i := range n {
		var device C.int
		if err := g.check(symDeviceGet, C.hg_device_get(g.lib.fns[symDeviceGet], &device, i)); err != nil {
			return err
		}
		var uuid [16]byte
		if err := g.check(symDeviceGetUUID, C.hg_device_uuid(g.lib.fns[symDeviceGetUUID], (*C.uchar)(&uuid[0]), device)); err != nil {
			return err
		}
		if !visit(device, uuid) {
			return nil
		}
	}
	return nil
}

func (g *GPU) find(want [16]byte) error {
	found := false
	err := g.each(func(device C.int, uuid [16]byte) bool {
		g.device, found = device, uuid == want
		return !found
	})
	if err == nil && !found {
		err = unavailable(symbols[symDeviceGetUUID].name, "there is no device "+g.uuid)
	}
	return err
}

func (g *GPU) prepare() error {
	var granularity C.size_t
	if err := g.check(symGranularity, C.hg_granularity(g.lib.fns[symGranularity], &granularity, g.device)); err != nil {
		return err
	}
	g.granularity = uint64(granularity)
	if err := g.learnKind(); err != nil {
		return err
	}
	image, name := C.CString(digestPTX), C.CString(digestKernel)
	defer C.free(unsafe.Pointer(image))
	defer C.free(unsafe.Pointer(name))
	var module unsafe.Pointer
	if err := g.check(symModuleLoadData, C.hg_module(g.ctx, g.lib.fns[symModuleLoadData], &module, unsafe.Pointer(image))); err != nil {
		return err
	}
	return g.check(symModuleGetFunction, C.hg_function(g.ctx, g.lib.fns[symModuleGetFunction], &g.digest, module, name))
}

// Close lets go of the context, and so of all that was made in it.
func (g *GPU) Close() error {
	g.driver.released(g)
	return g.check(symPrimaryRelease, C.hg_primary_release(g.lib.fns[symPrimaryRelease], g.device))
}

// check turns a result into an error.
func (g *GPU) check(sym int, result C.int) error {
	if result == cudaSuccess {
		return nil
	}
	class := helperapi.Class_CLASS_OTHER
	switch result {
	case cudaErrorOutOfMemory:
		class = helperapi.Class_CLASS_NO_MEMORY
	case cudaErrorNotSupported:
		class = helperapi.Class_CLASS_UNSUPPORTED
	}
	return &helperapi.Error{
		Class: class, Call: symbols[sym].name, Code: int(result), Name: g.lib.errorName(int(result)), Detail: g.uuid,
	}
}

// UUID names the device.
func (g *GPU) UUID() string { return g.uuid }

// Granularity is what sizes of memory are multiples of.
func (g *GPU) Granularity() uint64 { return g.granularity }

// Free is how much memory can still be had.
func (g *GPU) Free() (uint64, error) {
	var free, total C.size_t
	err := g.check(symMemGetInfo, C.hg_mem_info(g.ctx, g.lib.fns[symMemGetInfo], &free, &total))
	return uint64(free), err
}

// Create makes memory that can be exported. It must be mapped to be used.
func (g *GPU) Create(size uint64) (handle uint64, err error) {
	var h C.uint64_t
	err = g.check(symMemCreate, C.hg_create(g.ctx, g.lib.fns[symMemCreate], &h, C.size_t(size), g.device))
	return uint64(h), err
}

// Release lets go of memory; it lives on in what was exported or is mapped.
func (g *GPU) Release(handle uint64) error {
	return g.check(symMemRelease, C.hg_number(g.ctx, g.lib.fns[symMemRelease], C.uint64_t(handle)))
}

// Export makes a descriptor of memory, which keeps it alive.
func (g *GPU) Export(handle uint64) (fd int, err error) {
	out := C.int(-1)
	err = g.check(symMemExport, C.hg_export(g.ctx, g.lib.fns[symMemExport], &out, C.uint64_t(handle)))
	return int(out), err
}

// Import takes a descriptor of memory of this device. It stays open. Whoever has
// sent it may say what he likes: it is the driver that tells what it is of.
func (g *GPU) Import(fd int) (handle uint64, err error) {
	if err := g.refuseKind(fd); err != nil {
		return 0, err
	}
	var h C.uint64_t
	if err := g.check(symMemImport, C.hg_import(g.ctx, g.lib.fns[symMemImport], &h, C.int(fd))); err != nil {
		return 0, err
	}
	var device C.int
	err = g.check(symMemProperties, C.hg_device_of(g.ctx, g.lib.fns[symMemProperties], &device, h))
	if err == nil && device != g.device {
		err = &helperapi.Error{Call: symbols[symMemImport].name, Detail: "a descriptor of memory that is not on " + g.uuid}
	}
	if err != nil {
		return 0, errors.Join(err, g.Release(uint64(h)))
	}
	return uint64(h), nil
}

// Reserve takes a range of addresses, and FreeRange gives it back.
func (g *GPU) Reserve(size uint64) (address uint64, err error) {
	var out C.uint64_t
	err = g.check(symAddressReserve, C.hg_reserve(g.ctx, g.lib.fns[symAddressReserve], &out, C.size_t(size), 0))
	return uint64(out), err
}

// FreeRange gives back what Reserve took; nothing is mapped in it.
func (g *GPU) FreeRange(address, size uint64) error {
	return g.check(symAddressFree, C.hg_range(g.ctx, g.lib.fns[symAddressFree], C.uint64_t(address), C.size_t(size)))
}

// Map maps memory in a reserved range. It can be used after Access.
func (g *GPU) Map(address, size, handle uint64) error {
	return g.check(symMemMap, C.hg_map(g.ctx, g.lib.fns[symMemMap], C.uint64_t(address), C.size_t(size), C.uint64_t(handle)))
}

// Unmap is the way back of Map, of one range that was mapped.
func (g *GPU) Unmap(address, size uint64) error {
	return g.check(symMemUnmap, C.hg_range(g.ctx, g.lib.fns[symMemUnmap], C.uint64_t(address), C.size_t(size)))
}

// Access lets the device read and write all of a mapped range.
func (g *GPU) Access(address, size uint64) error {
	return g.check(symMemSetAccess, C.hg_access(g.ctx, g.lib.fns[symMemSetAccess], C.uint64_t(address), C.size_t(size), g.device))
}

// HostAlloc makes host memory that the device reads and writes itself, and
// HostFree frees it.
func (g *GPU) HostAlloc(size int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.check(symMemHostAlloc, C.hg_host_alloc(g.ctx, g.lib.fns[symMemHostAlloc], &p, C.size_t(size))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// HostFree frees what HostAlloc made.
func (g *GPU) HostFree(mem []byte) error {
	return g.check(symMemFreeHost, C.hg_pointer(g.ctx, g.lib.fns[symMemFreeHost], unsafe.Pointer(unsafe.SliceData(mem))))
}

// Stream is a queue of copies.
type Stream struct {
	gpu *GPU
	ptr unsafe.Pointer
}

// NewStream makes one. Close ends it.
func (g *GPU) NewStream() (*Stream, error) {
	s := &Stream{gpu: g}
	return s, g.check(symStreamCreate, C.hg_stream_create(g.ctx, g.lib.fns[symStreamCreate], &s.ptr))
}

// Close frees the queue.
func (s *Stream) Close() error {
	return s.gpu.check(symStreamDestroy, C.hg_pointer(s.gpu.ctx, s.gpu.lib.fns[symStreamDestroy], s.ptr))
}

// Wait returns when all that was queued is done, with the error of any of it.
func (s *Stream) Wait() error {
	return s.gpu.check(symStreamSynchronize, C.hg_pointer(s.gpu.ctx, s.gpu.lib.fns[symStreamSynchronize], s.ptr))
}

// ToHost queues a copy into memory of HostAlloc.
func (s *Stream) ToHost(to []byte, from uint64) error {
	g := s.gpu
	return g.check(symMemcpyDtoH, C.hg_copy_out(g.ctx, g.lib.fns[symMemcpyDtoH], unsafe.Pointer(unsafe.SliceData(to)),
		C.uint64_t(from), C.size_t(len(to)), s.ptr))
}

// FromHost queues a copy out of memory of HostAlloc.
func (s *Stream) FromHost(to uint64, from []byte) error {
	g := s.gpu
	return g.check(symMemcpyHtoD, C.hg_copy_in(g.ctx, g.lib.fns[symMemcpyHtoD], C.uint64_t(to),
		unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from)), s.ptr))
}

// Copy queues a copy within the device.
func (s *Stream) Copy(to, from, size uint64) error {
	g := s.gpu
	return g.check(symMemcpyDtoD, C.hg_copy(g.ctx, g.lib.fns[symMemcpyDtoD], C.uint64_t(to), C.uint64_t(from), C.size_t(size), s.ptr))
}

// Zero queues the writing of zeros.
func (s *Stream) Zero(to, size uint64) error {
	g := s.gpu
	return g.check(symMemsetD8, C.hg_zero(g.ctx, g.lib.fns[symMemsetD8], C.uint64_t(to), C.size_t(size), s.ptr))
}

// Range is device memory that is mapped.
type Range struct{ Address, Size uint64 }

// Sum is what the device says of a [Range]: the halves of its digest as
// internal/memfile defines it, and the bits that any of its words has.
type Sum struct{ A, B, Seen, _ uint64 }

// digestBatch bounds what one launch is of.
const digestBatch = 1 << 18

// Digest computes the sums of ranges, whose sizes are multiples of 4096.
func (g *GPU) Digest(ranges []Range, sums []Sum) error {
	if len(ranges) != len(sums) {
		return fmt.Errorf("%d ranges, %d sums", len(ranges), len(sums))
	}
	for len(ranges) > 0 {
		n := min(len(ranges), digestBatch)
		if err := g.digestSome(ranges[:n], sums[:n]); err != nil {
			return err
		}
		ranges, sums = ranges[n:], sums[n:]
	}
	return nil
}

func (g *GPU) digestSome(ranges []Range, sums []Sum) (err error) {
	if len(ranges) > math.MaxInt32 {
		return errors.New("too many ranges")
	}
	listBytes := len(ranges) * int(unsafe.Sizeof(Range{}))
	sumBytes := len(sums) * int(unsafe.Sizeof(Sum{}))
	// The results are read and written by 16 bytes.
	var list C.uint64_t
	if err := g.check(symMemAlloc, C.hg_alloc(g.ctx, g.lib.fns[symMemAlloc], &list, C.size_t(listBytes+sumBytes))); err != nil {
		return err
	}
	results := uint64(list) + uint64(listBytes)
	defer func() {
		err = errors.Join(err, g.check(symMemFree, C.hg_number(g.ctx, g.lib.fns[symMemFree], list)))
	}()
	s, err := g.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// Go's memory is pageable: the driver has read or written it when a copy
	// returns, or has failed by then.
	in := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ranges))), listBytes)
	out := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(sums))), sumBytes)
	if err := s.FromHost(uint64(list), in); err != nil {
		return err
	}
	launch := C.hg_launch(g.ctx, g.lib.fns[symLaunchKernel], g.digest, C.uint(len(ranges)), digestThreads, s.ptr, list, C.uint64_t(results))
	if err := g.check(symLaunchKernel, launch); err != nil {
		return errors.Join(err, s.Wait())
	}
	if err := s.Wait(); err != nil {
		return err
	}
	if err := s.ToHost(out, results); err != nil {
		return err
	}
	return s.Wait()
}
