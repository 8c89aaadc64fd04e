// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Pools of stream-ordered memory. A pool of ours stands beside the driver's pool of
// the same handle, which stays empty: the driver still says what is wrong with a
// call, serves streams that are being captured, and what we can't.
//
// Pools that can be shared with other processes, and those of the host's memory, are
// the driver's alone.
#ifndef HETCUDA_POOL_H
#define HETCUDA_POOL_H

#include "chunk.h"
#include "tree.h"

// HETCUDA_POOLS: "driver" leaves stream-ordered memory to the driver, whose checkpoint
// then copies it; "split" is what is done without it.
#define HETCUDA_POOLS_ENV "HETCUDA_POOLS"

struct pool {
	struct tree_node by_handle;
	struct pool *next; // of those that are served
	CUmemoryPool handle;
	CUdevice device;
	bool served; // else it is the driver's alone
	bool ending; // the driver is destroying it
	bool ended;  // destroyed by the program, which has memory of it still
	_Atomic int64_t *sharing; // the counter that it counts in, if it is shared
	unsigned number; // tells its shelves apart
	unsigned busy;

	bool follow, opportunistic, internal; // CU_MEMPOOL_ATTR_REUSE_...
	uint64_t threshold;
	uint64_t max; // 0: no limit
	struct access access;

	uint64_t reserved, reserved_high, used, used_high;
	struct segment *segments;
	struct tree available[2]; // of their free extents, see segment.h
};

// pool_first is the first of those that are served. Lock: held.
struct pool *pool_first(void);

// pool_hold returns the pool of a handle, busy; with NULL the one that a device
// takes now. NULL if we don't serve it. Lock: not held.
struct pool *pool_hold(CUmemoryPool handle, CUdevice device);
void pool_let_go(struct pool *p);

// pool_hold_next goes through all that are served; each is let go of with the step to
// the next. Lock: not held.
struct pool *pool_hold_next(struct pool *before);

// pools_attend is to be called when a pool's memory or its attributes have changed:
// it finds out whether points of synchronization are of interest. Lock: held.
void pools_attend(void);

// pools_attended tells what it found.
bool pools_attended(void);

// pools_trim has all of the driver's pools give back what they keep for later, and
// returns what is left in them. Nobody else is in our code.
uint64_t pools_trim(void);

#endif
