// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "books.h"
#include "capture.h"
#include "counters.h"
#include "overrides.h"
#include "real.h"
#include "segment.h"
#include "window.h"

static struct tree pools; // by handle
static struct pool *served;
static _Atomic bool attended;

// The pool that each device takes, so far as it is known. Each change of it is
// counted: what was asked before it is old.
static CUmemoryPool current[ACCESS_DEVICES];
static uint64_t changes;

struct pool *pool_first(void)
{
	return served;
}

bool pools_attended(void)
{
	return atomic_load_explicit(&attended, memory_order_relaxed);
}

void pools_attend(void)
{
	bool now = false;
	for (const struct pool *p = served; p && !now; p = p->next)
		now = p->reserved > p->used && (p->reserved > p->threshold || !p->opportunistic);
	atomic_store_explicit(&attended, now, memory_order_relaxed);
}

static struct pool *find(CUmemoryPool handle)
{
	struct pool *p = OF(tree_floor(&pools, (uintptr_t)handle, 0), struct pool, by_handle);
	return p && p->handle == handle ? p : NULL;
}

// end frees a pool that the program has destroyed and that nothing uses any more.
// Lock: held.
static void end(struct pool *p)
{
	if (!p->ended || p->busy > 0 || p->segments)
		return;
	for (struct pool **link = &served; *link; link = &(*link)->next) {
		if (*link == p) {
			*link = p->next;
			break;
		}
	}
	free(p);
}

void pool_let_go(struct pool *p)
{
	BOOKS();
	p->busy--;
	end(p);
}

struct pool *pool_hold_next(struct pool *before)
{
	BOOKS();
	struct pool *p = before ? before->next : served;
	if (p)
		p->busy++;
	if (before) {
		before->busy--;
		end(before);
	}
	return p;
}

// number is one that no other pool has, or 0.
static unsigned new_number(void)
{
	for (unsigned n = 1; n < 1u << 15; n++) {
		const struct pool *p = served;
		while (p && p->number != n)
			p = p->next;
		if (!p)
			return n;
	}
	return 0;
}

static bool attribute(CUmemoryPool handle, CUmemPool_attribute what, int *value)
{
	return REAL(cuMemPoolGetAttribute)(handle, what, value) == CUDA_SUCCESS;
}

// read_attributes takes over what the driver's pool is set to.
static bool read_attributes(struct pool *p)
{
	int follow, opportunistic, internal;
	if (!attribute(p->handle, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow) ||
	    !attribute(p->handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic) ||
	    !attribute(p->handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &internal) ||
	    REAL(cuMemPoolGetAttribute)(p->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &p->threshold) != CUDA_SUCCESS)
		return false;
	p->follow = follow;
	p->opportunistic = opportunistic;
	p->internal = internal;
	return true;
}

// can_serve tells whether streams can be told apart, and memory of a device parked.
static bool can_serve(CUdevice device)
{
	const char *way = getenv(HETCUDA_POOLS_ENV);
	if ((way && !strcmp(way, "driver")) || !lanes_possible() || !REAL(cuMemPoolGetAttribute))
		return false;
	BOOKS();
	const struct device *d = device_find(device);
	return d && d->usable;
}

// forget takes a pool out of the books. Lock: held.
static void forget(struct pool *p)
{
	if (p->ended)
		return;
	tree_remove(&pools, &p->by_handle);
	p->ended = true;
	p->threshold = 0;
	if (p->sharing)
		atomic_fetch_sub(p->sharing, 1);
	pools_attend();
}

// note remembers a pool: one that we serve on a device, or with -1 one that is the
// driver's. What is in *sharing, if anything, counts while it is there. If the driver
// has just `made` it, what had its handle is gone.
static void note(CUmemoryPool handle, CUdevice device, uint64_t max, _Atomic int64_t *sharing, bool made)
{
	struct pool *p = calloc(1, sizeof *p);
	if (!p) { // it is the driver's
		if (sharing)
			atomic_fetch_add(sharing, 1);
		return;
	}
	p->handle = handle;
	p->device = device;
	p->max = max;
	bool serve = device >= 0 && device < ACCESS_DEVICES && can_serve(device) && read_attributes(p);
	BOOKS();
	struct pool *old = find(handle);
	if (old && !made) {
		free(p); // another thread was faster
		return;
	}
	if (old) {
		forget(old);
		end(old);
	}
	p->number = serve ? new_number() : 0;
	p->served = p->number > 0;
	if (p->served) {
		p->access.readwrite = UINT64_C(1) << device;
		p->next = served;
		served = p;
	}
	p->sharing = sharing;
	if (sharing)
		atomic_fetch_add(sharing, 1);
	tree_insert(&pools, &p->by_handle, (uintptr_t)handle, 0);
}

// discover finds out whose default pool a handle is that we have not seen made.
static void discover(CUmemoryPool handle)
{
	int count = 0;
	REAL(cuDeviceGetCount)(&count);
	for (int i = 0; i < count; i++) {
		CUmemoryPool pool;
		if (REAL(cuDeviceGetDefaultMemPool) && REAL(cuDeviceGetDefaultMemPool)(&pool, i) == CUDA_SUCCESS && pool == handle) {
			note(handle, i, 0, NULL, false);
			return;
		}
	}
	note(handle, -1, 0, NULL, false);
}

static CUmemoryPool current_of(CUdevice device)
{
	CUmemoryPool pool = NULL;
	uint64_t seen;
	if (device < 0 || device >= ACCESS_DEVICES)
		return NULL;
	{
		BOOKS();
		if (current[device])
			return current[device];
		seen = changes;
	}
	if (!REAL(cuDeviceGetMemPool) || REAL(cuDeviceGetMemPool)(&pool, device) != CUDA_SUCCESS)
		return NULL;
	BOOKS();
	if (seen == changes)
		current[device] = pool;
	return pool;
}

static void forget_current(void)
{
	BOOKS();
	changes++;
	for (int i = 0; i < ACCESS_DEVICES; i++)
		current[i] = NULL;
}

static struct pool *hold(CUmemoryPool handle, CUdevice device)
{
	if (!handle)
		handle = current_of(device);
	for (int tries = 0; handle && tries < 2; tries++) {
		if (tries > 0)
			discover(handle);
		BOOKS();
		struct pool *p = find(handle);
		if (!p)
			continue;
		if (!p->served || p->ending)
			return NULL;
		p->busy++;
		return p;
	}
	return NULL;
}

struct pool *pool_hold(CUmemoryPool handle, CUdevice device)
{
	// To ask the driver about its pools spoils captures (580).
	struct aside aside = capture_step_aside();
	struct pool *p = hold(handle, device);
	capture_step_back(aside);
	return p;
}

CUresult hetcuda_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *p)
{
	CUresult r = REAL(cuMemPoolCreate)(pool, p);
	if (r != CUDA_SUCCESS)
		return r;
	bool ours = p->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    p->handleTypes == CU_MEM_HANDLE_TYPE_NONE && p->usage == 0;
	note(*pool, ours ? p->location.id : -1, p->maxSize, NULL, true);
	return r;
}

// depart keeps a pool from everybody while the driver destroys it: as soon as that is
// done another may have the same handle.
static struct pool *depart(CUmemoryPool handle)
{
	BOOKS();
	struct pool *p = find(handle);
	if (p) {
		p->ending = true;
		p->busy++;
	}
	return p;
}

CUresult hetcuda_cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *p = depart(handle);
	CUresult r = REAL(cuMemPoolDestroy)(handle);
	forget_current(); // a device that took it takes its default one
	if (!p)
		return r;
	{
		BOOKS();
		p->ending = false;
		if (r == CUDA_SUCCESS)
			forget(p);
	}
	if (r == CUDA_SUCCESS)
		segments_release(p, 0);
	pool_let_go(p);
	return r;
}

CUresult hetcuda_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult r = REAL(cuDeviceSetMemPool)(device, pool);
	forget_current();
	return r;
}

CUresult hetcuda_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult r = REAL(cuMemSetMemPool)(location, type, pool);
	forget_current();
	return r;
}

CUresult hetcuda_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	CUresult r = REAL(cuMemPoolSetAttribute)(handle, what, value);
	struct pool *p = r == CUDA_SUCCESS ? pool_hold(handle, -1) : NULL;
	if (!p)
		return r;
	{
		BOOKS();
		switch ((int)what) {
		case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: p->follow = *(int *)value; break;
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: p->opportunistic = *(int *)value; break;
		case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: p->internal = *(int *)value; break;
		case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: p->threshold = *(cuuint64_t *)value; break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: p->reserved_high = p->reserved; break;
		case CU_MEMPOOL_ATTR_USED_MEM_HIGH: p->used_high = p->used; break;
		}
		pools_attend();
	}
	pool_let_go(p);
	return r;
}

// What the driver's pool has of its own is there too (streams that were captured,
// allocations that we could not serve).
CUresult hetcuda_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute what, void *value)
{
	CUresult r = REAL(cuMemPoolGetAttribute)(handle, what, value);
	struct pool *p = r == CUDA_SUCCESS ? pool_hold(handle, -1) : NULL;
	if (!p)
		return r;
	{
		BOOKS();
		switch ((int)what) {
		case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value += p->reserved; break;
		case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value += p->reserved_high; break;
		case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value += p->used; break;
		case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value += p->used_high; break;
		}
	}
	pool_let_go(p);
	return r;
}

CUresult hetcuda_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	CUresult r = REAL(cuMemPoolTrimTo)(handle, keep);
	struct pool *p = r == CUDA_SUCCESS ? pool_hold(handle, -1) : NULL;
	if (!p)
		return r;
	{
		BOOKS();
		lanes_reap((struct waited){0});
	}
	segments_release(p, keep);
	pool_let_go(p);
	return r;
}

uint64_t pools_trim(void)
{
	cuuint64_t total = 0, bytes;
	for (struct tree_node *n = tree_first(&pools); n; n = tree_next(n)) {
		CUmemoryPool handle = OF(n, struct pool, by_handle)->handle;
		REAL(cuMemPoolTrimTo)(handle, 0);
		if (REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS)
			total += bytes;
	}
	return total;
}

// A process that shares a pool with others is one that can't be parked.
CUresult hetcuda_cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle, CUmemAllocationHandleType type,
						  unsigned long long flags)
{
	CUresult r = REAL(cuMemPoolExportToShareableHandle)(shareable, handle, type, flags);
	if (r != CUDA_SUCCESS)
		return r;
	BOOKS();
	struct pool *p = find(handle);
	if (!p || !p->sharing)
		COUNT(exported);
	if (p)
		p->sharing = &counters.exported;
	return r;
}

CUresult hetcuda_cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable, CUmemAllocationHandleType type,
						    unsigned long long flags)
{
	CUresult r = REAL(cuMemPoolImportFromShareableHandle)(handle, shareable, type, flags);
	if (r == CUDA_SUCCESS)
		note(*handle, -1, 0, &counters.imported, true);
	return r;
}

// Pools of ours can't be shared, so there is nothing to say about their memory.
CUresult hetcuda_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
	return window_has(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemPoolExportPointer)(data, address);
}
