// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Pools, where they meet the rest: what they keep though nothing is in it goes back
// to the device at points of synchronization, when memory is short, and at a park.
#include "pools.h"

#include <stdatomic.h>

#include "books.h"
#include "capture.h"
#include "context.h"
#include "events.h"
#include "overrides.h"
#include "ptsz.h"
#include "real.h"
#include "segment.h"

static _Atomic uint64_t held;

bool pools_look(CUdeviceptr address, struct pooled *found)
{
	BOOKS();
	const struct extent *e = segment_find(address);
	if (!e)
		return false;
	const struct pool *p = segment_pool(e);
	*found = (struct pooled){e->address, e->asked, e->id, p->device, p->handle};
	return true;
}

bool pools_have(CUdeviceptr address)
{
	BOOKS();
	return segment_has(address);
}

// The program says that all use is over, and the driver waits for nothing here (CUDA
// programming guide, "stream-ordered memory allocator"). Whoever had the memory
// before may not be done with it: that is its mark.
CUresult pools_free(CUdeviceptr address)
{
	BOOKS();
	struct extent *e = segment_find(address);
	if (!e || e->address != address || e->leaving)
		return CUDA_ERROR_INVALID_VALUE;
	piece_take_back(e);
	return CUDA_SUCCESS;
}

bool pools_make_room(CUdevice device)
{
	bool any = false;
	{
		BOOKS();
		lanes_reap((struct waited){0});
	}
	for (struct pool *p = NULL; (p = pool_hold_next(p));)
		if (p->device == device)
			any = segments_release(p, 0) || any;
	return any;
}

void pools_context_gone(CUcontext context)
{
	BOOKS();
	lanes_reap((struct waited){.gone = context});
	lanes_end(context);
}

void pools_quiesce(void)
{
	{
		BOOKS();
		lanes_reap((struct waited){.everything = true});
		lanes_end(NULL);
	}
	for (struct pool *p = NULL; (p = pool_hold_next(p));)
		segments_release(p, 0);
}

void pools_commit(void)
{
	if (REAL(cuMemPoolTrimTo) && REAL(cuMemPoolGetAttribute))
		atomic_store(&held, pools_trim());
}

uint64_t pools_held(void)
{
	return atomic_load(&held);
}

// Points of synchronization.

// may_release tells whether a pool has more than it shall keep, and nobody has to wait
// for others until it is given back: to unmap memory may wait for all work of its
// device. So the program has waited for that, or no other stream is at work.
static bool may_release(const struct pool *p, const struct waited *w)
{
	BOOKS();
	return segments_idle(p, p->threshold) && lanes_quiet(p->device, w->lane, w->context);
}

static void settle(struct waited w)
{
	if (capture_running())
		return;
	{
		BOOKS();
		lanes_reap(w);
	}
	for (struct pool *p = NULL; (p = pool_hold_next(p));)
		if (may_release(p, &w))
			segments_release(p, p->threshold);
}

static CUresult stream_waited(CUstream stream, struct manner how, CUresult r)
{
	unsigned long long id;
	if (r != CUDA_SUCCESS || !pools_attended() ||
	    (how.own ? REAL(cuStreamGetId_ptsz) : REAL(cuStreamGetId))(stream, &id) != CUDA_SUCCESS)
		return r;
	const struct lane *l;
	{
		BOOKS();
		l = lane_peek(id);
	}
	settle((struct waited){.lane = l});
	return r;
}

CUresult hetcuda_cuStreamSynchronize(CUstream stream)
{
	return stream_waited(stream, (struct manner){.own = false}, REAL(cuStreamSynchronize)(stream));
}

CUresult hetcuda_cuStreamSynchronize_ptsz(CUstream stream)
{
	return stream_waited(stream, (struct manner){.own = true}, REAL(cuStreamSynchronize_ptsz)(stream));
}

CUresult hetcuda_cuEventSynchronize(CUevent event)
{
	CUresult r = events_synchronize(event);
	if (r == CUDA_SUCCESS && pools_attended())
		settle((struct waited){0});
	return r;
}

static CUresult context_waited(CUcontext context, CUresult r)
{
	if (r == CUDA_SUCCESS && pools_attended() &&
	    (context || REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS))
		settle((struct waited){.context = context});
	return r;
}

CUresult hetcuda_cuCtxSynchronize(void)
{
	return context_waited(NULL, REAL(cuCtxSynchronize)());
}

CUresult hetcuda_cuCtxSynchronize_v2(CUcontext context)
{
	return context_waited(context, REAL(cuCtxSynchronize_v2)(context));
}
