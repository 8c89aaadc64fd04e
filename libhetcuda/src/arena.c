// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "arena.h"

#include <stdlib.h>

static void make_available(struct extent *e)
{
	e->used = false;
	tree_insert(e->arena->available, &e->by_size, e->size, e->address);
}

static struct extent *add(struct arena *a, uint64_t address, uint64_t size)
{
	struct extent *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->arena = a;
	e->address = address;
	e->size = size;
	tree_insert(&a->extents, &e->by_address, address, 0);
	return e;
}

static void drop(struct extent *e)
{
	tree_remove(&e->arena->extents, &e->by_address);
	free(e);
}

bool arena_init(struct arena *a, struct tree *available, uint64_t address, uint64_t size, void *owner)
{
	*a = (struct arena){.available = available, .address = address, .size = size, .owner = owner};
	struct extent *e = add(a, address, size);
	if (e)
		make_available(e);
	return e;
}

void arena_end(struct arena *a)
{
	struct tree_node *n;
	while ((n = a->extents.root)) {
		struct extent *e = OF(n, struct extent, by_address);
		if (!e->used)
			tree_remove(a->available, &e->by_size);
		drop(e);
	}
	a->used = 0;
}

struct extent *arena_take(struct tree *available, uint64_t size)
{
	struct extent *e = OF(tree_ceiling(available, size, 0), struct extent, by_size);
	if (!e)
		return NULL;
	// What is left over is a new extent: made first, so that nothing has
	// changed where there is no memory for it.
	struct extent *rest = NULL;
	if (e->size > size) {
		rest = add(e->arena, e->address + size, e->size - size);
		if (!rest)
			return NULL;
	}
	tree_remove(available, &e->by_size);
	e->size = size;
	if (rest)
		make_available(rest);
	e->used = true;
	e->owner = NULL;
	e->next = e->previous = NULL;
	e->mark = NULL;
	e->asked = e->id = 0;
	e->leaving = e->sync = e->freed = false;
	e->arena->used += size;
	return e;
}

struct extent *arena_split(struct extent *e, uint64_t size)
{
	struct extent *rest = add(e->arena, e->address + size, e->size - size);
	if (!rest)
		return NULL;
	rest->used = true;
	rest->owner = e->owner;
	e->size = size;
	return rest;
}

void arena_join(struct extent *e, struct extent *behind)
{
	e->size += behind->size;
	drop(behind);
}

struct extent *arena_behind(const struct extent *e)
{
	return OF(tree_next(&e->by_address), struct extent, by_address);
}

struct extent *arena_before(const struct extent *e)
{
	return OF(tree_previous(&e->by_address), struct extent, by_address);
}

void arena_give(struct extent *e)
{
	struct arena *a = e->arena;
	a->used -= e->size;
	struct extent *next = arena_behind(e);
	if (next && !next->used) {
		tree_remove(a->available, &next->by_size);
		e->size += next->size;
		drop(next);
	}
	struct extent *previous = arena_before(e);
	if (previous && !previous->used) {
		tree_remove(a->available, &previous->by_size);
		previous->size += e->size;
		drop(e);
		e = previous;
	}
	make_available(e);
}

struct extent *arena_find(const struct arena *a, uint64_t address)
{
	struct extent *e = OF(tree_floor(&a->extents, address, 0), struct extent, by_address);
	return e && e->used && address - e->address < e->size ? e : NULL;
}
