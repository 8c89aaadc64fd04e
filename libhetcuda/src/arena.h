// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// A range of addresses that is cut into extents: best fit, neighbours joined
// again when they are free. It knows nothing of memory: the same code hands out
// addresses of a window and pieces of a slab. An operation costs O(log n).
//
// Several arenas may share one tree of what is free (all windows of a device,
// all slabs of a context), so that the best fit is found in any of them.
#ifndef HETCUDA_ARENA_H
#define HETCUDA_ARENA_H

#include "tree.h"

struct arena;
struct mark;

struct extent {
	struct tree_node by_address; // in the arena's tree
	struct tree_node by_size;    // in the tree of what is free, while it is
	struct arena *arena;
	uint64_t address, size;
	bool used;

	// Of an extent in use; set by its user, 0 when it is handed out.
	void *owner;     // what it is part of
	uint64_t asked;  // size that the program asked for; 0: nothing for the program
	uint64_t id;     // never used twice
	bool leaving;    // its free is under way
	bool sync;       // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
	struct extent *next; // in a list of its user
	struct extent *previous;
	struct mark *mark; // its last use may go on up to there (lane.h)
	bool freed;        // by the program, and not available yet
};

struct arena {
	struct tree extents;
	struct tree *available; // of the free extents, shared
	uint64_t address, size;
	uint64_t used; // bytes
	void *owner;
};

// arena_init makes a range of addresses available; false without memory.
bool arena_init(struct arena *a, struct tree *available, uint64_t address, uint64_t size, void *owner);

// arena_end takes the range back, whatever is in use.
void arena_end(struct arena *a);

// arena_take returns an extent of exactly size bytes from any arena of the
// tree, at the lowest address of the smallest fit; NULL if there is none.
struct extent *arena_take(struct tree *available, uint64_t size);

// arena_split cuts an extent in use down to size. The rest, in use and nobody's
// yet, or NULL without memory.
struct extent *arena_split(struct extent *e, uint64_t size);

// arena_join makes one of an extent in use and the one behind it, in use too,
// which is dead then.
void arena_join(struct extent *e, struct extent *behind);

// arena_behind and arena_before are an extent's neighbours, or NULL.
struct extent *arena_behind(const struct extent *e);
struct extent *arena_before(const struct extent *e);

// arena_give makes an extent available again. The pointer is dead then.
void arena_give(struct extent *e);

// arena_find returns the extent in use that has an address, or NULL.
struct extent *arena_find(const struct arena *a, uint64_t address);

#endif
