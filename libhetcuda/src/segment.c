// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "segment.h"

#include <stdlib.h>

#include "backing.h"
#include "block.h"
#include "books.h"

enum { TRIES = 8 };

struct segment {
	struct segment *previous, *next; // of the pool
	struct pool *pool;
	struct backing *memory;
	bool large;
	bool leaving; // being unmapped
	struct arena pieces;
};

static struct segment *of(const struct extent *e)
{
	return ((struct backing *)e->owner)->user;
}

struct pool *segment_pool(const struct extent *e)
{
	return of(e)->pool;
}

static unsigned shelf_of(const struct pool *p, bool large)
{
	return p->number * 2 + large;
}

static struct segment *find(CUdeviceptr address)
{
	struct backing *m = backing_find(address);
	return m && m->kind == FOR_SEGMENT ? m->user : NULL;
}

bool segment_has(CUdeviceptr address)
{
	return find(address);
}

struct extent *segment_find(CUdeviceptr address)
{
	struct segment *s = find(address);
	struct extent *e = s ? arena_find(&s->pieces, address) : NULL;
	return e && address - e->address < e->asked ? e : NULL;
}

// own makes a piece the caller's, cut to size. What is left over stays where the
// whole was.
static struct extent *own(struct extent *e, size_t size)
{
	struct segment *s = of(e);
	unsigned shelf = shelf_of(s->pool, s->large);
	unshelve(e);
	if (e->size > size) {
		struct extent *rest = arena_split(e, size);
		if (rest) { // without memory for it the piece is larger
			piece_put(rest, e->mark);
			shelve(rest, shelf);
		}
	}
	return e;
}

struct extent *piece_reuse(struct pool *p, const struct lane *l, size_t size, bool large)
{
	struct extent *e = shelf_find(l, shelf_of(p, large), size);
	return e ? own(e, size) : NULL;
}

struct extent *piece_available(struct pool *p, size_t size, bool large)
{
	struct extent *e = arena_take(&p->available[large], size);
	if (e)
		e->owner = ((struct segment *)e->arena->owner)->memory;
	return e;
}

struct extent *piece_steal(struct pool *p, const struct lane *l, size_t size, bool large,
			   bool (*passes)(const struct mark *, const struct lane *))
{
	struct extent *best = NULL;
	for (struct lane *other = lane_first(); other; other = lane_next(other)) {
		struct extent *e = other != l ? shelf_find(other, shelf_of(p, large), size) : NULL;
		// The best fit may have been freed too late; others then do as well.
		for (int tries = 0; e && tries < TRIES && !passes(e->mark, l); tries++)
			e = shelf_next(e);
		if (e && passes(e->mark, l) && (!best || e->size < best->size))
			best = e;
	}
	return best ? own(best, size) : NULL;
}

void piece_hand_out(struct extent *e, size_t asked)
{
	struct pool *p = segment_pool(e);
	e->asked = asked;
	e->id = new_id();
	e->sync = false;
	p->used += e->size;
	if (p->used > p->used_high)
		p->used_high = p->used;
	block_stats.asked += asked;
	block_stats.allocations++;
}

// join makes one of neighbours that lie in the same lane, if the mark of the one is
// sure to come after the other's.
static struct extent *join(struct extent *e, struct extent *neighbour)
{
	if (!neighbour || !neighbour->used || !neighbour->freed || !mark_precedes(neighbour->mark, e->mark))
		return e;
	unshelve(neighbour);
	piece_lift(neighbour);
	if (neighbour->address > e->address) {
		arena_join(e, neighbour);
		return e;
	}
	struct mark *m = e->mark;
	piece_put(neighbour, m);
	piece_lift(e);
	arena_join(neighbour, e);
	return neighbour;
}

void piece_take_back(struct extent *e)
{
	struct segment *s = of(e);
	struct pool *p = s->pool;
	p->used -= e->size;
	block_stats.asked -= e->asked;
	block_stats.allocations--;
	e->asked = 0;
	e->leaving = false;
	if (e->mark) {
		e = join(e, arena_behind(e));
		e = join(e, arena_before(e));
		shelve(e, shelf_of(p, s->large));
	} else {
		arena_give(e);
	}
	pools_attend();
}

static void unlink_segment(struct segment *s)
{
	struct pool *p = s->pool;
	if (s->previous)
		s->previous->next = s->next;
	else
		p->segments = s->next;
	if (s->next)
		s->next->previous = s->previous;
	p->reserved -= s->memory->place->size;
	block_stats.held -= s->memory->place->size;
	backing_leave(s->memory);
}

static void link_segment(struct segment *s)
{
	struct pool *p = s->pool;
	s->next = p->segments;
	if (s->next)
		s->next->previous = s;
	p->segments = s;
	p->reserved += s->memory->place->size;
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
	block_stats.held += s->memory->place->size;
	backing_enter(s->memory);
}

static bool open_pieces(struct segment *s)
{
	struct extent *place = s->memory->place;
	return arena_init(&s->pieces, &s->pool->available[s->large], place->address, place->size, s);
}

static struct backing *make(struct pool *p, size_t size, CUresult *result)
{
	struct access a;
	{
		BOOKS();
		a = p->access;
		if (p->max && p->reserved + size > p->max) {
			*result = CUDA_ERROR_OUT_OF_MEMORY;
			return NULL;
		}
	}
	return backing_make(p->device, size, &a, result);
}

CUresult segment_add(struct pool *p, size_t size, struct extent **made)
{
	CUresult r;
	struct backing *m = make(p, size < LARGE ? SEGMENT : size, &r);
	if (!m && r == CUDA_ERROR_OUT_OF_MEMORY && size < LARGE)
		m = make(p, size, &r); // as little as will do
	struct segment *s = m ? calloc(1, sizeof *s) : NULL;
	if (!s) {
		if (m)
			backing_discard(m);
		return m ? CUDA_ERROR_OUT_OF_MEMORY : r;
	}
	s->pool = p;
	s->memory = m;
	s->large = size >= LARGE;
	m->kind = FOR_SEGMENT;
	m->user = s;
	{
		BOOKS();
		// With the access that was granted to others meanwhile.
		r = backing_grant(m, &p->access);
		if (r == CUDA_SUCCESS && !open_pieces(s))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r == CUDA_SUCCESS) {
			link_segment(s);
			// Nobody else can have taken it.
			*made = piece_available(p, size, s->large);
			if (*made) {
				pools_attend();
				return r;
			}
			unlink_segment(s);
			arena_end(&s->pieces);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	backing_discard(m);
	free(s);
	return r;
}

static bool reached(const struct mark *m, const struct waited *w)
{
	return w->everything || (w->gone && m->lane->context == w->gone) || mark_reached(m);
}

// reap_mark makes available what lies under a mark that is reached.
static void reap_mark(struct mark *m, bool waited)
{
	struct extent *next;
	// While there is one more piece the mark lives.
	for (struct extent *e = m->pieces; e; e = next) {
		next = e->next;
		if (!e->freed) {
			piece_lift(e); // the program's: nobody has to wait for it any more
		} else if (waited || segment_pool(e)->opportunistic) {
			unshelve(e);
			piece_lift(e);
			arena_give(e);
		}
	}
}

static void reap(struct lane *l, const struct waited *w)
{
	struct mark *next;
	bool waited = w->everything || w->lane == l || (w->context && w->context == l->context) ||
		      (w->gone && w->gone == l->context);
	for (struct mark *m = l->first; m && reached(m, w); m = next) {
		next = m->next;
		reap_mark(m, waited); // with the last mark the lane may go
	}
}

void lane_reap(struct lane *l)
{
	reap(l, &(struct waited){0});
	pools_attend();
}

void lanes_reap(struct waited w)
{
	struct lane *next;
	for (struct lane *l = lane_first(); l; l = next) {
		next = lane_next(l);
		reap(l, &w);
	}
	pools_attend();
}

CUresult segments_grant(struct pool *p, const struct access *a)
{
	CUresult result = CUDA_SUCCESS;
	for (struct segment *s = p->segments; s; s = s->next) {
		CUresult r = s->leaving ? CUDA_SUCCESS : backing_grant(s->memory, a);
		result = result == CUDA_SUCCESS ? r : result;
	}
	return result;
}

// empty finds a segment in which nothing is. Lock: held.
static struct segment *empty(const struct pool *p, uint64_t keep)
{
	struct segment *s = p->reserved > keep ? p->segments : NULL;
	while (s && (s->leaving || s->pieces.used > 0))
		s = s->next;
	return s;
}

bool segments_idle(const struct pool *p, uint64_t keep)
{
	return empty(p, keep);
}

// close_empty keeps everybody from an empty segment.
static struct segment *close_empty(struct pool *p, uint64_t keep)
{
	BOOKS();
	struct segment *s = empty(p, keep);
	if (s) {
		s->leaving = true;
		arena_end(&s->pieces);
	}
	return s;
}

bool segments_release(struct pool *p, uint64_t keep)
{
	bool any = false;
	for (struct segment *s; (s = close_empty(p, keep)); any = true) {
		CUresult r = backing_unmap(s->memory);
		{
			BOOKS();
			if (r != CUDA_SUCCESS) {
				s->leaving = !open_pieces(s);
				return any;
			}
			unlink_segment(s);
			pools_attend();
		}
		backing_end(s->memory);
		free(s);
	}
	return any;
}
