// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "lane.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "books.h"
#include "capture.h"
#include "context.h"
#include "ptsz.h"
#include "real.h"

// Events that a lane keeps for its next frees.
enum { SPARES = 64 };

// Shelves are told apart by the upper bits of a key; no window has sizes that need
// them.
enum { SIZE_BITS = 48 };

static struct tree lanes; // by the number of the stream
static _Atomic bool any;  // there has been one

// Of threads' own streams, and from how many on they are looked through.
enum { FEW = 64 };
static _Atomic unsigned threads, most = FEW;

static struct lane *of_node_lane(struct tree_node *n)
{
	return OF(n, struct lane, by_id);
}

bool lanes_possible(void)
{
	return REAL(cuStreamGetId) && REAL(cuStreamGetId_ptsz) && REAL(cuStreamGetCtx) && REAL(cuStreamGetCtx_ptsz) &&
	       REAL(cuStreamIsCapturing) && REAL(cuStreamIsCapturing_ptsz) && REAL(cuStreamWaitEvent) &&
	       REAL(cuStreamWaitEvent_ptsz) && REAL(cuEventRecord) && REAL(cuEventRecord_ptsz) && REAL(cuEventQuery);
}

bool lanes_any(void)
{
	return atomic_load_explicit(&any, memory_order_relaxed);
}

struct lane *lane_peek(uint64_t id)
{
	struct lane *l = of_node_lane(tree_floor(&lanes, id, 0));
	return l && l->by_id.major == id ? l : NULL;
}

struct lane *lane_first(void)
{
	return of_node_lane(tree_first(&lanes));
}

struct lane *lane_next(const struct lane *l)
{
	return of_node_lane(tree_next(&l->by_id));
}

// describe asks the driver for what a new lane has to know, and sees to it that
// the context's end will be noticed (context.c).
static CUresult describe(struct lane *l, CUstream stream, struct manner how)
{
	CUcontext before;
	CUresult r = (how.own ? REAL(cuStreamGetCtx_ptsz) : REAL(cuStreamGetCtx))(stream, &l->context);
	if (r != CUDA_SUCCESS)
		return r;
	r = context_switch(l->context, &before);
	if (r != CUDA_SUCCESS)
		return r;
	struct context *c = context_current(&r);
	context_switch_back(l->context, before);
	if (!c)
		return r;
	l->device = c->device;
	context_done(c);
	l->stream = stream;
	l->own = stream == CU_STREAM_PER_THREAD || (!stream && how.own);
	return CUDA_SUCCESS;
}

struct lane *lane_open(CUstream stream, struct manner how, CUresult *result)
{
	unsigned long long id = 0;
	*result = (how.own ? REAL(cuStreamGetId_ptsz) : REAL(cuStreamGetId))(stream, &id);
	if (*result != CUDA_SUCCESS)
		return NULL;
	{
		BOOKS();
		struct lane *l = lane_peek(id);
		if (l) {
			l->busy++;
			return l;
		}
	}
	struct lane *made = calloc(1, sizeof *made);
	*result = made ? describe(made, stream, how) : CUDA_ERROR_OUT_OF_MEMORY;
	if (*result != CUDA_SUCCESS) {
		free(made);
		return NULL;
	}
	BOOKS();
	struct lane *l = lane_peek(id);
	if (l) {
		free(made); // another thread was faster
	} else {
		l = made;
		any = true;
		threads += l->own;
		tree_insert(&lanes, &l->by_id, id, 0);
	}
	l->busy++;
	return l;
}

static void end_mark(struct mark *m)
{
	if (!m->lane->dead)
		REAL(cuEventDestroy)(m->event);
	free(m);
}

static void drop_spares(struct lane *l)
{
	struct mark *m;
	while ((m = l->spare)) {
		l->spare = m->next;
		end_mark(m);
	}
	l->spares = 0;
}

// end_unused ends a lane that nobody needs. Lock: held.
static void end_unused(struct lane *l)
{
	if (!l->over || l->busy > 0 || l->first)
		return;
	drop_spares(l);
	tree_remove(&lanes, &l->by_id);
	threads -= l->own;
	free(l);
}

void lane_close(struct lane *l)
{
	BOOKS();
	l->busy--;
	end_unused(l);
}

// take_mark returns a mark with an event that is not in use.
static struct mark *take_mark(struct lane *l, CUresult *result)
{
	{
		BOOKS();
		struct mark *m = l->spare;
		if (m) {
			l->spare = m->next;
			l->spares--;
			*m = (struct mark){.lane = l, .event = m->event};
			return m;
		}
	}
	CUcontext before;
	struct mark *m = calloc(1, sizeof *m);
	*result = m ? context_switch(l->context, &before) : CUDA_ERROR_OUT_OF_MEMORY;
	if (*result == CUDA_SUCCESS) {
		*result = REAL(cuEventCreate)(&m->event, CU_EVENT_DISABLE_TIMING);
		context_switch_back(l->context, before);
	}
	if (*result != CUDA_SUCCESS) {
		free(m);
		return NULL;
	}
	m->lane = l;
	return m;
}

static uint64_t tick(struct lane *l)
{
	BOOKS();
	return ++l->clock;
}

struct mark *lane_mark(struct lane *l, CUstream stream, struct manner how, CUresult *result)
{
	struct mark *m = take_mark(l, result);
	if (m) {
		m->begun = tick(l);
		*result = (how.own ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(m->event, stream);
		m->ended = tick(l);
		if (*result == CUDA_SUCCESS)
			return m;
		BOOKS();
		mark_drop(m);
	}
	*result = (how.own ? REAL(cuStreamSynchronize_ptsz) : REAL(cuStreamSynchronize))(stream);
	return NULL;
}

void mark_enter(struct mark *m)
{
	struct lane *l = m->lane;
	m->next = NULL;
	m->previous = l->last;
	if (l->last)
		l->last->next = m;
	else
		l->first = m;
	l->last = m;
}

void mark_drop(struct mark *m)
{
	struct lane *l = m->lane;
	if (l->spares == SPARES || l->dead) {
		end_mark(m);
		return;
	}
	m->next = l->spare;
	l->spare = m;
	l->spares++;
}

bool mark_reached(const struct mark *m)
{
	struct aside aside = capture_step_aside();
	CUresult r = REAL(cuEventQuery)(m->event);
	capture_step_back(aside);
	return r == CUDA_SUCCESS;
}

bool mark_precedes(const struct mark *m, const struct mark *other)
{
	return m->lane == other->lane && m->ended < other->begun;
}

void piece_put(struct extent *e, struct mark *m)
{
	e->mark = m;
	e->previous = NULL;
	e->next = m->pieces;
	if (e->next)
		e->next->previous = e;
	m->pieces = e;
}

// remove_unneeded takes a mark out that nothing lies under. Lock: held.
static void remove_unneeded(struct mark *m)
{
	struct lane *l = m->lane;
	if (m->pieces || m->users > 0)
		return;
	if (m->previous)
		m->previous->next = m->next;
	else
		l->first = m->next;
	if (m->next)
		m->next->previous = m->previous;
	else
		l->last = m->previous;
	mark_drop(m);
	end_unused(l);
}

void mark_use(struct mark *m)
{
	m->users++;
}

void mark_unuse(struct mark *m)
{
	m->users--;
	remove_unneeded(m);
}

void piece_lift(struct extent *e)
{
	struct mark *m = e->mark;
	if (!m)
		return;
	e->mark = NULL;
	if (e->previous)
		e->previous->next = e->next;
	else
		m->pieces = e->next;
	if (e->next)
		e->next->previous = e->previous;
	e->next = e->previous = NULL;
	remove_unneeded(m);
}

void shelve(struct extent *e, unsigned shelf)
{
	e->freed = true;
	tree_insert(&e->mark->lane->freed, &e->by_size, (uint64_t)shelf << SIZE_BITS | e->size, e->address);
}

void unshelve(struct extent *e)
{
	e->freed = false;
	tree_remove(&e->mark->lane->freed, &e->by_size);
}

struct extent *shelf_find(const struct lane *l, unsigned shelf, size_t size)
{
	struct tree_node *n = tree_ceiling(&l->freed, (uint64_t)shelf << SIZE_BITS | size, 0);
	return n && n->major >> SIZE_BITS == shelf ? OF(n, struct extent, by_size) : NULL;
}

struct extent *shelf_next(const struct extent *e)
{
	struct tree_node *n = tree_next(&e->by_size);
	return n && n->major >> SIZE_BITS == e->by_size.major >> SIZE_BITS ? OF(n, struct extent, by_size) : NULL;
}

bool lanes_quiet(CUdevice device, const struct lane *but, CUcontext nor)
{
	for (struct lane *l = lane_first(); l; l = lane_next(l)) {
		CUcontext before;
		if (l->device != device || l == but || l->context == nor || l->over)
			continue;
		if (l->own || context_switch(l->context, &before) != CUDA_SUCCESS)
			return false;
		CUresult r = REAL(cuStreamQuery)(l->stream);
		context_switch_back(l->context, before);
		if (r != CUDA_SUCCESS)
			return false;
	}
	return true;
}

bool lanes_many(void)
{
	return atomic_load_explicit(&threads, memory_order_relaxed) > atomic_load_explicit(&most, memory_order_relaxed);
}

void lanes_tidy(void)
{
	struct lane *next;
	for (struct lane *l = lane_first(); l; l = next) {
		next = lane_next(l);
		if (!l->own || l->busy > 0 || l->first)
			continue;
		l->over = true; // if the thread lives, it gets another one
		end_unused(l);
	}
	most = threads > FEW / 2 ? threads * 2 : FEW;
}

struct lane *lane_over(CUstream stream)
{
	unsigned long long id;
	if (!REAL(cuStreamGetId) || !lanes_any() || REAL(cuStreamGetId)(stream, &id) != CUDA_SUCCESS)
		return NULL;
	BOOKS();
	struct lane *l = lane_peek(id);
	if (l) {
		l->over = true;
		l->busy++;
	}
	return l;
}

void lane_stays(struct lane *l)
{
	{
		BOOKS();
		l->over = false;
	}
	lane_close(l);
}

void lanes_end(CUcontext context)
{
	struct lane *next;
	for (struct lane *l = lane_first(); l; l = next) {
		next = lane_next(l);
		if (context && l->context != context)
			continue;
		l->dead = context != NULL;
		drop_spares(l);
		l->over = true;
		end_unused(l);
	}
}
