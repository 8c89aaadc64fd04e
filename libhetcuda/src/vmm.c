// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Virtual memory management by the program itself (PyTorch's expandable
// segments, NCCL). The driver does all of it; we remember what is mapped where
// and for whom, so that it can be let go of and mapped again, and stand between
// the program's handles and the driver's.
//
// One reference of the driver's stands for all that the program has, for it is
// needed for as long as the memory is: without a handle it can't be exported.
#include <stdlib.h>
#include <string.h>

#include "books.h"
#include "counters.h"
#include "handles.h"
#include "overrides.h"
#include "pools.h"
#include "real.h"
#include "window.h"

// The program's mappings by their addresses. Lock: books.
static struct tree mappings;

// hold returns the chunk of a handle that the program has, and keeps it while a
// call is under way; let_go ends that. Lock: not held.
static struct chunk *hold(CUmemGenericAllocationHandle handle)
{
	BOOKS();
	struct chunk *c = handle_find(handle);
	if (c)
		c->calls++;
	return c;
}

// count_sharing and uncount keep the count of memory that is shared in ways that
// parking can't follow. Lock: held.
static void count_sharing(struct chunk *c)
{
	if (c->counted)
		return;
	c->counted = true;
	if (c->imported)
		COUNT(imported);
	else
		COUNT(exported);
}

static void uncount(struct chunk *c)
{
	if (!c->counted)
		return;
	c->counted = false;
	if (c->imported)
		UNCOUNT(imported);
	else
		UNCOUNT(exported);
}

// unused tells whether nothing needs a chunk any more; then it is in no list
// any more either, and the caller's to destroy. Lock: held.
static bool unused(struct chunk *c)
{
	if (c->calls > 0 || c->references > 0 || c->mappings)
		return false;
	if (c->parkable)
		chunk_leave(c);
	uncount(c);
	return true;
}

static void let_go(struct chunk *c)
{
	{
		BOOKS();
		c->calls--;
		if (!unused(c))
			return;
	}
	chunk_destroy(c);
}

// fix leaves a chunk to the driver's own checkpoint: something refers to it that
// we could not restore. Lock: held.
static void fix(struct chunk *c)
{
	if (!c->parkable)
		return;
	c->parkable = false;
	chunk_leave(c);
	COUNT(fixed);
	if (c->shared || c->imported)
		count_sharing(c);
}

// enter gives a new chunk to the program.
static CUresult enter(struct chunk *c, CUmemGenericAllocationHandle *handle)
{
	{
		BOOKS();
		if (handle_name(c)) {
			c->references = 1;
			if (c->parkable)
				chunk_enter(c);
			*handle = c->name;
			return CUDA_SUCCESS;
		}
	}
	chunk_destroy(c);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

// can_park tells whether memory could be taken by another process: that of a
// device can, if the driver lets us have descriptors of it.
static bool can_park(const CUmemAllocationProp *prop, unsigned long long flags)
{
	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || flags != 0)
		return false;
	BOOKS();
	const struct device *d = device_find(prop->location.id);
	return d && d->usable;
}

CUresult hetcuda_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			     unsigned long long flags)
{
	if (!handle || !prop)
		return REAL(cuMemCreate)(handle, size, prop, flags);
	struct chunk *c = NULL;
	CUmemAllocationProp wanted = *prop;
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;
	bool park = can_park(prop, flags);
	if (park) {
		wanted.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
		r = chunk_create(&c, size, &wanted, flags);
		if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_make_room(prop->location.id))
			r = chunk_create(&c, size, &wanted, flags);
		// Some kinds can't be exported (with a descriptor too).
		park = r == CUDA_SUCCESS;
	}
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY)
		r = chunk_create(&c, size, prop, flags);
	if (r != CUDA_SUCCESS)
		return r;
	c->parkable = park;
	c->asked = prop->requestedHandleTypes;
	if (!park)
		COUNT(fixed);
	return enter(c, handle);
}

CUresult hetcuda_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	if (!handle_ours(handle))
		return REAL(cuMemRelease)(handle);
	struct chunk *c;
	{
		BOOKS();
		c = handle_find(handle);
		if (!c)
			return CUDA_ERROR_INVALID_VALUE;
		if (--c->references == 0)
			handle_unname(c);
		if (!unused(c))
			return CUDA_SUCCESS;
	}
	return chunk_destroy(c);
}

CUresult hetcuda_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	// To the program, what cuMemAlloc returned has no handle.
	if (!handle || window_has((uintptr_t)address))
		return CUDA_ERROR_INVALID_VALUE;
	{
		BOOKS();
		struct mapping *m = OF(tree_floor(&mappings, (uintptr_t)address, 0), struct mapping, by_address);
		if (m && (uintptr_t)address - m->address < m->size) {
			if (m->chunk->references == 0 && !handle_name(m->chunk))
				return CUDA_ERROR_OUT_OF_MEMORY;
			m->chunk->references++;
			*handle = m->chunk->name;
			return CUDA_SUCCESS;
		}
	}
	return REAL(cuMemRetainAllocationHandle)(handle, address);
}

CUresult hetcuda_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	if (!handle_ours(handle) || !prop)
		return REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
	struct chunk *c = hold(handle);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = REAL(cuMemGetAllocationPropertiesFromHandle)(prop, c->handle);
	if (r == CUDA_SUCCESS && !c->imported)
		prop->requestedHandleTypes = c->asked;
	let_go(c);
	return r;
}

CUresult hetcuda_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
					      CUmemAllocationHandleType type, unsigned long long flags)
{
	if (!handle_ours(handle))
		return REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
	struct chunk *c = hold(handle);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_ERROR_INVALID_VALUE; // not what the program asked for
	if (c->imported || (c->asked & type))
		r = REAL(cuMemExportToShareableHandle)(shareable, c->handle, type, flags);
	if (r == CUDA_SUCCESS) {
		BOOKS();
		c->shared = true;
		if (!c->parkable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
			count_sharing(c);
	}
	let_go(c);
	return r;
}

// importable returns the device of memory that was imported and that can be
// parked, or -1.
static CUdevice importable(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) != CUDA_SUCCESS || !can_park(&prop, 0))
		return -1;
	return prop.location.id;
}

CUresult hetcuda_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
						CUmemAllocationHandleType type)
{
	struct chunk *c = handle ? calloc(1, sizeof *c) : NULL;
	if (!c)
		return handle ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	CUresult r = REAL(cuMemImportFromShareableHandle)(&c->handle, shareable, type);
	if (r != CUDA_SUCCESS) {
		free(c);
		return r;
	}
	c->id = new_id();
	c->imported = true;
	c->device = importable(c->handle, type);
	{
		BOOKS();
		count_sharing(c);
	}
	r = enter(c, handle);
	if (r != CUDA_SUCCESS)
		UNCOUNT(imported);
	return r;
}

// sized notes how large memory is that was imported, which shows only when it is
// mapped. From then on it can be parked. Lock: held.
static void sized(struct chunk *c, size_t size, size_t offset)
{
	if (!c->imported || c->size > 0 || offset != 0 || c->device < 0)
		return;
	c->size = size;
	c->parkable = true;
	chunk_enter(c);
	uncount(c);
}

// link_mapping and unlink_mapping are for both lists that a mapping is in.
// Lock: held.
static void link_mapping(struct mapping *m)
{
	tree_insert(&mappings, &m->by_address, m->address, 0);
	m->next = m->chunk->mappings;
	m->chunk->mappings = m;
}

static void unlink_mapping(struct mapping *m)
{
	tree_remove(&mappings, &m->by_address);
	for (struct mapping **link = &m->chunk->mappings; *link; link = &(*link)->next) {
		if (*link == m) {
			*link = m->next;
			break;
		}
	}
	m->next = NULL;
}

CUresult hetcuda_cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			  unsigned long long flags)
{
	if (window_has(address))
		return CUDA_ERROR_INVALID_VALUE; // not an address that the program reserved
	if (!handle_ours(handle))
		return REAL(cuMemMap)(address, size, offset, handle, flags);
	struct chunk *c = hold(handle);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *m = calloc(1, sizeof *m);
	CUresult r = m ? REAL(cuMemMap)(address, size, offset, c->handle, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		m->chunk = c;
		m->address = address;
		m->size = size;
		m->offset = offset;
		BOOKS();
		sized(c, size, offset);
		link_mapping(m);
	} else {
		free(m);
	}
	let_go(c);
	return r;
}

// within returns the first mapping in a range, or NULL. Lock: held.
static struct mapping *within(CUdeviceptr address, size_t size)
{
	struct mapping *m = OF(tree_ceiling(&mappings, address, 0), struct mapping, by_address);
	return m && m->address - address < size ? m : NULL;
}

CUresult hetcuda_cuMemUnmap(CUdeviceptr address, size_t size)
{
	if (window_has(address))
		return CUDA_ERROR_INVALID_VALUE;
	// First out of the books: as soon as the driver is done, another thread
	// may map something there.
	struct mapping *list = NULL, *m;
	{
		BOOKS();
		while ((m = within(address, size))) {
			unlink_mapping(m);
			m->chunk->calls++;
			m->next = list;
			list = m;
		}
	}
	CUresult r = REAL(cuMemUnmap)(address, size);
	while ((m = list)) {
		struct chunk *c = m->chunk;
		list = m->next;
		if (r == CUDA_SUCCESS) {
			free(m);
		} else {
			BOOKS();
			link_mapping(m);
		}
		let_go(c);
	}
	return r;
}

static bool same_place(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && a->id == b->id;
}

// note writes down what was granted; false if there is no room. Lock: held.
static bool note(struct access *a, const CUmemAccessDesc *granted)
{
	const CUmemLocation *l = &granted->location;
	if (l->type == CU_MEM_LOCATION_TYPE_DEVICE) {
		if (l->id < 0 || l->id >= ACCESS_DEVICES)
			return false;
		uint64_t bit = UINT64_C(1) << l->id;
		a->readwrite &= ~bit;
		a->read &= ~bit;
		if (granted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			a->readwrite |= bit;
		else if (granted->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
			a->read |= bit;
		return true;
	}
	unsigned i = 0;
	while (i < a->others && !same_place(&a->other[i].location, l))
		i++;
	if (i == ACCESS_OTHERS)
		return false;
	a->other[i] = *granted;
	if (i == a->others)
		a->others++;
	return true;
}

CUresult hetcuda_cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
	if (window_has(address))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = REAL(cuMemSetAccess)(address, size, access, count);
	if (r != CUDA_SUCCESS)
		return r;
	BOOKS();
	struct mapping *m = within(address, size);
	while (m && m->address - address < size) {
		for (size_t i = 0; i < count; i++)
			if (!note(&m->access, &access[i]))
				fix(m->chunk);
		m = OF(tree_next(&m->by_address), struct mapping, by_address);
	}
	return r;
}

CUresult hetcuda_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	return window_has(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemGetAccess)(flags, location, address);
}

CUresult hetcuda_cuMemAddressFree(CUdeviceptr address, size_t size)
{
	return window_has(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemAddressFree)(address, size);
}

CUresult hetcuda_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
				    CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
				    unsigned long long flags)
{
	if (!handle_ours(memory))
		return REAL(cuMulticastBindMem)(multicast, offset, memory, memory_offset, size, flags);
	struct chunk *c = hold(memory);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = REAL(cuMulticastBindMem)(multicast, offset, c->handle, memory_offset, size, flags);
	if (r == CUDA_SUCCESS) {
		BOOKS();
		fix(c);
	}
	let_go(c);
	return r;
}

CUresult hetcuda_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address, size_t size,
				     unsigned long long flags)
{
	if (window_has(address))
		return CUDA_ERROR_INVALID_VALUE; // not memory that the program mapped
	CUresult r = REAL(cuMulticastBindAddr)(multicast, offset, address, size, flags);
	if (r != CUDA_SUCCESS)
		return r;
	BOOKS();
	struct mapping *m = OF(tree_floor(&mappings, address, 0), struct mapping, by_address);
	if (!m || address - m->address >= m->size)
		m = within(address, size);
	while (m && (m->address <= address || m->address - address < size)) {
		fix(m->chunk);
		m = OF(tree_next(&m->by_address), struct mapping, by_address);
	}
	return r;
}

typedef CUresult map_array(CUarrayMapInfo *list, unsigned int count, CUstream stream);

// map_arrays puts the driver's handles in the place of the program's. Memory
// behind a sparse array stays there: we could not unmap it.
static CUresult map_arrays(map_array *real, CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	if (!list || count == 0)
		return real(list, count, stream);
	CUarrayMapInfo *copy = calloc(count, sizeof *copy);
	struct chunk **held = calloc(count, sizeof *held);
	CUresult r = copy && held ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; i++) {
		copy[i] = list[i];
		if (list[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP || !handle_ours(list[i].memHandle.memHandle))
			continue;
		held[i] = hold(list[i].memHandle.memHandle);
		if (held[i])
			copy[i].memHandle.memHandle = held[i]->handle;
		else
			r = CUDA_ERROR_INVALID_VALUE;
	}
	if (r == CUDA_SUCCESS)
		r = real(copy, count, stream);
	for (unsigned int i = 0; held && i < count; i++) {
		if (!held[i])
			continue;
		if (r == CUDA_SUCCESS) {
			BOOKS();
			fix(held[i]);
		}
		let_go(held[i]);
	}
	free(copy);
	free(held);
	return r;
}

CUresult hetcuda_cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	return map_arrays(REAL(cuMemMapArrayAsync), list, count, stream);
}

CUresult hetcuda_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	return map_arrays(REAL(cuMemMapArrayAsync_ptsz), list, count, stream);
}
