// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "own.h"

#include "counters.h"
#include "real.h"
#include "view.h"

static CUresult copy(const struct chunk *c, CUdevice device, CUmemGenericAllocationHandle new)
{
	struct view v;
	CUresult r = view_open(&v, device, c->size, 2, (CUmemGenericAllocationHandle[]){c->handle, new});
	if (r == CUDA_SUCCESS)
		r = REAL(cuMemcpyDtoDAsync)(v.address + v.size, v.address, v.size, NULL);
	if (r == CUDA_SUCCESS)
		r = REAL(cuStreamSynchronize)(NULL);
	view_close(&v);
	return r;
}

static void release(CUmemGenericAllocationHandle handle)
{
	if (REAL(cuMemRelease)(handle) != CUDA_SUCCESS)
		COUNT(unreleased);
}

CUresult own_copy(const struct chunk *c, CUdevice device, CUmemGenericAllocationHandle *made)
{
	CUresult r = REAL(cuMemCreate)(made, c->size, &c->prop, 0);
	if (r != CUDA_SUCCESS)
		return r;
	r = copy(c, device, *made);
	if (r != CUDA_SUCCESS)
		release(*made);
	return r;
}

void own_take(struct chunk *c, CUmemGenericAllocationHandle made)
{
	release(c->handle);
	c->handle = made;
	c->borrowed = false;
}
