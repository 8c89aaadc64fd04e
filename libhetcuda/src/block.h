// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Blocks: memory behind a range of one window (backing.h), of one context. A block
// is one allocation of the program, or a slab from which small allocations are cut.
#ifndef HETCUDA_BLOCK_H
#define HETCUDA_BLOCK_H

#include "backing.h"
#include "context.h"

// From this size on an allocation has chunks of its own, and so begins and ends
// at a multiple of 2 MiB: at most half of it is wasted, of all but the smallest
// far less. Smaller ones share slabs, in multiples of 512 bytes, to which
// cudaMalloc aligns (256 is what CUDA promises).
#define SMALL ((size_t)1 << 20)
#define SLAB ((size_t)2 << 20)
#define GRAIN ((size_t)512)
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

// block_device is where its memory is, block_base where the block begins,
// block_number what the block is called.
CUdevice block_device(const struct extent *e);
CUdeviceptr block_base(const struct extent *e);
uint64_t block_number(const struct extent *e);

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

// Memory of another process, as ipc.c gets it: a block of that process's, whole,
// of which the program opens allocations by and by.
struct source {
	uint64_t owner;  // the other process
	uint64_t number; // its number of the block
	CUdevice device; // ours
	size_t size, count; // of all its chunks together; of chunks
};

// block_imported tells whether an allocation is another process's.
bool block_imported(const struct extent *e);

// block_share describes the block of an allocation of ours (but for the owner),
// and lists its chunks from the first one on, at most so many; it returns how many.
// Lock: held.
size_t block_share(const struct extent *e, struct source *s, struct chunk *list[], size_t first, size_t most);

// block_has tells whether a context has a block of another process. Lock: held.
bool block_has(const struct context *c, const struct source *s);

// block_adopt makes a block of chunks that were imported, all of the source. They
// are the caller's still if it fails. Lock: not held.
CUresult block_adopt(struct context *c, const struct source *s, struct chunk *list[]);

// block_open opens an allocation by the other process's number of it; asked is 0
// to open only what is open already. False if that isn't there, or no such block.
// Lock: held.
bool block_open(struct context *c, const struct source *s, uint64_t id, size_t offset, size_t asked, CUresult *result,
		CUdeviceptr *address);

// block_close undoes one block_open, and tells whether it was the last: then the
// allocation is to be given (block_give). block_reopen takes that back. Lock: held.
bool block_close(struct extent *e);
void block_reopen(struct extent *e);

#endif
