// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What is at an address.
#include <string.h>

#include "process.h"

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	ENTER();
	const struct alloc *a = alloc_at(address);
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!a)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = a->address;
	if (size)
		*size = a->size;
	return CUDA_SUCCESS;
}

// put_value writes what an attribute is for an address, in the width that is
// the attribute's; for an address of nothing, zeros.
#define PUT(type, value) (*(type *)data = (type)(a ? (value) : 0), CUDA_SUCCESS)

static CUcontext context_of(const struct alloc *a)
{
	for (int i = 0; a->kind != MAPPED && !a->pool && i < MAX_CONTEXTS; i++)
		if (process.contexts[i].references > 0 && process.contexts[i].gpu == a->gpu)
			return &process.contexts[i];
	return NULL; // mapped memory belongs to no context, nor does that of pools
}

static bool on_host(const struct alloc *a)
{
	return a->kind == PINNED || a->kind == REGISTERED;
}

// handle_types: only memory of cuMemCreate can be shared by descriptor.
static unsigned handle_types(const struct alloc *a)
{
	return a->kind == MAPPED ? a->memory->prop.requestedHandleTypes : 0;
}

static CUresult put_value(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	const struct alloc *a = alloc_at(address);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: return PUT(CUcontext, context_of(a));
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return PUT(unsigned, on_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return PUT(CUdeviceptr, address);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (a && a->kind < MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		return PUT(uintptr_t, address);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return PUT(int, 0);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID: return PUT(unsigned long long, a - process.allocs + 1);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: return PUT(int, a->kind == MANAGED);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = a ? a->gpu : -2; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return PUT(int, a->kind == DEVICE && !a->pool);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return PUT(CUdeviceptr, a->address);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return PUT(size_t, a->size);
	case CU_POINTER_ATTRIBUTE_MAPPED: return PUT(int, 1);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return PUT(unsigned long long, handle_types(a));
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return PUT(int, !on_host(a));
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return PUT(int, a->kind == MAPPED ? a->access[a->gpu] : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return PUT(uintptr_t, (uintptr_t)a->pool);
	default: return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER();
	if (!data || !alloc_at(address))
		return CUDA_ERROR_INVALID_VALUE;
	return put_value(data, attribute, address);
}

// A pointer that is nobody's is no error here, and neither is a value that it
// does not have.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
	ENTER();
	if (count == 0 || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		CUresult r = put_value(data[i], attributes[i], address);
		if (r != CUDA_SUCCESS && attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER)
			return r;
		if (r != CUDA_SUCCESS)
			*(void **)data[i] = NULL;
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER();
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !alloc_at(address))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}
