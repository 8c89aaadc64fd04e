// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Chunks: pieces of physical memory (one handle of the driver's each) and where
// they are mapped. Memory of cuMemAlloc and what a program makes with
// cuMemCreate are both chunks; parking knows nothing else.
#ifndef HETCUDA_CHUNK_H
#define HETCUDA_CHUNK_H

#include <stdbool.h>

#include "cuda.h"
#include "tree.h"

enum { ACCESS_DEVICES = 64, ACCESS_OTHERS = 3 };

// Who may use a mapping.
struct access {
	uint64_t readwrite, read; // a bit for each device
	unsigned others;
	CUmemAccessDesc other[ACCESS_OTHERS]; // CPUs
};

struct mapping {
	struct tree_node by_address; // of the program's own mappings (vmm.c)
	struct mapping *next;        // of the same chunk
	struct chunk *chunk;
	CUdeviceptr address;
	size_t size, offset;
	struct access access;
	bool away;   // not mapped: its chunk is parked, or about to be
	bool barred; // mapped, and nobody may use it: a driver that fails left it so
};

struct chunk {
	struct chunk *previous, *next; // of all
	uint64_t id;                   // never used twice
	size_t size;
	CUdevice device;
	CUmemGenericAllocationHandle handle; // the driver's; 0 while parked
	CUmemAllocationProp prop;            // that it was made with, unless it is imported
	struct mapping *mappings;
	struct mapping own; // of memory of cuMemAlloc: the only one

	bool parkable; // in the list of all; else the driver's own checkpoint carries it
	bool shared;   // another process may have it, by a descriptor
	bool imported; // another process made it
	bool borrowed; // made by this one, but the handle is the peer's (own.h)
	bool counted;  // among those whose sharing can't be followed (counters.h)
	bool parked;
	bool made;    // anew, by a MAKE, and not taken yet
	bool taken;   // imported again, by an UNPARK
	bool settled; // by one that has succeeded

	bool marked;       // with a number of the peer's, at mark_offset (mark.h)
	uint64_t unmarked; // what was there
	size_t mark_offset;

	// A handle that the program has (handles.c).
	uint64_t name;      // what the program calls it; 0: nothing
	size_t references;  // that the program holds
	unsigned calls;     // under way, with the handle in hand
	unsigned int asked; // handle types that the program asked for
};

// All chunks that can be parked; the lock (books.h) guards them. What they come to can
// be read without it: it may be held by a thread that waits for a driver that is
// locked.
extern struct chunk *chunks;
extern _Atomic uint32_t chunk_count;
extern _Atomic uint64_t chunk_bytes;

// chunk_create makes physical memory, with the driver's flags. It is in no list
// yet.
CUresult chunk_create(struct chunk **made, size_t size, const CUmemAllocationProp *prop, unsigned long long flags);

// chunk_destroy releases it; not mapped, in no list.
CUresult chunk_destroy(struct chunk *c);

// chunk_map maps what a mapping says and grants its access, or changes nothing;
// chunk_unmap is the opposite. Where a driver that fails keeps them from changing
// nothing, the mapping knows, and chunk_map can be called again. The chunk's list of mappings is the caller's.
CUresult chunk_map(struct mapping *m);
CUresult chunk_unmap(struct mapping *m);

// access_grant gives a mapped range the access that is recorded.
CUresult access_grant(CUdeviceptr address, size_t size, const struct access *a);

// chunk_enter and chunk_leave are for the list of all. Lock: held.
void chunk_enter(struct chunk *c);
void chunk_leave(struct chunk *c);

// new_id never returns the same number twice.
uint64_t new_id(void);

#endif
