// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "block.h"

#include <stdlib.h>

#include "books.h"
#include "pools.h"

struct block {
	struct block *previous, *next; // of the context
	struct context *context;
	struct backing *memory;
	bool slab;
	bool empty;   // a slab in which nothing is
	bool leaving; // being unmapped: nobody may touch it
	struct arena pieces; // of a slab
	uint64_t allocations, asked;
	struct source source;  // of another process's memory; its owner is 0 for our own
	struct opened *opened; // what the program has opened of it
};

// An allocation of another process's that the program has opened (ipc.c).
struct opened {
	struct opened *next; // of the block
	struct extent extent;
	uint64_t id; // the other process's
	size_t references;
};

struct block_stats block_stats;

struct block *block_next(const struct block *b)
{
	return b->next;
}

static struct extent *place_of(const struct block *b)
{
	return b->memory->place;
}

// link_block puts a block into the books; forget_block takes it out. Lock: held.
static void link_block(struct block *b)
{
	struct context *c = b->context;
	b->next = c->blocks;
	if (b->next)
		b->next->previous = b;
	c->blocks = b;
	backing_enter(b->memory);
	if (!b->source.owner)
		block_stats.held += place_of(b)->size;
}

static void forget_block(struct block *b)
{
	struct context *c = b->context;
	if (b->previous)
		b->previous->next = b->next;
	else
		c->blocks = b->next;
	if (b->next)
		b->next->previous = b->previous;
	if (b->slab)
		arena_end(&b->pieces);
	for (struct opened *o; (o = b->opened);) {
		b->opened = o->next;
		free(o);
	}
	c->empty_slabs -= b->empty;
	if (!b->source.owner)
		block_stats.held -= place_of(b)->size;
	block_stats.allocations -= b->allocations;
	block_stats.asked -= b->asked;
	backing_leave(b->memory);
}

static struct access access_now(const struct context *c)
{
	BOOKS();
	return context_access(c);
}

// wrap makes a block of memory.
static struct block *wrap(struct context *c, struct backing *m)
{
	struct block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->context = c;
	b->memory = m;
	m->kind = FOR_BLOCK;
	m->user = b;
	return b;
}

// make puts memory behind free addresses. The block is not in the books yet.
static struct block *make(struct context *c, size_t size, CUresult *result)
{
	struct access a = access_now(c);
	struct backing *m = backing_make(c->device, size, &a, result);
	struct block *b = m ? wrap(c, m) : NULL;
	if (m && !b) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		backing_discard(m);
	}
	return b;
}

// fill hands an extent of a block to the program. Lock: held.
static void fill(struct block *b, struct extent *e, size_t asked, CUdeviceptr *address)
{
	e->owner = b->memory;
	e->asked = asked;
	e->id = new_id();
	b->asked += asked;
	b->allocations++;
	block_stats.asked += asked;
	block_stats.allocations++;
	*address = e->address;
}

// enter puts a new block into the books, with the access that was granted to
// others while it was made. Lock: held.
static CUresult enter(struct block *b)
{
	struct access now = context_access(b->context);
	CUresult r = block_grant(b, &now);
	if (r == CUDA_SUCCESS)
		link_block(b);
	return r;
}

static CUresult discard(struct block *b, CUresult why)
{
	backing_discard(b->memory);
	free(b);
	return why;
}

// piece takes a piece of any slab of the context. Lock: held.
static bool piece(struct context *c, size_t size, size_t asked, CUdeviceptr *address)
{
	struct extent *e = arena_take(&c->available, size);
	if (!e)
		return false;
	struct block *b = e->arena->owner;
	c->empty_slabs -= b->empty;
	b->empty = false;
	fill(b, e, asked, address);
	return true;
}

static CUresult take_small(struct context *c, size_t asked, CUdeviceptr *address)
{
	size_t size = (asked + GRAIN - 1) / GRAIN * GRAIN;
	{
		BOOKS();
		if (piece(c, size, asked, address))
			return CUDA_SUCCESS;
	}
	CUresult r;
	struct block *b = make(c, SLAB, &r);
	if (!b)
		return r;
	b->slab = true;
	{
		BOOKS();
		r = enter(b);
		if (r == CUDA_SUCCESS) {
			b->empty = arena_init(&b->pieces, &c->available, place_of(b)->address, place_of(b)->size, b);
			c->empty_slabs += b->empty;
			if (b->empty && piece(c, size, asked, address))
				return CUDA_SUCCESS;
			forget_block(b);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return discard(b, r);
}

static CUresult take(struct context *c, size_t asked, CUdeviceptr *address)
{
	if (asked < SMALL)
		return take_small(c, asked, address);
	CUresult r;
	struct block *b = make(c, asked, &r);
	if (!b)
		return r;
	{
		BOOKS();
		r = enter(b);
		if (r == CUDA_SUCCESS) {
			fill(b, place_of(b), asked, address);
			return r;
		}
	}
	return discard(b, r);
}

CUresult block_take(struct context *c, size_t asked, CUdeviceptr *address)
{
	CUresult r = take(c, asked, address);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_make_room(c->device))
		r = take(c, asked, address);
	return r;
}

// find_opened returns what was opened of a block and has an address.
static struct extent *find_opened(const struct block *b, CUdeviceptr address)
{
	struct extent *leaving = NULL;
	for (struct opened *o = b->opened; o; o = o->next) {
		if (address - o->extent.address >= o->extent.asked)
			continue;
		if (!o->extent.leaving)
			return &o->extent;
		leaving = &o->extent;
	}
	return leaving;
}

struct extent *block_find(CUdeviceptr address)
{
	struct backing *m = backing_find(address);
	if (!m || m->kind != FOR_BLOCK)
		return NULL;
	struct block *b = m->user;
	struct extent *e = m->place;
	if (b->source.owner)
		e = find_opened(b, address);
	else if (b->slab)
		e = arena_find(&b->pieces, address);
	return e && address - e->address < e->asked ? e : NULL;
}

// of is the block of an allocation.
static struct block *of(const struct extent *e)
{
	return ((struct backing *)e->owner)->user;
}

struct context *block_context(const struct extent *e)
{
	return of(e)->context;
}

CUdevice block_device(const struct extent *e)
{
	return of(e)->memory->device;
}

uint64_t block_number(const struct extent *e)
{
	return of(e)->memory->chunk[0]->id;
}

bool block_imported(const struct extent *e)
{
	return of(e)->source.owner;
}

// close_slab keeps anybody from taking pieces of an empty slab, open_slab lets
// them again. Lock: held.
static void close_slab(struct block *b)
{
	b->leaving = true;
	arena_end(&b->pieces);
}

static void open_slab(struct block *b)
{
	arena_init(&b->pieces, &b->context->available, place_of(b)->address, place_of(b)->size, b);
}

// unback lets go of the memory of a block that is marked as leaving; all or
// nothing. Lock: not held.
static CUresult unback(struct block *b)
{
	CUresult r = backing_unmap(b->memory);
	if (r != CUDA_SUCCESS) {
		BOOKS();
		b->leaving = false;
		if (b->slab)
			open_slab(b);
		return r;
	}
	{
		BOOKS();
		forget_block(b);
	}
	backing_end(b->memory);
	free(b);
	return CUDA_SUCCESS;
}

// close_opened forgets what was opened; the last of a block takes the block with
// it.
static CUresult close_opened(struct block *b, struct extent *e)
{
	{
		BOOKS();
		struct opened **link = &b->opened, *o;
		while (&(*link)->extent != e)
			link = &(*link)->next;
		o = *link;
		*link = o->next;
		free(o);
		if (b->opened || b->leaving)
			return CUDA_SUCCESS;
		b->leaving = true;
	}
	return unback(b);
}

CUresult block_give(struct extent *e)
{
	struct block *b = of(e);
	if (b->source.owner)
		return close_opened(b, e);
	if (!b->slab) {
		{
			BOOKS();
			b->leaving = true;
		}
		CUresult r = unback(b);
		if (r != CUDA_SUCCESS) {
			BOOKS();
			e->leaving = false;
		}
		return r;
	}
	{
		BOOKS();
		struct context *c = b->context;
		b->allocations--;
		b->asked -= e->asked;
		block_stats.allocations--;
		block_stats.asked -= e->asked;
		arena_give(e);
		if (b->pieces.used > 0)
			return CUDA_SUCCESS;
		// One empty slab of a context is kept, so that a program that
		// allocates and frees one small thing in turn doesn't make and
		// end a slab each time. Parking ends it.
		b->empty = true;
		if (++c->empty_slabs == 1)
			return CUDA_SUCCESS;
		close_slab(b);
	}
	unback(b);
	return CUDA_SUCCESS;
}

void block_trim(void)
{
	for (;;) {
		struct block *found = NULL;
		{
			BOOKS();
			for (struct context *c = context_first(); c && !found; c = c->next)
				for (found = c->empty_slabs ? c->blocks : NULL; found; found = found->next)
					if (found->empty && !found->leaving)
						break;
			if (!found)
				return;
			close_slab(found);
		}
		if (unback(found) != CUDA_SUCCESS)
			return;
	}
}

void block_drop_all(struct context *c)
{
	for (;;) {
		struct block *b;
		{
			BOOKS();
			b = c->blocks;
			if (b)
				forget_block(b);
		}
		if (!b)
			return;
		discard(b, CUDA_SUCCESS);
	}
}

CUresult block_grant(struct block *b, const struct access *a)
{
	return b->leaving ? CUDA_SUCCESS : backing_grant(b->memory, a);
}

size_t block_share(const struct extent *e, struct source *s, struct chunk *list[], size_t first, size_t most)
{
	struct backing *m = of(e)->memory;
	*s = (struct source){.number = m->chunk[0]->id, .size = m->place->size, .count = m->count, .device = m->device};
	size_t n = 0;
	for (size_t i = first; i < m->count && n < most; i++)
		list[n++] = m->chunk[i];
	return n;
}

CUdeviceptr block_base(const struct extent *e)
{
	return place_of(of(e))->address;
}

static struct block *find_source(const struct context *c, const struct source *s)
{
	struct block *b = c->blocks;
	while (b && (b->leaving || b->source.owner != s->owner || b->source.number != s->number))
		b = b->next;
	return b;
}

bool block_has(const struct context *c, const struct source *s)
{
	return find_source(c, s);
}

bool block_open(struct context *c, const struct source *s, uint64_t id, size_t offset, size_t asked, CUresult *result,
		CUdeviceptr *address)
{
	struct block *b = find_source(c, s);
	*result = CUDA_SUCCESS;
	for (struct opened *o = b ? b->opened : NULL; o; o = o->next) {
		if (o->id == id && !o->extent.leaving) {
			o->references++;
			*address = o->extent.address;
			return true;
		}
	}
	if (!b || asked == 0)
		return false;
	if (asked > place_of(b)->size || offset > place_of(b)->size - asked) {
		*result = CUDA_ERROR_INVALID_HANDLE;
		return true;
	}
	struct opened *o = calloc(1, sizeof *o);
	if (!o) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
	o->extent.address = place_of(b)->address + offset;
	o->extent.asked = asked;
	o->extent.owner = b->memory;
	o->extent.id = new_id();
	o->id = id;
	o->references = 1;
	o->next = b->opened;
	b->opened = o;
	*address = o->extent.address;
	return true;
}

static struct opened *opened_of(struct extent *e)
{
	return (struct opened *)((char *)e - offsetof(struct opened, extent));
}

bool block_close(struct extent *e)
{
	return --opened_of(e)->references == 0;
}

void block_reopen(struct extent *e)
{
	opened_of(e)->references++;
}

CUresult block_adopt(struct context *c, const struct source *s, struct chunk *list[])
{
	struct access a = access_now(c);
	CUresult r;
	struct backing *m = backing_adopt(s->device, s->size, list, s->count, &a, &r);
	if (!m)
		return r;
	struct block *b = wrap(c, m);
	r = CUDA_ERROR_OUT_OF_MEMORY;
	if (b) {
		b->source = *s;
		BOOKS();
		r = enter(b);
		if (r == CUDA_SUCCESS)
			return r;
	}
	free(b);
	backing_return(m);
	return r;
}
