// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "backing.h"

#include <stdlib.h>

#include "books.h"
#include "real.h"
#include "window.h"

static struct chunk *make_chunk(CUdevice device, CUdeviceptr address, size_t size, const struct access *a, bool *rdma,
				CUresult *result)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.allocFlags.gpuDirectRDMACapable = *rdma,
	};
	struct chunk *k = NULL;
	*result = chunk_create(&k, size, &prop, 0);
	if (*result != CUDA_SUCCESS && *result != CUDA_ERROR_OUT_OF_MEMORY && *rdma) {
		// A device may claim more than the machine around it can do.
		prop.allocFlags.gpuDirectRDMACapable = 0;
		*result = chunk_create(&k, size, &prop, 0);
		*rdma = *result != CUDA_SUCCESS;
	}
	if (*result != CUDA_SUCCESS)
		return NULL;
	k->own = (struct mapping){.chunk = k, .address = address, .size = size, .access = *a};
	k->mappings = &k->own;
	*result = chunk_map(&k->own);
	if (*result == CUDA_SUCCESS)
		return k;
	chunk_destroy(k);
	return NULL;
}

CUresult backing_unmap(struct backing *m)
{
	for (size_t i = 0; i < m->count; i++) {
		CUresult r = chunk_unmap(&m->chunk[i]->own);
		if (r == CUDA_SUCCESS)
			continue;
		while (i-- > 0)
			chunk_map(&m->chunk[i]->own);
		return r;
	}
	return CUDA_SUCCESS;
}

static void release(struct backing *m)
{
	for (size_t i = 0; i < m->count; i++)
		chunk_destroy(m->chunk[i]);
	free(m);
}

void backing_end(struct backing *m)
{
	struct extent *place = m->place;
	release(m);
	BOOKS();
	arena_give(place);
}

void backing_discard(struct backing *m)
{
	if (backing_unmap(m) == CUDA_SUCCESS)
		backing_end(m);
	else
		release(m);
}

struct backing *backing_find(CUdeviceptr address)
{
	struct extent *e = window_find(address);
	return e ? e->owner : NULL;
}

void backing_enter(struct backing *m)
{
	for (size_t i = 0; i < m->count; i++)
		chunk_enter(m->chunk[i]);
	m->place->owner = m;
}

void backing_leave(struct backing *m)
{
	for (size_t i = 0; i < m->count; i++)
		chunk_leave(m->chunk[i]);
	m->place->owner = NULL;
}

// hopeless tells whether several chunks can't be had. To find that out chunk by
// chunk would take all free memory from everybody for a while.
static bool hopeless(CUdevice device, size_t size)
{
	size_t available, total;
	CUdevice current;
	return size > CHUNK && REAL(cuMemGetInfo) && REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS && current == device &&
	       REAL(cuMemGetInfo)(&available, &total) == CUDA_SUCCESS && size > available;
}

struct backing *backing_make(CUdevice device, size_t size, const struct access *a, CUresult *result)
{
	struct extent *place = NULL;
	bool rdma = false;
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	if (size > SIZE_MAX / 2 || hopeless(device, size))
		return NULL;
	{
		BOOKS();
		struct device *d = device_find(device);
		if (d && d->usable) {
			size = (size + d->granularity - 1) / d->granularity * d->granularity;
			rdma = d->rdma;
			place = window_take(device, size);
		}
	}
	if (!place)
		return NULL;
	bool wanted = rdma;
	size_t count = (size + CHUNK - 1) / CHUNK;
	struct backing *m = calloc(1, sizeof *m + count * sizeof m->chunk[0]);
	if (m) {
		m->place = place;
		m->device = device;
		for (*result = CUDA_SUCCESS; m->count < count; m->count++) {
			size_t offset = m->count * CHUNK, left = size - offset;
			struct chunk *k =
				make_chunk(device, place->address + offset, left < CHUNK ? left : CHUNK, a, &rdma, result);
			if (!k)
				break;
			m->chunk[m->count] = k;
		}
	}
	if (rdma != wanted) {
		BOOKS();
		device_find(device)->rdma = false;
	}
	if (m && *result == CUDA_SUCCESS)
		return m;
	if (m) {
		backing_discard(m);
		return NULL;
	}
	BOOKS();
	arena_give(place);
	return NULL;
}

struct backing *backing_adopt(CUdevice device, size_t size, struct chunk *list[], size_t count, const struct access *a,
			      CUresult *result)
{
	struct extent *place = NULL;
	struct backing *m = calloc(1, sizeof *m + count * sizeof m->chunk[0]);
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	{
		BOOKS();
		struct device *d = device_find(device);
		if (m && d && d->usable && size % d->granularity == 0)
			place = window_take(device, size);
	}
	if (!place) {
		free(m);
		return NULL;
	}
	m->place = place;
	m->device = device;
	CUdeviceptr address = place->address;
	for (*result = CUDA_SUCCESS; m->count < count; m->count++) {
		struct chunk *k = list[m->count];
		k->own = (struct mapping){.chunk = k, .address = address, .size = k->size, .access = *a};
		*result = chunk_map(&k->own);
		if (*result != CUDA_SUCCESS)
			break;
		k->mappings = &k->own;
		m->chunk[m->count] = k;
		address += k->size;
	}
	if (*result == CUDA_SUCCESS)
		return m;
	backing_return(m);
	return NULL;
}

void backing_return(struct backing *m)
{
	struct extent *place = m->place;
	bool clear = backing_unmap(m) == CUDA_SUCCESS;
	for (size_t i = 0; i < m->count; i++)
		m->chunk[i]->mappings = NULL;
	free(m);
	BOOKS();
	if (clear)
		arena_give(place);
}

CUresult backing_grant(struct backing *m, const struct access *a)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < m->count; i++) {
		struct mapping *own = &m->chunk[i]->own;
		uint64_t written = own->access.readwrite ^ a->readwrite, read = own->access.read ^ a->read;
		CUmemAccessDesc list[ACCESS_DEVICES];
		size_t count = 0;
		for (int device = 0; device < ACCESS_DEVICES; device++) {
			if (!((written | read) >> device & 1))
				continue;
			list[count++] = (CUmemAccessDesc){
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				.flags = a->readwrite >> device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
					 : a->read >> device & 1    ? CU_MEM_ACCESS_FLAGS_PROT_READ
								    : CU_MEM_ACCESS_FLAGS_PROT_NONE,
			};
		}
		CUresult r = count > 0 ? REAL(cuMemSetAccess)(own->address, own->size, list, count) : CUDA_SUCCESS;
		if (r == CUDA_SUCCESS)
			own->access = *a;
		else
			result = r;
	}
	return result;
}
