// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "view.h"

#include "real.h"

CUresult view_open(struct view *v, CUdevice device, size_t size, unsigned count, const CUmemGenericAllocationHandle *handles)
{
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	*v = (struct view){.size = size};
	CUresult r = REAL(cuMemAddressReserve)(&v->address, count * size, 0, 0, 0);
	if (r != CUDA_SUCCESS)
		return r;
	v->count = count;
	while (v->mapped < count && r == CUDA_SUCCESS) {
		r = REAL(cuMemMap)(v->address + v->mapped * size, size, 0, handles[v->mapped], 0);
		v->mapped += r == CUDA_SUCCESS;
	}
	return r == CUDA_SUCCESS ? REAL(cuMemSetAccess)(v->address, count * size, &access, 1) : r;
}

static bool unmap(CUdeviceptr address, size_t size)
{
	return REAL(cuMemUnmap)(address, size) == CUDA_SUCCESS || REAL(cuMemUnmap)(address, size) == CUDA_SUCCESS;
}

void view_close(struct view *v)
{
	bool hidden = true;
	for (unsigned i = 0; i < v->mapped; i++)
		hidden = unmap(v->address + i * v->size, v->size) && hidden;
	if (v->count > 0 && hidden)
		REAL(cuMemAddressFree)(v->address, v->count * v->size);
	*v = (struct view){0};
}
