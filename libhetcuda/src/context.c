// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "context.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "block.h"
#include "books.h"
#include "capture.h"
#include "log.h"
#include "managed.h"
#include "overrides.h"
#include "pools.h"
#include "real.h"
#include "variables.h"
#include "window.h"

pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static struct context *contexts;

// That the work of one context may use the memory of another.
struct peer {
	struct peer *next;
	CUcontext user, owner;
	CUdevice device; // of the user
};

static struct peer *peers;

struct context *context_first(void)
{
	return contexts;
}

CUresult context_switch(CUcontext to, CUcontext *before)
{
	CUresult r = REAL(cuCtxGetCurrent)(before);
	return r != CUDA_SUCCESS || *before == to ? r : REAL(cuCtxSetCurrent)(to);
}

void context_switch_back(CUcontext to, CUcontext before)
{
	if (to != before)
		REAL(cuCtxSetCurrent)(before);
}

// find returns the record of a living context. There are few contexts, and the
// one that was used last is first. Lock: held.
static struct context *find(CUcontext handle)
{
	for (struct context **link = &contexts; *link; link = &(*link)->next) {
		struct context *c = *link;
		if (c->gone || c->handle != handle)
			continue;
		*link = c->next;
		c->next = contexts;
		contexts = c;
		return c;
	}
	return NULL;
}

static CUresult device_of(CUcontext handle, CUdevice *device)
{
	CUcontext before;
	CUresult r = context_switch(handle, &before);
	if (r != CUDA_SUCCESS)
		return r;
	r = REAL(cuCtxGetDevice)(device);
	context_switch_back(handle, before);
	return r;
}

// is_primary retains the device's primary context for a moment, only to see
// whether it is this one; if it isn't active, no context of the program's is.
static bool is_primary(CUcontext handle, CUdevice device)
{
	unsigned int flags;
	int active = 0;
	CUcontext primary;
	if (!REAL(cuDevicePrimaryCtxGetState) ||
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || !active ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return false;
	REAL(cuDevicePrimaryCtxRelease)(device);
	return primary == handle;
}

// get returns the record of a context, busy.
static struct context *get(CUcontext handle, CUresult *result)
{
	*result = CUDA_SUCCESS;
	{
		BOOKS();
		struct context *c = find(handle);
		if (c) {
			c->busy++;
			return c;
		}
	}
	CUdevice device;
	*result = device_of(handle, &device);
	if (*result != CUDA_SUCCESS)
		return NULL;
	bool primary = is_primary(handle, device);
	struct context *made = calloc(1, sizeof *made);
	BOOKS();
	struct context *c = find(handle);
	if (c) {
		free(made); // another thread was faster
	} else if (!made) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return NULL;
	} else {
		c = made;
		c->handle = handle;
		c->device = device;
		c->primary = primary;
		c->next = contexts;
		contexts = c;
	}
	c->busy++;
	return c;
}

struct context *context_current(CUresult *result)
{
	CUcontext handle = NULL;
	*result = REAL(cuCtxGetCurrent)(&handle);
	if (*result == CUDA_SUCCESS && !handle)
		*result = CUDA_ERROR_INVALID_CONTEXT;
	return *result == CUDA_SUCCESS ? get(handle, result) : NULL;
}

void context_done(struct context *c)
{
	{
		BOOKS();
		if (--c->busy > 0 || !c->gone)
			return;
		for (struct context **link = &contexts; *link; link = &(*link)->next) {
			if (*link == c) {
				*link = c->next;
				break;
			}
		}
	}
	managed_context_gone(c->handle);
	pools_context_gone(c->handle);
	block_drop_all(c);
	free(c);
}

static uint64_t bit(CUdevice device)
{
	return device >= 0 && device < ACCESS_DEVICES ? UINT64_C(1) << device : 0;
}

struct access context_access(const struct context *c)
{
	struct access a = {.readwrite = bit(c->device)};
	for (const struct peer *p = peers; p; p = p->next)
		if (p->owner == c->handle)
			a.readwrite |= bit(p->device);
	return a;
}

static bool no_context(CUresult r)
{
	return r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_idle(CUcontext handle)
{
	CUcontext before;
	CUresult r = context_switch(handle, &before);
	if (r != CUDA_SUCCESS)
		return no_context(r) ? CUDA_SUCCESS : r;
	r = REAL(cuCtxSynchronize)();
	context_switch_back(handle, before);
	return no_context(r) ? CUDA_SUCCESS : r;
}

CUresult context_wait(const struct context *c)
{
	CUresult r = context_idle(c->handle);
	for (unsigned i = 0; r == CUDA_SUCCESS; i++) {
		CUcontext user = NULL;
		unsigned n = 0;
		{
			BOOKS();
			for (struct peer *p = peers; p && !user; p = p->next)
				if (p->owner == c->handle && n++ == i)
					user = p->user;
		}
		if (!user)
			break;
		r = context_idle(user);
	}
	return r;
}

// forget_peers drops what two contexts have agreed on; NULL is any context.
// Lock: held.
static void forget_peers(CUcontext user, CUcontext owner)
{
	for (struct peer **link = &peers; *link;) {
		struct peer *p = *link;
		if ((user && p->user != user) || (owner && p->owner != owner)) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		struct context *c = find(p->owner);
		if (c)
			c->stale = true;
		free(p);
	}
}

// apply grants the memory of a context to those who may use it now. Lock: held.
static CUresult apply(struct context *c)
{
	struct access a = context_access(c);
	CUresult result = CUDA_SUCCESS;
	c->stale = false;
	for (struct block *b = c->blocks; b; b = block_next(b)) {
		CUresult r = block_grant(b, &a);
		result = result == CUDA_SUCCESS ? r : result;
	}
	return result;
}

// depart takes a context out of the books while the driver destroys it: as soon
// as that is done another may have the same handle. Which one is told by its
// handle or, with none, as the primary one of a device. NULL: it owns nothing.
static struct context *depart(CUcontext handle, CUdevice device)
{
	BOOKS();
	for (struct context *c = contexts; c; c = c->next) {
		if (c->gone || (handle ? c->handle != handle : !c->primary || c->device != device))
			continue;
		c->gone = true;
		c->busy++;
		return c;
	}
	return NULL;
}

// departed forgets a context that the driver destroyed, with all that it owned,
// or takes it back into the books if it didn't.
static CUresult departed(struct context *c, CUresult r)
{
	if (!c)
		return r;
	if (r != CUDA_SUCCESS) {
		{
			BOOKS();
			c->gone = false;
		}
		context_done(c);
		return r;
	}
	{
		BOOKS();
		forget_peers(c->handle, NULL);
		forget_peers(NULL, c->handle);
	}
	capture_forget(c->handle);
	context_done(c);
	// What the context could use of others it can't any longer. Where the
	// driver doesn't take that back, nobody is left to notice.
	BOOKS();
	for (c = contexts; c; c = c->next)
		if (!c->gone && c->stale)
			apply(c);
	return r;
}

// The first versions, by their numbers: in cuda.h their names mean the second.
#define FIRST(name) ((__typeof__(&name))hetcuda_real[HETCUDA_INDEX_##name])

typedef CUresult destroy_context(CUcontext context);
typedef CUresult end_primary(CUdevice device);

// Contexts that the program has made and not destroyed.
static _Atomic unsigned others;

unsigned context_others(void)
{
	return atomic_load(&others);
}

// may_create counts a context that is about to be made, unless it may not be: a managed
// variable is one for all contexts, and those of ours are one context's (variables.h).
static bool may_create(void)
{
	atomic_fetch_add(&others, 1);
	if (!variables_any())
		return true;
	atomic_fetch_sub(&others, 1);
	hetcuda_warn("the program has __managed__ variables, which can't be checkpointed where a device has several contexts: "
		     "this one is refused. With " HETCUDA_VARIABLES_ENV "=driver it is made, and there are no checkpoints");
	return false;
}

static CUresult created(CUresult r)
{
	if (r != CUDA_SUCCESS)
		atomic_fetch_sub(&others, 1);
	return r;
}

CUresult hetcuda_cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	return may_create() ? created(FIRST(cuCtxCreate)(context, flags, device)) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hetcuda_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	return may_create() ? created(REAL(cuCtxCreate)(context, flags, device)) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hetcuda_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device)
{
	return may_create() ? created(REAL(cuCtxCreate_v3)(context, affinity, count, flags, device)) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hetcuda_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)
{
	return may_create() ? created(REAL(cuCtxCreate_v4)(context, parameters, flags, device)) : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult destroy(destroy_context *real, CUcontext context)
{
	struct context *c = context ? depart(context, 0) : NULL;
	CUresult r = real(context);
	if (r == CUDA_SUCCESS)
		atomic_fetch_sub(&others, 1);
	return departed(c, r);
}

static CUresult reset(end_primary *real, CUdevice device)
{
	struct context *c = depart(NULL, device);
	CUresult r = departed(c, real(device));
	while (r == CUDA_SUCCESS && (c = depart(NULL, device)))
		departed(c, r);
	return r;
}

// A release ends the context only if it was the last; that is known afterwards.
static CUresult release(end_primary *real, CUdevice device)
{
	unsigned int flags;
	int active = 1;
	CUresult r = real(device);
	if (r == CUDA_SUCCESS && REAL(cuDevicePrimaryCtxGetState) &&
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active) {
		struct context *c;
		while ((c = depart(NULL, device)))
			departed(c, r);
	}
	return r;
}

// A green context is a part of the primary one, which it keeps: what was
// allocated while it was current stays when it goes.
CUresult hetcuda_cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext handle = NULL, primary = NULL;
	CUdevice device;
	if (!green || !REAL(cuCtxFromGreenCtx) || REAL(cuCtxFromGreenCtx)(&handle, green) != CUDA_SUCCESS ||
	    device_of(handle, &device) != CUDA_SUCCESS || REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return REAL(cuGreenCtxDestroy)(green);
	CUresult r = REAL(cuGreenCtxDestroy)(green);
	if (r == CUDA_SUCCESS) {
		BOOKS();
		struct context *c = find(handle);
		if (c) {
			forget_peers(handle, NULL);
			c->handle = primary;
			c->primary = true;
		}
	}
	if (r == CUDA_SUCCESS)
		capture_forget(handle);
	hetcuda_cuDevicePrimaryCtxRelease_v2(device);
	return r;
}

CUresult hetcuda_cuCtxDestroy(CUcontext context)
{
	return destroy(FIRST(cuCtxDestroy), context);
}

CUresult hetcuda_cuCtxDestroy_v2(CUcontext context)
{
	return destroy(REAL(cuCtxDestroy), context);
}

CUresult hetcuda_cuDevicePrimaryCtxReset(CUdevice device)
{
	return reset(FIRST(cuDevicePrimaryCtxReset), device);
}

CUresult hetcuda_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return reset(REAL(cuDevicePrimaryCtxReset), device);
}

CUresult hetcuda_cuDevicePrimaryCtxRelease(CUdevice device)
{
	return release(FIRST(cuDevicePrimaryCtxRelease), device);
}

CUresult hetcuda_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return release(REAL(cuDevicePrimaryCtxRelease), device);
}

CUresult hetcuda_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult r = REAL(cuCtxEnablePeerAccess)(peer, flags);
	if (r != CUDA_SUCCESS)
		return r;
	struct peer *p = calloc(1, sizeof *p);
	struct context *owner = NULL, *user = context_current(&r);
	if (user)
		owner = get(peer, &r);
	if (owner && !p)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (owner && p) {
		BOOKS();
		*p = (struct peer){.next = peers, .user = user->handle, .owner = peer, .device = user->device};
		peers = p;
		p = NULL;
		r = apply(owner);
		if (r != CUDA_SUCCESS) {
			forget_peers(user->handle, peer);
			apply(owner);
		}
	}
	free(p);
	if (owner)
		context_done(owner);
	if (user)
		context_done(user);
	if (r != CUDA_SUCCESS)
		REAL(cuCtxDisablePeerAccess)(peer);
	return r;
}

CUresult hetcuda_cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult r = REAL(cuCtxDisablePeerAccess)(peer);
	if (r != CUDA_SUCCESS)
		return r;
	struct context *owner = NULL, *user = context_current(&r);
	if (user)
		owner = get(peer, &r);
	if (owner) {
		BOOKS();
		forget_peers(user->handle, peer);
		apply(owner);
	}
	if (owner)
		context_done(owner);
	if (user)
		context_done(user);
	return CUDA_SUCCESS;
}
