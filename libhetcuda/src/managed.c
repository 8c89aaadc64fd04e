// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "managed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "block.h"
#include "books.h"
#include "capture.h"
#include "copy.h"
#include "counters.h"
#include "hetcuda_control.h"
#include "log.h"
#include "managed_driver.h"
#include "memory_free.h"
#include "overrides.h"
#include "pages.h"
#include "parts.h"
#include "real.h"
#include "ring.h"
#include "serve.h"
#include "submit.h"
#include "variables.h"
#include "watch.h"
#include "window.h"

// An allocation below this shares a range with others of its context.
#define SHARE ((size_t)1 << 20)

// chosen tells whether a variable of the environment says "driver". answer is 0 until
// it was asked; two threads come to the same.
static bool chosen(int *answer, const char *name)
{
	int a = __atomic_load_n(answer, __ATOMIC_RELAXED);
	if (a == 0) {
		const char *way = getenv(name);
		a = way && !strcmp(way, "driver") ? 1 : 2;
		__atomic_store_n(answer, a, __ATOMIC_RELAXED);
	}
	return a == 1;
}

static bool left_to_driver(void)
{
	static int answer;
	return chosen(&answer, HETCUDA_MANAGED_ENV);
}

bool managed_variables_wanted(void)
{
	static int answer;
	return !left_to_driver() && !chosen(&answer, HETCUDA_VARIABLES_ENV);
}

static bool usable(CUdevice device)
{
	BOOKS();
	const struct device *d = device_find(device);
	return d && d->usable;
}

// What a kernel on another device needs. Where devices can't reach one another
// the driver too keeps managed memory in host memory (CUDA programming guide).
static bool reachable(CUdevice home)
{
	int count = 0;
	if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || !REAL(cuDeviceCanAccessPeer))
		return true;
	for (int i = 0; i < count; i++) {
		unsigned int flags;
		int can = 0, active = 0;
		if (i == home || (REAL(cuDeviceCanAccessPeer)(&can, i, home) == CUDA_SUCCESS && can))
			continue;
		if (REAL(cuDevicePrimaryCtxGetState) &&
		    REAL(cuDevicePrimaryCtxGetState)(i, &flags, &active) == CUDA_SUCCESS && active)
			return false;
	}
	return true;
}

// grant lets the other devices use a range. Not in the records of chunk.h, which
// are about what contexts allow one another: so again after each parking.
static void grant(const struct range *r)
{
	int count = 0;
	if (!r->split || r->placed || REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || !REAL(cuDeviceCanAccessPeer))
		return;
	for (int i = 0; i < count; i++) {
		int can = 0;
		CUmemAccessDesc access = {
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
		if (i == r->device || REAL(cuDeviceCanAccessPeer)(&can, i, r->device) != CUDA_SUCCESS || !can)
			continue;
		if (REAL(cuMemSetAccess)(r->address, r->size, &access, 1) != CUDA_SUCCESS)
			hetcuda_log("device %d can't use managed memory of device %d", i, r->device);
	}
}

// fits tells whether an allocation leaves the device something: for contexts,
// code and stacks, which can't be anywhere else.
static bool fits(size_t size)
{
	size_t available, total;
	return REAL(cuMemGetInfo)(&available, &total) == CUDA_SUCCESS && size <= available && available - size >= total / 64;
}

// zero makes the device's memory what the CPU's is. The driver hands out managed
// memory that is zero too, though it doesn't say so.
static CUresult zero(const struct range *r)
{
	struct ring *ring;
	PAGES();
	CUresult result = ring_of(r->context, &ring);
	if (result == CUDA_SUCCESS)
		result = ring_begin(ring);
	if (result != CUDA_SUCCESS)
		return result;
	ring_zero(ring, r->address, r->size);
	return ring_end(ring);
}

static CUresult enter(struct range *r)
{
	if (!arena_init(&r->pieces, &r->available, r->address, r->size, r))
		return CUDA_ERROR_OUT_OF_MEMORY;
	PAGES();
	CUresult result = range_add(r);
	if (result != CUDA_SUCCESS)
		arena_end(&r->pieces);
	return result;
}

static CUresult make_split(struct range *r, struct context *c)
{
	CUresult result = block_take(c, r->size, &r->address);
	if (result != CUDA_SUCCESS)
		return result;
	r->split = true;
	grant(r);
	result = zero(r);
	if (result == CUDA_SUCCESS)
		result = enter(r);
	if (result != CUDA_SUCCESS)
		memory_free(r->address, NULL, NULL);
	return result;
}

// make_pinned is for what the device has no room for: it uses the pages of the
// CPU where they are, over the bus.
static CUresult make_pinned(struct range *r)
{
	CUdeviceptr seen = 0;
	void *host = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	// A page that a child got a copy of is not the one that the device uses.
	madvise(host, r->size, MADV_DONTFORK);
	CUresult result = REAL(cuMemHostRegister)(host, r->size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS) {
		r->address = (uintptr_t)host;
		result = REAL(cuMemHostGetDevicePointer)(&seen, host, 0);
		if (result == CUDA_SUCCESS && seen != r->address)
			result = CUDA_ERROR_NOT_SUPPORTED;
		if (result == CUDA_SUCCESS)
			result = enter(r);
		if (result == CUDA_SUCCESS)
			return result;
		REAL(cuMemHostUnregister)(host);
	}
	munmap(host, r->size);
	return result;
}

static struct range *make(struct context *c, size_t asked, CUresult *result)
{
	struct range *r = calloc(1, sizeof *r);
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r)
		return NULL;
	r->context = c->handle;
	r->device = c->device;
	r->preferred = r->prefetched = CU_DEVICE_INVALID;
	r->slab = asked < SHARE;
	r->size = (asked + RANGE_UNIT - 1) / RANGE_UNIT * RANGE_UNIT;
	bool split = reachable(c->device) && fits(r->size);
	if (split)
		*result = make_split(r, c);
	if (!split || *result == CUDA_ERROR_OUT_OF_MEMORY)
		*result = make_pinned(r);
	if (*result == CUDA_SUCCESS)
		return r;
	free(r);
	return NULL;
}

// take hands out all or a piece of a range. Lock: held.
static bool take(struct range *r, size_t asked, CUdeviceptr *address)
{
	size_t size = r->slab ? (asked + GRAIN - 1) / GRAIN * GRAIN : r->size;
	struct extent *e = arena_take(&r->available, size);
	if (!e)
		return false;
	e->owner = r;
	e->asked = asked;
	e->id = new_id();
	*address = e->address;
	return true;
}

static bool take_shared(const struct context *c, size_t asked, CUdeviceptr *address)
{
	PAGES();
	for (struct range *r = range_first(); r; r = range_next(r))
		if (r->slab && r->context == c->handle && take(r, asked, address))
			return true;
	return false;
}

static CUresult allocate(struct context *c, size_t asked, CUdeviceptr *address)
{
	CUresult result;
	struct range *r;
	// Others may have taken all of a new slab before we come to it.
	while (asked < SHARE) {
		if (take_shared(c, asked, address))
			return CUDA_SUCCESS;
		if (!make(c, asked, &result))
			return result;
	}
	if (asked > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = make(c, asked, &result);
	if (!r)
		return result;
	PAGES();
	return take(r, asked, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static pthread_mutex_t readying = PTHREAD_MUTEX_INITIALIZER;

// ready has everything watched when it returns true, also to a second thread.
static bool ready(void)
{
	bool watched;
	pthread_mutex_lock(&readying);
	{
		PAGES();
		watched = watch_start();
	}
	bool is = watched && serve_start();
	if (is)
		submit_watch();
	pthread_mutex_unlock(&readying);
	return is;
}

static CUresult from_driver(CUdeviceptr *address, size_t size, unsigned int flags)
{
	CUresult r = REAL(cuMemAllocManaged)(address, size, flags);
	if (r == CUDA_SUCCESS)
		managed_driver_note(*address, NULL);
	return r;
}

bool managed_ready(CUdevice device)
{
	return !left_to_driver() && usable(device) && ready();
}

CUresult hetcuda_cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
	static bool said;
	CUresult r;
	if (left_to_driver() || !address || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return from_driver(address, size, flags);
	struct context *c = context_current(&r);
	if (!c)
		return from_driver(address, size, flags);
	if (usable(c->device) && ready()) {
		r = allocate(c, size, address);
	} else {
		if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
			hetcuda_log("managed memory is left to the driver: this process can't be checkpointed");
		r = from_driver(address, size, flags);
	}
	context_done(c);
	return r;
}

CUresult hetcuda_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	CUresult r = REAL(cuDeviceGetAttribute)(value, attribute, device);
	// Programs ask this to know whether the CPU may touch managed memory
	// while a kernel runs.
	if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && r == CUDA_SUCCESS && *value && !left_to_driver() &&
	    usable(device))
		*value = 0;
	return r;
}

// find returns the allocation that has an address. Lock: held.
static struct extent *find(CUdeviceptr address)
{
	struct range *r = range_find(address);
	struct extent *e = r && !r->placed ? arena_find(&r->pieces, address) : NULL;
	return e && address - e->address < e->asked ? e : NULL;
}

bool managed_look(CUdeviceptr address, struct managed_found *found)
{
	if (!range_any())
		return false;
	PAGES();
	struct range *r = range_find(address);
	const struct part *p = r ? part_find(r, address) : NULL;
	if (p && found)
		*found = (struct managed_found){p->whole->address, p->whole->size, p->whole->id, r->context, r->device, p->whole->sync};
	if (p)
		return true;
	struct extent *e = find(address);
	if (!e)
		return false;
	r = e->owner;
	if (found)
		*found = (struct managed_found){e->address, e->asked, e->id, r->context, r->device, e->sync};
	return true;
}

void managed_set_sync(CUdeviceptr address, bool sync)
{
	PAGES();
	const struct range *r = range_find(address);
	const struct part *p = r ? part_find(r, address) : NULL;
	struct extent *e = find(address);
	if (p)
		p->whole->sync = sync;
	if (e)
		e->sync = sync;
}

static void end_pinned(struct range *r)
{
	REAL(cuMemHostUnregister)((void *)(uintptr_t)r->address);
	munmap((void *)(uintptr_t)r->address, r->size);
}

// wait_range waits for the work of the context that a range belongs to, and of
// those that may use its memory.
static CUresult wait_range(CUcontext context)
{
	struct context *of = NULL;
	{
		BOOKS();
		for (struct context *c = context_first(); c && !of; c = c->next)
			if (!c->gone && c->handle == context)
				of = c;
		if (of)
			of->busy++;
	}
	if (!of)
		return CUDA_SUCCESS;
	CUresult r = context_wait(of);
	context_done(of);
	return r;
}

bool managed_free(CUdeviceptr address, CUresult (*wait)(CUstream), CUstream stream, CUresult *result)
{
	CUcontext context;
	struct range *r;
	if (!range_any())
		return false;
	{
		PAGES();
		struct extent *e = find(address);
		if (!e)
			return false;
		*result = CUDA_ERROR_INVALID_VALUE;
		if (e->address != address || e->leaving)
			return true;
		e->leaving = true;
		r = e->owner;
		context = r->context;
	}
	// While a stream is captured its work hasn't begun, and waiting would
	// spoil it; the device's memory goes when the capture has ended.
	if (!capture_running())
		*result = wait ? wait(stream) : wait_range(context);
	else
		*result = CUDA_SUCCESS;
	{
		PAGES();
		struct extent *e = find(address);
		if (!e)
			return true; // its context has gone meanwhile
		if (*result != CUDA_SUCCESS) {
			e->leaving = false;
			return true;
		}
		arena_give(e);
		if (r->pieces.used > 0)
			return true;
		range_remove(r);
		arena_end(&r->pieces);
	}
	if (r->split)
		*result = memory_free(r->address, wait, stream);
	else
		end_pinned(r);
	free(r);
	return true;
}

void managed_context_gone(CUcontext context)
{
	variables_context_gone(context);
	PAGES();
	for (struct range *r = range_first(), *next; r; r = next) {
		next = range_next(r);
		if (r->context != context)
			continue;
		range_remove(r);
		arena_end(&r->pieces);
		// The context took the registration with it.
		if (!r->split)
			munmap((void *)(uintptr_t)r->address, r->size);
		free(r);
	}
	ring_drop(context);
}

// Parking.

int managed_quiesce(char *text)
{
	int refused = managed_driver_check(text);
	if (refused || !range_any())
		return refused;
	PAGES();
	CUresult r = pages_flush_all();
	if (r != CUDA_SUCCESS) {
		snprintf(text, HETCUDA_TEXT, "managed memory can't be copied to the device: error %d", (int)r);
		return (int)r;
	}
	serve_pause();
	return 0;
}

void managed_pause(void)
{
	PAGES();
	serve_pause();
}

void managed_grant(void)
{
	PAGES();
	for (struct range *r = range_first(); r; r = range_next(r))
		grant(r);
}

void managed_abandon(void)
{
	PAGES();
	serve_continue();
}

void managed_commit(void)
{
	PAGES();
	// Also when all managed memory is gone: CRIU can't dump a userfaultfd.
	watch_suspend();
	ring_drop_all();
}

void managed_resume(void)
{
	PAGES();
	for (struct range *r = range_first(); r; r = range_next(r)) {
		// A host function may be the first that needs the ring, and to
		// make one is nothing for that moment.
		struct ring *ring;
		grant(r);
		if (r->split && ring_of(r->context, &ring) != CUDA_SUCCESS)
			hetcuda_log("there is no pinned memory for managed memory at %#llx yet", r->address);
	}
	watch_resume();
	serve_continue();
}

void managed_forked(void)
{
	pthread_mutex_init(&readying, NULL);
	managed_driver_forked();
	variables_forked();
	submit_forked();
	pages_forked();
	serve_forked();
	watch_forked();
	ring_forked();
	copy_forked();
}
