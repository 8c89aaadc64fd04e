// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "mark.h"

#include "hetcuda_control.h"
#include "real.h"
#include "view.h"

// put returns when the number is there: a copy from memory that is not pinned may
// return before that, and the view is closed.
static CUresult put(CUdeviceptr address, uint64_t number)
{
	CUresult r = REAL(cuMemcpyHtoD)(address, &number, sizeof number);
	CUresult done = REAL(cuStreamSynchronize)(NULL);
	return r != CUDA_SUCCESS ? r : done;
}

CUresult mark_put(struct chunk *c, CUdevice device, uint64_t nonce, uint32_t place)
{
	struct view v;
	CUresult r = view_open(&v, device, c->size, 1, &c->handle);
	c->mark_offset = hetcuda_mark_offset(nonce, place, c->size);
	if (r == CUDA_SUCCESS)
		r = REAL(cuMemcpyDtoH)(&c->unmarked, v.address + c->mark_offset, sizeof c->unmarked);
	if (r == CUDA_SUCCESS) {
		r = put(v.address + c->mark_offset, hetcuda_mark(nonce, place));
		// Also where that failed: it may have come to the device.
		c->marked = true;
	}
	view_close(&v);
	return r;
}

CUresult mark_remove(struct chunk *c, CUdevice device)
{
	if (!c->marked)
		return CUDA_SUCCESS;
	struct view v;
	CUresult r = view_open(&v, device, c->size, 1, &c->handle);
	if (r == CUDA_SUCCESS)
		r = put(v.address + c->mark_offset, c->unmarked);
	c->marked = r != CUDA_SUCCESS;
	view_close(&v);
	return r;
}
