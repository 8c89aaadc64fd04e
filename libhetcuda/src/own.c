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

CUresult own_chunk(struct chunk *c, CUdevice device)
{
	CUmemGenericAllocationHandle new;
	CUresult r = REAL(cuMemCreate)(&new, c->size, &c->prop, 0);
	if (r != CUDA_SUCCESS)
		return r;
	r = copy(c, device, new);
	CUmemGenericAllocationHandle unwanted = r == CUDA_SUCCESS ? c->handle : new;
	if (r == CUDA_SUCCESS)
		c->handle = new;
	if (REAL(cuMemRelease)(unwanted) != CUDA_SUCCESS)
		COUNT(unreleased);
	c->borrowed = r != CUDA_SUCCESS;
	return r;
}
