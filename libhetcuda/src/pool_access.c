// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Which devices may use a pool's memory.
#include "books.h"
#include "overrides.h"
#include "real.h"
#include "segment.h"

// change applies what the program says to an access; false if it speaks of other
// places than devices.
static bool change(struct access *a, const CUmemAccessDesc *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int device = list[i].location.id;
		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 || device >= ACCESS_DEVICES)
			return false;
		uint64_t bit = UINT64_C(1) << device;
		a->readwrite &= ~bit;
		a->read &= ~bit;
		if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			a->readwrite |= bit;
		else if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
			a->read |= bit;
	}
	return true;
}

// The driver's pool comes first: it knows which device can reach which.
static CUresult set(struct pool *p, const CUmemAccessDesc *list, size_t count)
{
	BOOKS();
	struct access before = p->access, now = before;
	bool possible = change(&now, list, count);
	CUresult r = REAL(cuMemPoolSetAccess)(p->handle, list, count);
	if (r != CUDA_SUCCESS || !possible)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_NOT_SUPPORTED;
	p->access = now;
	r = segments_grant(p, &now);
	if (r == CUDA_SUCCESS)
		return r;
	// Back to what it was, on both sides.
	p->access = before;
	segments_grant(p, &before);
	for (size_t i = 0; i < count; i++) {
		CUmemAccessDesc d = list[i];
		uint64_t bit = UINT64_C(1) << d.location.id;
		d.flags = before.readwrite & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
			  : before.read & bit    ? CU_MEM_ACCESS_FLAGS_PROT_READ
						 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
		REAL(cuMemPoolSetAccess)(p->handle, &d, 1);
	}
	return r;
}

CUresult hetcuda_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	struct pool *p = list ? pool_hold(handle, -1) : NULL;
	if (!p)
		return REAL(cuMemPoolSetAccess)(handle, list, count);
	CUresult r = set(p, list, count);
	pool_let_go(p);
	return r;
}
