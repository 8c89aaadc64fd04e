// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Blocks: memory behind a range of one window, of one context. A block is one
// allocation of the program, made of as many chunks as it takes, or a slab from
// which small allocations are cut.
#ifndef HETCUDA_BLOCK_H
#define HETCUDA_BLOCK_H

#include "arena.h"
#include "context.h"

// From this size on an allocation has chunks of its own, and so begins and ends
// at a multiple of 2 MiB: at most half of it is wasted, of all but the smallest
// far less. Smaller ones share slabs, in multiples of 512 bytes, to which
// cudaMalloc aligns (256 is what CUDA promises).
#define SMALL ((size_t)1 << 20)
#define SLAB ((size_t)2 << 20)
#define GRAIN ((size_t)512)
// Larger allocations are made of chunks of this size, so that a chunk can be
// copied while another is.
#define CHUNK ((size_t)1 << 30)

// Written under the lock (books.h), read without.
struct block_stats {
	_Atomic uint64_t allocations; // of the program that live
	_Atomic uint64_t asked;       // bytes that it asked for in them
	_Atomic uint64_t held;        // bytes of memory behind them; the rest is waste
};

extern struct block_stats block_stats;

// block_take serves an allocation; CUDA_ERROR_OUT_OF_MEMORY is the driver's or
// ours. The context is current and busy, the lock not held.
CUresult block_take(struct context *c, size_t asked, CUdeviceptr *address);

// block_find returns the allocation that has an address, or NULL. Lock: held.
struct extent *block_find(CUdeviceptr address);
struct context *block_context(const struct extent *e);

// block_give frees an allocation that is leaving; no GPU work uses it. The lock
// is not held.
CUresult block_give(struct extent *e);

// block_trim gives slabs back in which nothing is left. Lock: not held.
void block_trim(void);

// block_drop_all frees what a context owned that nothing finds any more. Lock:
// not held.
void block_drop_all(struct context *c);

struct block *block_next(const struct block *b);

// block_grant lets a block be used by those that may. Lock: held.
CUresult block_grant(struct block *b, const struct access *a);

#endif
