// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "chunk.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "real.h"

struct chunk *chunks;
_Atomic uint32_t chunk_count;
_Atomic uint64_t chunk_bytes;

uint64_t new_id(void)
{
	static _Atomic uint64_t last;
	return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

CUresult chunk_create(struct chunk **made, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct chunk *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = REAL(cuMemCreate)(&c->handle, size, prop, flags);
	if (r != CUDA_SUCCESS) {
		free(c);
		return r;
	}
	c->id = new_id();
	c->size = size;
	c->device = prop->location.id;
	c->prop = *prop;
	c->parkable = true;
	*made = c;
	return CUDA_SUCCESS;
}

CUresult chunk_destroy(struct chunk *c)
{
	CUresult r = c->parked ? CUDA_SUCCESS : REAL(cuMemRelease)(c->handle);
	free(c);
	return r;
}

CUresult access_grant(CUdeviceptr address, size_t size, const struct access *a)
{
	CUmemAccessDesc list[ACCESS_DEVICES + ACCESS_OTHERS];
	size_t count = 0;
	for (int device = 0; device < ACCESS_DEVICES; device++) {
		uint64_t bit = UINT64_C(1) << device;
		if (!((a->readwrite | a->read) & bit))
			continue;
		list[count++] = (CUmemAccessDesc){
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
			.flags = a->readwrite & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						    : CU_MEM_ACCESS_FLAGS_PROT_READ,
		};
	}
	for (unsigned i = 0; i < a->others; i++)
		list[count++] = a->other[i];
	return count > 0 ? REAL(cuMemSetAccess)(address, size, list, count) : CUDA_SUCCESS;
}

CUresult chunk_map(struct mapping *m)
{
	CUresult r = m->barred ? CUDA_SUCCESS : REAL(cuMemMap)(m->address, m->size, m->offset, m->chunk->handle, 0);
	m->away = r != CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	r = access_grant(m->address, m->size, &m->access);
	m->barred = r != CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		chunk_unmap(m);
	return r;
}

CUresult chunk_unmap(struct mapping *m)
{
	CUresult r = REAL(cuMemUnmap)(m->address, m->size);
	m->away = r == CUDA_SUCCESS;
	m->barred = m->barred && !m->away;
	return r;
}

void chunk_enter(struct chunk *c)
{
	c->previous = NULL;
	c->next = chunks;
	if (chunks)
		chunks->previous = c;
	chunks = c;
	chunk_count++;
	chunk_bytes += c->size;
}

void chunk_leave(struct chunk *c)
{
	if (c->previous)
		c->previous->next = c->next;
	else
		chunks = c->next;
	if (c->next)
		c->next->previous = c->previous;
	chunk_count--;
	chunk_bytes -= c->size;
}
