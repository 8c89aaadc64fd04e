// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "block.h"

#include <stdlib.h>

#include "books.h"
#include "real.h"
#include "window.h"

struct block {
	struct block *previous, *next; // of the context
	struct context *context;
	struct extent *place;
	bool slab;
	bool empty;   // a slab in which nothing is
	bool leaving; // being unmapped: nobody may touch it
	struct arena pieces; // of a slab
	uint64_t allocations, asked;
	struct source source;  // of another process's memory; its owner is 0 for our own
	struct opened *opened; // what the program has opened of it
	size_t count;
	struct chunk *chunk[];
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

static struct chunk *make_chunk(struct context *c, CUdeviceptr address, size_t size, const struct access *a, bool *rdma,
				CUresult *result)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
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

// unmap unmaps all of a block, or nothing.
static CUresult unmap(struct block *b)
{
	for (size_t i = 0; i < b->count; i++) {
		CUresult r = chunk_unmap(&b->chunk[i]->own);
		if (r == CUDA_SUCCESS)
			continue;
		while (i-- > 0)
			chunk_map(&b->chunk[i]->own);
		return r;
	}
	return CUDA_SUCCESS;
}

static void release(struct block *b)
{
	for (size_t i = 0; i < b->count; i++)
		chunk_destroy(b->chunk[i]);
	free(b);
}

// link_block puts a block into the books; forget_block takes it out. Lock: held.
static void link_block(struct block *b)
{
	struct context *c = b->context;
	b->next = c->blocks;
	if (b->next)
		b->next->previous = b;
	c->blocks = b;
	for (size_t i = 0; i < b->count; i++)
		chunk_enter(b->chunk[i]);
	if (!b->source.owner)
		block_stats.held += b->place->size;
	b->place->owner = b;
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
	for (size_t i = 0; i < b->count; i++)
		chunk_leave(b->chunk[i]);
	if (b->slab)
		arena_end(&b->pieces);
	for (struct opened *o; (o = b->opened);) {
		b->opened = o->next;
		free(o);
	}
	c->empty_slabs -= b->empty;
	if (!b->source.owner)
		block_stats.held -= b->place->size;
	block_stats.allocations -= b->allocations;
	block_stats.asked -= b->asked;
	b->place->owner = NULL;
}

// make puts memory behind free addresses. The block is not in the books yet.
static struct block *make(struct context *c, size_t size, CUresult *result)
{
	struct extent *place = NULL;
	struct access a;
	bool rdma = false;
	{
		BOOKS();
		struct device *d = device_find(c->device);
		if (d && d->usable) {
			size = (size + d->granularity - 1) / d->granularity * d->granularity;
			rdma = d->rdma;
			place = window_take(c->device, size);
		}
		a = context_access(c);
	}
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!place)
		return NULL;
	bool wanted = rdma;
	size_t count = (size + CHUNK - 1) / CHUNK;
	struct block *b = calloc(1, sizeof *b + count * sizeof b->chunk[0]);
	if (b) {
		b->context = c;
		b->place = place;
		for (*result = CUDA_SUCCESS; b->count < count; b->count++) {
			size_t offset = b->count * CHUNK, left = size - offset;
			struct chunk *k = make_chunk(c, place->address + offset, left < CHUNK ? left : CHUNK, &a, &rdma, result);
			if (!k)
				break;
			b->chunk[b->count] = k;
		}
	}
	if (b && *result == CUDA_SUCCESS && rdma == wanted)
		return b;
	bool clear = true;
	if (b && *result != CUDA_SUCCESS) {
		clear = unmap(b) == CUDA_SUCCESS;
		release(b);
		b = NULL;
	}
	BOOKS();
	if (rdma != wanted)
		device_find(c->device)->rdma = false;
	if (!b && clear) // addresses where something is still mapped are lost
		arena_give(place);
	return b;
}

// fill hands an extent of a block to the program. Lock: held.
static void fill(struct block *b, struct extent *e, size_t asked, CUdeviceptr *address)
{
	e->owner = b;
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
	struct extent *place = b->place;
	bool clear = unmap(b) == CUDA_SUCCESS;
	release(b);
	BOOKS();
	if (clear)
		arena_give(place);
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
			b->empty = arena_init(&b->pieces, &c->available, b->place->address, b->place->size, b);
			c->empty_slabs += b->empty;
			if (b->empty && piece(c, size, asked, address))
				return CUDA_SUCCESS;
			forget_block(b);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return discard(b, r);
}

// hopeless tells whether an allocation of several chunks can't succeed. To find
// that out chunk by chunk would take all free memory from everybody for a while.
static bool hopeless(size_t asked)
{
	size_t available, total;
	return asked > CHUNK && REAL(cuMemGetInfo) && REAL(cuMemGetInfo)(&available, &total) == CUDA_SUCCESS &&
	       asked > available;
}

CUresult block_take(struct context *c, size_t asked, CUdeviceptr *address)
{
	if (asked < SMALL)
		return take_small(c, asked, address);
	if (asked > SIZE_MAX / 2 || hopeless(asked))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r;
	struct block *b = make(c, asked, &r);
	if (!b)
		return r;
	{
		BOOKS();
		r = enter(b);
		if (r == CUDA_SUCCESS) {
			fill(b, b->place, asked, address);
			return r;
		}
	}
	return discard(b, r);
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
	struct extent *e = window_find(address);
	struct block *b = e ? e->owner : NULL;
	if (b && b->source.owner)
		e = find_opened(b, address);
	else if (b && b->slab)
		e = arena_find(&b->pieces, address);
	return b && e && address - e->address < e->asked ? e : NULL;
}

struct context *block_context(const struct extent *e)
{
	return ((struct block *)e->owner)->context;
}

CUdevice block_device(const struct extent *e)
{
	return ((struct block *)e->owner)->chunk[0]->device;
}

uint64_t block_number(const struct extent *e)
{
	return ((struct block *)e->owner)->chunk[0]->id;
}

bool block_imported(const struct extent *e)
{
	return ((struct block *)e->owner)->source.owner;
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
	arena_init(&b->pieces, &b->context->available, b->place->address, b->place->size, b);
}

// unback lets go of the memory of a block that is marked as leaving; all or
// nothing. Lock: not held.
static CUresult unback(struct block *b)
{
	CUresult r = unmap(b);
	if (r != CUDA_SUCCESS) {
		BOOKS();
		b->leaving = false;
		if (b->slab)
			open_slab(b);
		return r;
	}
	struct extent *place = b->place;
	{
		BOOKS();
		forget_block(b);
	}
	release(b);
	BOOKS();
	arena_give(place);
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
	struct block *b = e->owner;
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
		struct extent *place = b->place;
		bool clear = unmap(b) == CUDA_SUCCESS;
		release(b);
		BOOKS();
		if (clear)
			arena_give(place);
	}
}

CUresult block_grant(struct block *b, const struct access *a)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < b->count && !b->leaving; i++) {
		struct mapping *m = &b->chunk[i]->own;
		uint64_t changed = m->access.readwrite ^ a->readwrite;
		if (!changed)
			continue;
		CUmemAccessDesc list[ACCESS_DEVICES];
		size_t count = 0;
		for (int device = 0; device < ACCESS_DEVICES; device++) {
			if (!(changed >> device & 1))
				continue;
			list[count++] = (CUmemAccessDesc){
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				.flags = a->readwrite >> device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
								    : CU_MEM_ACCESS_FLAGS_PROT_NONE,
			};
		}
		CUresult r = REAL(cuMemSetAccess)(m->address, m->size, list, count);
		if (r == CUDA_SUCCESS)
			m->access = *a;
		else
			result = r;
	}
	return result;
}

size_t block_share(const struct extent *e, struct source *s, struct chunk *list[], size_t first, size_t most)
{
	struct block *b = e->owner;
	*s = (struct source){.number = b->chunk[0]->id, .size = b->place->size, .count = b->count, .device = b->chunk[0]->device};
	size_t n = 0;
	for (size_t i = first; i < b->count && n < most; i++) {
		b->chunk[i]->shared = true;
		list[n++] = b->chunk[i];
	}
	return n;
}

CUdeviceptr block_base(const struct extent *e)
{
	return ((struct block *)e->owner)->place->address;
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
	if (asked > b->place->size || offset > b->place->size - asked) {
		*result = CUDA_ERROR_INVALID_HANDLE;
		return true;
	}
	struct opened *o = calloc(1, sizeof *o);
	if (!o) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
	o->extent.address = b->place->address + offset;
	o->extent.asked = asked;
	o->extent.owner = b;
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
	struct extent *place = NULL;
	struct block *b = calloc(1, sizeof *b + s->count * sizeof b->chunk[0]);
	struct access a;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	{
		BOOKS();
		struct device *d = device_find(s->device);
		if (b && d && d->usable && s->size % d->granularity == 0)
			place = window_take(s->device, s->size);
		a = context_access(c);
	}
	if (!place) {
		free(b);
		return r;
	}
	b->context = c;
	b->place = place;
	b->source = *s;
	CUdeviceptr address = place->address;
	for (r = CUDA_SUCCESS; b->count < s->count; b->count++) {
		struct chunk *k = list[b->count];
		k->own = (struct mapping){.chunk = k, .address = address, .size = k->size, .access = a};
		r = chunk_map(&k->own);
		if (r != CUDA_SUCCESS)
			break;
		k->mappings = &k->own;
		b->chunk[b->count] = k;
		address += k->size;
	}
	if (r == CUDA_SUCCESS) {
		BOOKS();
		r = enter(b);
		if (r == CUDA_SUCCESS)
			return r;
	}
	// The chunks are the caller's again.
	bool clear = unmap(b) == CUDA_SUCCESS;
	for (size_t i = 0; i < b->count; i++)
		list[i]->mappings = NULL;
	free(b);
	BOOKS();
	if (clear)
		arena_give(place);
	return r;
}
