// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "pools.h"

#include <stdatomic.h>

#include "chunk.h"
#include "counters.h"
#include "overrides.h"
#include "ptsz.h"
#include "real.h"

static _Atomic uint64_t devices; // on which the program has used a pool
static _Atomic uint64_t held;

// used notes that a pool of the current device gave memory.
static CUresult used(CUresult r)
{
	CUdevice device;
	if (r != CUDA_SUCCESS)
		return r;
	COUNT(async);
	if (REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || device < 0 || device >= ACCESS_DEVICES)
		return r;
	uint64_t bit = UINT64_C(1) << device;
	if (!(atomic_load_explicit(&devices, memory_order_relaxed) & bit))
		atomic_fetch_or_explicit(&devices, bit, memory_order_relaxed);
	return r;
}

CUresult hetcuda_cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	return used(REAL(cuMemAllocAsync)(address, size, stream));
}

CUresult hetcuda_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream)
{
	return used(REAL(cuMemAllocAsync_ptsz)(address, size, stream));
}

CUresult hetcuda_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	return used(REAL(cuMemAllocFromPoolAsync)(address, size, pool, stream));
}

CUresult hetcuda_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	return used(REAL(cuMemAllocFromPoolAsync_ptsz)(address, size, pool, stream));
}

static uint64_t trim(CUmemoryPool pool)
{
	cuuint64_t bytes = 0;
	REAL(cuMemPoolTrimTo)(pool, 0);
	return REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

void pools_trim(void)
{
	uint64_t bits = atomic_load(&devices), total = 0;
	if (!REAL(cuDeviceGetDefaultMemPool) || !REAL(cuDeviceGetMemPool) || !REAL(cuMemPoolTrimTo) ||
	    !REAL(cuMemPoolGetAttribute))
		return;
	for (int device = 0; device < ACCESS_DEVICES; device++) {
		CUmemoryPool pool, other;
		if (!(bits >> device & 1))
			continue;
		bool first = REAL(cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS;
		if (first)
			total += trim(pool);
		// The one that cuMemAllocAsync takes, if the program set another.
		if (REAL(cuDeviceGetMemPool)(&other, device) == CUDA_SUCCESS && (!first || other != pool))
			total += trim(other);
	}
	atomic_store(&held, total);
}

uint64_t pools_held(void)
{
	return atomic_load(&held);
}
