// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Copies and fills. Every address is known to be of a device or of the host, so
// there is one copy. What is between devices and page-locked memory is work like
// kernels are; what has an end in other host memory is done before it returns.
#include <string.h>

#include "faults.h"
#include "process.h"

enum { CHUNK = 4 << 20 };

enum side { ANY, ON_DEVICE, ON_HOST }; // what a call says of an end

static bool own_memory(const struct alloc *a)
{
	return a->kind >= MANAGED;
}

// check_end tells whether an end of a copy may be used, and whether it is
// pageable host memory.
static CUresult check_end(CUdeviceptr address, size_t size, enum side side, bool write, bool *pageable)
{
	const struct alloc *a = alloc_at(address);
	*pageable = false;
	if (a)
		return range_check(address, size, context_gpu(), write);
	*pageable = true;
	return side == ON_DEVICE || address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_through(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	size_t most = size < CHUNK ? size : CHUNK;
	CLEAN_FREE void *buffer = malloc(most);
	CUresult r = buffer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t n; r == CUDA_SUCCESS && size > 0; to += n, from += n, size -= n) {
		n = size < most ? size : most;
		r = range_read(from, buffer, n);
		if (r == CUDA_SUCCESS)
			r = range_write(to, buffer, n);
	}
	return r;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	const struct alloc *target = alloc_at(to), *source = alloc_at(from);
	bool to_host = !target || own_memory(target), from_host = !source || own_memory(source);
	if (to_host && from_host)
		memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
	else if (to_host)
		return range_read(from, (void *)(uintptr_t)to, size);
	else if (from_host)
		return range_write(to, (void *)(uintptr_t)from, size);
	else
		return copy_through(to, from, size);
	return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr address, uint32_t value, size_t width, size_t count)
{
	size_t size = width * count, most = size < CHUNK ? size : CHUNK;
	CLEAN_FREE char *buffer = malloc(most);
	CUresult r = buffer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; r == CUDA_SUCCESS && i < most; i += width)
		memcpy(buffer + i, &value, width); // little-endian
	for (size_t n; r == CUDA_SUCCESS && size > 0; address += n, size -= n) {
		n = size < most ? size : most;
		r = range_write(address, buffer, n);
	}
	return r;
}

struct order {
	CUdeviceptr to, from;
	size_t size;
	enum side to_side, from_side;
	bool fill;
	uint32_t value;
	size_t width;
};

static CUresult check(const struct order *o, bool *pageable)
{
	bool to = false, from = false;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = o->size ? check_end(o->to, o->size, o->to_side, true, &to) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS && o->size && !o->fill)
		r = check_end(o->from, o->size, o->from_side, false, &from);
	*pageable = to || from;
	return r;
}

static CUresult perform(const struct order *o)
{
	if (o->size == 0)
		return CUDA_SUCCESS;
	return o->fill ? fill(o->to, o->value, o->width, o->size / o->width) : copy(o->to, o->from, o->size);
}

static CUresult now(const struct order *o, CUstream stream)
{
	CUresult before = stream_wait(stream);
	if (before != CUDA_SUCCESS)
		return before;
	ENTER();
	bool pageable;
	CUresult r = check(o, &pageable);
	return r == CUDA_SUCCESS ? perform(o) : r;
}

static bool run(uint64_t *v)
{
	struct order o = {
		.to = v[0], .from = v[1], .size = v[2], .fill = v[3] != 0, .value = (uint32_t)v[4], .width = v[5]};
	if (perform(&o) != CUDA_SUCCESS)
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

static CUresult look(const struct order *o, CUstream stream, bool *pageable)
{
	ENTER();
	return stream_known(stream) ? check(o, pageable) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult later(const struct order *o, CUstream stream, unsigned delay_ms)
{
	bool pageable;
	CUresult r = look(o, stream, &pageable);
	if (r != CUDA_SUCCESS)
		return r;
	if (pageable) {
		sleep_us(delay_ms * 1000);
		return now(o, stream);
	}
	struct work w = {.run = run, .params = {o->to, o->from, o->size, o->fill, o->value, o->width}};
	if (delay_ms)
		w.ready_ms = now_ms() + delay_ms;
	return work_add(&w, stream, NULL);
}

// order does what is asked, unless a fault says otherwise. The delay of a fault
// is part of a copy that runs later, and not of the call.
static CUresult order(const struct order *o, bool async, CUstream stream)
{
	unsigned delay_ms = 0;
	struct fault f = fault_find("copy", getpid());
	if (async && f.when == FAULT_BEFORE && !f.error) {
		delay_ms = f.delay_ms;
		f.delay_ms = 0;
	}
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	if (r != CUDA_SUCCESS)
		return r;
	r = async ? later(o, stream, delay_ms) : now(o, NULL);
	CUresult after = (CUresult)fault_apply(&f, FAULT_AFTER);
	return after != CUDA_SUCCESS ? after : r;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return order(&(struct order){.to = to, .from = from, .size = size}, false, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return order(&(struct order){.to = to, .from = from, .size = size}, true, stream);
}

static struct order device_to_host(void *host, CUdeviceptr address, size_t size)
{
	return (struct order){.to = (uintptr_t)host, .from = address, .size = size, .to_side = ON_HOST, .from_side = ON_DEVICE};
}

static struct order host_to_device(CUdeviceptr address, const void *host, size_t size)
{
	return (struct order){.to = address, .from = (uintptr_t)host, .size = size, .to_side = ON_DEVICE, .from_side = ON_HOST};
}

static struct order device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return (struct order){.to = to, .from = from, .size = size, .to_side = ON_DEVICE, .from_side = ON_DEVICE};
}

CUresult cuMemcpyDtoH_v2(void *host, CUdeviceptr address, size_t size)
{
	struct order o = device_to_host(host, address, size);
	return order(&o, false, NULL);
}

CUresult cuMemcpyDtoHAsync_v2(void *host, CUdeviceptr address, size_t size, CUstream stream)
{
	struct order o = device_to_host(host, address, size);
	return order(&o, true, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr address, const void *host, size_t size)
{
	struct order o = host_to_device(address, host, size);
	return order(&o, false, NULL);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr address, const void *host, size_t size, CUstream stream)
{
	struct order o = host_to_device(address, host, size);
	return order(&o, true, stream);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	struct order o = device_to_device(to, from, size);
	return order(&o, false, NULL);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	struct order o = device_to_device(to, from, size);
	return order(&o, true, stream);
}

static CUresult memset_with(CUdeviceptr address, uint32_t value, size_t width, size_t count, bool async, CUstream stream)
{
	if (address % width != 0 || count > SIZE_MAX / width)
		return CUDA_ERROR_INVALID_VALUE;
	struct order o = {.to = address, .size = count * width, .to_side = ON_DEVICE, .fill = true, .value = value, .width = width};
	return order(&o, async, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count)
{
	return memset_with(address, value, 1, count, false, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream)
{
	return memset_with(address, value, 1, count, true, stream);
}

CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count)
{
	return memset_with(address, value, 4, count, false, NULL);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream)
{
	return memset_with(address, value, 4, count, true, stream);
}
