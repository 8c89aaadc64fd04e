// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Physical memory behind a range of one window, made of as many chunks as it
// takes. What is cut from it, and for whom, its user knows: a block (block.h) or
// a segment of a pool (segment.h).
#ifndef HETCUDA_BACKING_H
#define HETCUDA_BACKING_H

#include "arena.h"
#include "chunk.h"

// Memory is made of chunks of this size, so that a chunk can be copied while
// another is.
#define CHUNK ((size_t)1 << 30)

struct backing {
	enum { FOR_BLOCK, FOR_SEGMENT } kind;
	void *user;
	struct extent *place; // its owner is this, while it is in the books
	CUdevice device;
	size_t count;
	struct chunk *chunk[];
};

// backing_make puts memory behind free addresses of a device, at least size bytes,
// for those who may use it. It is in no books yet. The lock is not held.
struct backing *backing_make(CUdevice device, size_t size, const struct access *a, CUresult *result);

// backing_adopt does the same with chunks that there are, size bytes together. They
// are the caller's still if it fails.
struct backing *backing_adopt(CUdevice device, size_t size, struct chunk *list[], size_t count, const struct access *a,
			      CUresult *result);

// backing_return undoes an adoption: the chunks are the caller's again. In no books.
void backing_return(struct backing *m);

// backing_find returns what is behind an address, if it is in the books, or NULL.
// Lock: held.
struct backing *backing_find(CUdeviceptr address);

// backing_enter puts it into the books, backing_leave takes it out. Lock: held.
void backing_enter(struct backing *m);
void backing_leave(struct backing *m);

// backing_unmap unmaps all of it, or nothing. Lock: not held.
CUresult backing_unmap(struct backing *m);

// backing_end releases what is unmapped, and in no books, and makes its addresses
// available. Lock: not held.
void backing_end(struct backing *m);

// backing_discard unmaps and ends it, whatever happens: addresses where something
// is still mapped are lost. Lock: not held.
void backing_discard(struct backing *m);

// backing_grant lets it be used by those that may, and by nobody else. Lock: held.
CUresult backing_grant(struct backing *m, const struct access *a);

#endif
