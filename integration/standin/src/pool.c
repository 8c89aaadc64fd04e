// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Pools, and memory of theirs in the order of streams. A pool keeps nothing for
// later: memory is made when it is asked for, and a free waits for all work.
#include <string.h>

#include "process.h"

static bool known(CUmemoryPool pool)
{
	return pool >= process.pools && pool < process.pools + MAX_POOLS && pool->used;
}

static CUmemoryPool pool_new(const CUmemPoolProps *p, bool standard)
{
	for (int i = 0; i < MAX_POOLS; i++) {
		struct CUmemPoolHandle_st *pool = &process.pools[i];
		if (pool->used)
			continue;
		*pool = (struct CUmemPoolHandle_st){.used = true, .standard = standard, .p = *p};
		for (int a = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; a < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; a++)
			pool->values[a] = 1;
		return pool;
	}
	return NULL;
}

static CUresult default_pool(CUmemoryPool *pool, int device)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	for (int i = 0; i < MAX_POOLS; i++) {
		*pool = &process.pools[i];
		if ((*pool)->used && (*pool)->standard && (*pool)->p.location.id == device)
			return CUDA_SUCCESS;
	}
	CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	*pool = pool_new(&p, true);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult current_pool(CUmemoryPool *pool, int device)
{
	if (pool && device >= 0 && device < process.count && known(process.devices[device].pool)) {
		*pool = process.devices[device].pool;
		return CUDA_SUCCESS;
	}
	return default_pool(pool, device);
}

static CUresult set_pool(int device, CUmemoryPool pool)
{
	if (device < 0 || device >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!known(pool) || pool->p.location.id != device)
		return CUDA_ERROR_INVALID_VALUE;
	process.devices[device].pool = pool;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER();
	return default_pool(pool, device);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER();
	return current_pool(pool, device);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	ENTER();
	return set_pool(device, pool);
}

// Of CUDA 13. There are pools of devices only.
static CUresult check_place(const CUmemLocation *location, CUmemAllocationType type)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	ENTER();
	CUresult r = check_place(location, type);
	return r == CUDA_SUCCESS ? default_pool(pool, location->id) : r;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	ENTER();
	CUresult r = check_place(location, type);
	return r == CUDA_SUCCESS ? current_pool(pool, location->id) : r;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	ENTER();
	CUresult r = check_place(location, type);
	return r == CUDA_SUCCESS ? set_pool(location->id, pool) : r;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *p)
{
	ENTER();
	if (!pool || !p || p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->handleTypes & ~15u)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return p->location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	if (p->location.id < 0 || p->location.id >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (p->handleTypes > CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	*pool = pool_new(p, false);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// What was allocated stays until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	ENTER();
	if (!known(pool) || pool->standard)
		return CUDA_ERROR_INVALID_VALUE;
	pool->used = false;
	for (int i = 0; i < process.allocs_end; i++)
		if (process.allocs[i].pool == pool)
			process.allocs[i].pool = NULL;
	return CUDA_SUCCESS;
}

static cuuint64_t used(CUmemoryPool pool)
{
	cuuint64_t bytes = 0;
	for (int i = 0; i < process.allocs_end; i++)
		if (process.allocs[i].kind && process.allocs[i].pool == pool)
			bytes += process.allocs[i].size;
	return bytes;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER();
	if (!known(pool) || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *(int *)value = (int)pool->values[attribute]; break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(cuuint64_t *)value = pool->values[attribute]; break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = used(pool); break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = pool->high; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER();
	if (!known(pool) || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->values[attribute] = *(int *)value != 0; break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->values[attribute] = *(cuuint64_t *)value; break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(cuuint64_t *)value != 0)
			return CUDA_ERROR_INVALID_VALUE;
		pool->high = used(pool);
		break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	ENTER();
	(void)keep;
	return known(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	ENTER();
	if (!known(pool) || !access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id < 0 ||
		    access[i].location.id >= process.count)
			return CUDA_ERROR_INVALID_DEVICE;
		if (access[i].location.id == pool->p.location.id && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count; i++)
		pool->access[access[i].location.id] = (uint8_t)access[i].flags;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	ENTER();
	if (!flags || !known(pool) || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
	    location->id >= process.count)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->id == pool->p.location.id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : pool->access[location->id];
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t size, CUmemoryPool pool, bool any, CUstream stream)
{
	ENTER();
	int gpu = stream_gpu(stream);
	if (!stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (gpu < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = any ? current_pool(&pool, gpu) : CUDA_SUCCESS;
	struct alloc *a = alloc_new();
	if (r != CUDA_SUCCESS || !known(pool) || !address || size == 0)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	if (!a || (pool->p.maxSize && used(pool) + size > pool->p.maxSize))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = alloc_device(a, pool->p.location.id, size);
	if (r != CUDA_SUCCESS)
		return r;
	a->pool = pool;
	*address = a->address;
	if (used(pool) > pool->high)
		pool->high = used(pool);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	return allocate(address, size, NULL, true, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	return allocate(address, size, pool, false, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	(void)stream;
	return address ? cuMemFree_v2(address) : CUDA_ERROR_INVALID_VALUE;
}
