// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What the program is told about memory of ours: what it would be told about
// the driver's cuMemAlloc. To the driver it is mapped memory, of which a slab or
// a chunk is one piece; what it says of access, devices and buses is right.
#include <string.h>

#include "block.h"
#include "books.h"
#include "managed.h"
#include "overrides.h"
#include "pools.h"
#include "real.h"
#include "window.h"

// An address that no driver knows. What is in a window and is no allocation is
// unknown, though the driver knows that it is reserved.
#define UNKNOWN ((CUdeviceptr)1)

// Numbers of buffers count from 1 in the driver and from here in ours.
#define OUR_BUFFERS (UINT64_C(1) << 62)

// What the queries need of an allocation; a copy, for it may end at any time.
struct found {
	CUdeviceptr address;
	size_t size;
	uint64_t id;
	CUcontext context;
	CUdevice device;
	bool sync;
	bool managed;
	bool shareable; // by legacy IPC
	CUmemoryPool pool;
};

static bool known(CUdeviceptr address)
{
	return window_has(address) || managed_look(address, NULL);
}

static bool look(CUdeviceptr address, struct found *f)
{
	struct managed_found m;
	if (managed_look(address, &m)) {
		*f = (struct found){m.address, m.size, m.id | OUR_BUFFERS, m.context, m.device, m.sync, true, false, NULL};
		return true;
	}
	struct pooled p;
	if (pools_look(address, &p)) {
		// It belongs to a device, and to no context.
		*f = (struct found){.address = p.address, .size = p.size, .id = p.id | OUR_BUFFERS, .device = p.device, .pool = p.pool};
		return true;
	}
	BOOKS();
	struct extent *e = block_find(address);
	if (!e)
		return false;
	const struct context *c = block_context(e);
	*f = (struct found){
		.address = e->address,
		.size = e->asked,
		.id = e->id | OUR_BUFFERS,
		.context = c->handle,
		.device = block_device(e),
		.sync = e->sync,
		.shareable = !block_imported(e),
	};
	return true;
}

CUresult hetcuda_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	struct found f;
	if (!known(address) || (!base && !size))
		return REAL(cuMemGetAddressRange)(base, size, address);
	if (!look(address, &f))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = f.address;
	if (size)
		*size = f.size;
	return CUDA_SUCCESS;
}

// put writes an answer where the driver has written its own (asked), or has
// refused to. A truth is only changed in its first byte in the first case: how
// wide it is isn't documented, and a program may have left room for just that.
static void put(void *data, bool asked, unsigned int truth)
{
	memcpy(data, &truth, asked ? 1 : sizeof truth);
}

// correct replaces what the driver says of an address where it is not what it
// would say of memory of its own; false if it has nothing to add.
static bool correct(const struct found *f, CUpointer_attribute attribute, CUdeviceptr address, void *data, bool asked)
{
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = f->context; return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned int *)data = CU_MEMORYTYPE_DEVICE; return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = address; return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = f->device; return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = f->address; return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = f->size; return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)data = f->id; return true;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)data = f->pool; return true;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: put(data, asked, f->sync); return true;
	case CU_POINTER_ATTRIBUTE_MAPPED: put(data, asked, 1); return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(data, asked, f->managed); return true;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (f->managed)
			*(CUdeviceptr *)data = address;
		return f->managed;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: put(data, asked, f->shareable); return true;
	// What cudaMalloc returns can't be exported as VMM.
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: put(data, asked, 0); return true;
	default: return false;
	}
}

CUresult hetcuda_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct found f;
	if (!data || !known(address))
		return REAL(cuPointerGetAttribute)(data, attribute, address);
	if (!look(address, &f))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = REAL(cuPointerGetAttribute)(data, attribute, address);
	return correct(&f, attribute, address, data, r == CUDA_SUCCESS) ? CUDA_SUCCESS : r;
}

CUresult hetcuda_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
					CUdeviceptr address)
{
	struct found f;
	if (!attributes || !data || !known(address))
		return REAL(cuPointerGetAttributes)(count, attributes, data, address);
	if (!look(address, &f))
		return REAL(cuPointerGetAttributes)(count, attributes, data, UNKNOWN);
	CUresult r = REAL(cuPointerGetAttributes)(count, attributes, data, address);
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++)
		if (data[i])
			correct(&f, attributes[i], address, data[i], true);
	return r;
}

// sync_context makes all copies of a context wait, which the driver offers in
// place of the attribute for mapped memory. It outlives a checkpoint.
static CUresult sync_context(CUcontext context)
{
	unsigned int flags;
	CUcontext before;
	if (!REAL(cuCtxSetFlags) || !REAL(cuCtxGetFlags))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = context_switch(context, &before);
	if (r != CUDA_SUCCESS)
		return r;
	r = REAL(cuCtxGetFlags)(&flags);
	if (r == CUDA_SUCCESS && !(flags & CU_CTX_SYNC_MEMOPS))
		r = REAL(cuCtxSetFlags)(flags | CU_CTX_SYNC_MEMOPS);
	context_switch_back(context, before);
	return r;
}

CUresult hetcuda_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct found f;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !known(address))
		return REAL(cuPointerSetAttribute)(value, attribute, address);
	bool sync = *(const unsigned int *)value;
	if (!look(address, &f))
		return CUDA_ERROR_INVALID_VALUE;
	if (f.pool)
		return REAL(cuPointerSetAttribute)(value, attribute, address);
	CUresult r = sync ? sync_context(f.context) : CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	if (f.managed) {
		managed_set_sync(address, sync);
		return CUDA_SUCCESS;
	}
	BOOKS();
	struct extent *e = block_find(address);
	if (e)
		e->sync = sync;
	return r;
}
