// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// cuMemAllocAsync and its kin, over memory of ours.
//
// Who gets which memory is decided as the CUDA programming guide describes it
// ("stream-ordered memory allocator", reuse policies): what the stream itself has
// freed, what is free for all, what streams have freed that the stream comes after,
// or that have got that far; then new memory. Only if there is none does the stream
// wait for another one.
#include "books.h"
#include "capture.h"
#include "counters.h"
#include "follow.h"
#include "managed.h"
#include "memory_free.h"
#include "overrides.h"
#include "pools.h"
#include "ptsz.h"
#include "real.h"
#include "segment.h"
#include "window.h"

static const struct manner legacy = {.own = false}, per_thread = {.own = true};

// captured tells whether what is done in a stream becomes part of a graph, or is an
// error: then it is for the driver.
static bool captured(CUstream stream, struct manner how)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	__typeof__(&cuStreamIsCapturing) ask = how.own ? REAL(cuStreamIsCapturing_ptsz) : REAL(cuStreamIsCapturing);
	return !ask || ask(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// What the program asks for, and how much that is.
struct wish {
	size_t asked, size;
};

static bool any_mark(const struct mark *m, const struct lane *l)
{
	(void)m, (void)l;
	return true;
}

// at_once takes what the stream can have without waiting for anything. Lock: held.
static struct extent *at_once(struct pool *p, const struct lane *l, size_t size, bool large)
{
	struct extent *e = piece_reuse(p, l, size, large);
	if (!e)
		e = piece_available(p, size, large);
	if (!e && p->opportunistic) {
		lanes_reap((struct waited){0});
		e = piece_available(p, size, large);
	}
	return e;
}

// wait_for_other takes what another stream has freed, under a mark that passes, and
// has the stream wait for that.
static struct extent *wait_for_other(struct pool *p, const struct lane *l, CUstream stream, struct manner how,
				     const struct wish *w, bool large,
				     bool (*passes)(const struct mark *, const struct lane *))
{
	struct extent *e;
	struct mark *m;
	{
		BOOKS();
		e = piece_steal(p, l, w->size, large, passes);
		if (!e)
			return NULL;
		m = e->mark;
		mark_use(m);
		// Until the stream waits nobody else knows of it: it can't be freed.
		piece_hand_out(e, w->asked);
	}
	CUresult r = (how.own ? REAL(cuStreamWaitEvent_ptsz) : REAL(cuStreamWaitEvent))(stream, m->event, 0);
	BOOKS();
	if (r != CUDA_SUCCESS) {
		piece_take_back(e);
		e = NULL;
	}
	mark_unuse(m);
	return e;
}

static struct extent *take_old(struct pool *p, const struct lane *l, const struct wish *w, bool large)
{
	BOOKS();
	struct extent *e = at_once(p, l, w->size, large);
	if (e)
		piece_hand_out(e, w->asked);
	return e;
}

static struct extent *take_new(struct pool *p, const struct wish *w)
{
	struct extent *e;
	if (segment_add(p, w->size, &e) != CUDA_SUCCESS)
		return NULL;
	BOOKS();
	piece_hand_out(e, w->asked);
	return e;
}

// keeps tells whether a pool keeps all that it has. Then it is better used, large
// segments for small pieces too, than more is made.
static bool keeps(const struct pool *p)
{
	BOOKS();
	return p->reserved <= p->threshold;
}

static CUresult take(struct pool *p, const struct lane *l, CUstream stream, struct manner how, size_t asked,
		     CUdeviceptr *address)
{
	struct wish w = {.asked = asked, .size = (asked + PIECE - 1) / PIECE * PIECE};
	bool large = w.size >= LARGE;
	struct extent *e = take_old(p, l, &w, large);
	if (!e && p->follow)
		e = wait_for_other(p, l, stream, how, &w, large, follow_after);
	if (!e && keeps(p))
		e = take_old(p, l, &w, !large);
	if (!e)
		e = take_new(p, &w);
	if (!e)
		e = take_old(p, l, &w, !large);
	if (!e && p->internal)
		e = wait_for_other(p, l, stream, how, &w, large, any_mark);
	if (!e && p->internal)
		e = wait_for_other(p, l, stream, how, &w, !large, any_mark);
	if (!e && pools_make_room(p->device))
		e = take_new(p, &w);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = e->address;
	return CUDA_SUCCESS;
}

// full tells whether a pool may have no more memory, from whomever.
static bool full(const struct pool *p, size_t size)
{
	BOOKS();
	return p->max && p->reserved + size > p->max;
}

// serve allocates; false if the driver is to do it, and to say what is wrong.
static bool serve(CUdeviceptr *address, size_t size, CUmemoryPool handle, CUstream stream, struct manner how, CUresult *result)
{
	if (!address || size == 0 || size > SIZE_MAX / 2 || captured(stream, how) || !lanes_possible())
		return false;
	struct lane *l = lane_open(stream, how, result);
	if (!l)
		return false;
	if (lanes_many()) {
		BOOKS();
		lanes_reap((struct waited){0});
		lanes_tidy();
	}
	struct pool *p = pool_hold(handle, l->device);
	bool done = false;
	if (p) {
		struct aside aside = capture_step_aside();
		*result = take(p, l, stream, how, size, address);
		capture_step_back(aside);
		// The driver may have what we could not get: room in memory that
		// it holds already.
		done = *result == CUDA_SUCCESS || full(p, size);
		pool_let_go(p);
	}
	lane_close(l);
	return done;
}

// forwarded notes what the driver has served, and from which pool.
static CUresult forwarded(CUmemoryPool pool, CUresult r)
{
	CUdevice device = -1;
	if (r != CUDA_SUCCESS)
		return r;
	COUNT(async);
	if (!pool)
		REAL(cuCtxGetDevice)(&device);
	struct pool *p = pool_hold(pool, device);
	if (p)
		pool_let_go(p);
	return r;
}

CUresult hetcuda_cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	CUresult r;
	return serve(address, size, NULL, stream, legacy, &r) ? r : forwarded(NULL, REAL(cuMemAllocAsync)(address, size, stream));
}

CUresult hetcuda_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream)
{
	CUresult r;
	return serve(address, size, NULL, stream, per_thread, &r)
		       ? r
		       : forwarded(NULL, REAL(cuMemAllocAsync_ptsz)(address, size, stream));
}

CUresult hetcuda_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	CUresult r;
	return pool && serve(address, size, pool, stream, legacy, &r)
		       ? r
		       : forwarded(pool, REAL(cuMemAllocFromPoolAsync)(address, size, pool, stream));
}

CUresult hetcuda_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
	CUresult r;
	return pool && serve(address, size, pool, stream, per_thread, &r)
		       ? r
		       : forwarded(pool, REAL(cuMemAllocFromPoolAsync_ptsz)(address, size, pool, stream));
}

// leave marks an allocation as being freed, so that a second free of it finds
// nothing.
static struct extent *leave(CUdeviceptr address, struct lane *l)
{
	BOOKS();
	struct extent *e = segment_find(address);
	if (!e || e->address != address || e->leaving)
		return NULL;
	e->leaving = true;
	// Rather an event that is done with than one more.
	if (l && !l->spare)
		lane_reap(l);
	return e;
}

// left lays what was freed where it can be found, or with an error leaves it to the
// program. Without a mark all use of it is over.
static void left(struct extent *e, struct mark *m, CUresult r)
{
	BOOKS();
	e->leaving = false;
	if (r != CUDA_SUCCESS)
		return;
	piece_lift(e);
	if (m) {
		mark_enter(m);
		piece_put(e, m);
	}
	piece_take_back(e);
}

// mark_free says in a stream that a piece is free from there on. NULL and
// CUDA_SUCCESS: the stream was waited for instead.
static struct mark *mark_free(struct lane *l, CUstream stream, struct manner how, CUresult *r)
{
	if (!l) { // a stream that the driver tells nothing of
		*r = (how.own ? REAL(cuStreamSynchronize_ptsz) : REAL(cuStreamSynchronize))(stream);
		return NULL;
	}
	struct aside aside = capture_step_aside();
	struct mark *m = lane_mark(l, stream, how, r);
	capture_step_back(aside);
	return m;
}

static CUresult give(CUdeviceptr address, CUstream stream, struct manner how)
{
	CUresult r;
	struct lane *l = lane_open(stream, how, &r);
	struct extent *e = leave(address, l);
	if (e) {
		struct mark *m = mark_free(l, stream, how, &r);
		left(e, m, r);
	} else {
		r = CUDA_ERROR_INVALID_VALUE;
	}
	if (l)
		lane_close(l);
	return r;
}

// Memory of cuMemAlloc may be freed in a stream's order too. The stream is waited for
// then: the order is right, and nobody does this in a loop.
static CUresult free_async(CUdeviceptr address, CUstream stream, struct manner how, CUresult (*real)(CUdeviceptr, CUstream),
			   CUresult (*wait)(CUstream))
{
	CUresult result;
	if (managed_free(address, wait, stream, &result))
		return result;
	if (!window_has(address))
		return real(address, stream);
	if (!pools_have(address))
		return memory_free(address, wait, stream);
	// Of a stream that is being captured the driver frees only what graphs have.
	return captured(stream, how) ? real(address, stream) : give(address, stream, how);
}

CUresult hetcuda_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	return free_async(address, stream, legacy, REAL(cuMemFreeAsync), REAL(cuStreamSynchronize));
}

CUresult hetcuda_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
	return free_async(address, stream, per_thread, REAL(cuMemFreeAsync_ptsz), REAL(cuStreamSynchronize_ptsz));
}
