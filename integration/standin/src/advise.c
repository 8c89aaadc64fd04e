// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Hints about managed memory. The stand-in's is the process's own pages, so they
// change nothing; what is wrong with one is said.
#include "process.h"

static CUresult managed(CUdeviceptr address, size_t count)
{
	const struct alloc *a = alloc_at(address);
	return a && a->kind == MANAGED && count > 0 && count <= a->size - (address - a->address) ? CUDA_SUCCESS
												  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
	ENTER();
	if (device < CU_DEVICE_CPU || device >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	return stream_known(stream) ? managed(address, count) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location, unsigned int flags, CUstream stream)
{
	ENTER();
	if (flags != 0 || location.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_known(stream) ? managed(address, count) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice, CUdevice device)
{
	ENTER();
	(void)device;
	return advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY ? CUDA_ERROR_INVALID_VALUE
												    : managed(address, count);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t count)
{
	ENTER();
	if (!data || size != sizeof(int) || attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)data = 0;
	return managed(address, count);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
	ENTER();
	(void)length;
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_known(stream) ? managed(address, 1) : CUDA_ERROR_INVALID_HANDLE;
}
