// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Managed memory: one address, two memories. The device has memory of its own
// at the addresses of a range, the CPU has pages at the same addresses, and what
// is newer is known for each granule:
//
//     DEVICE  the device's; the CPU may not touch it
//     CLEAN   both are the same; the CPU may read it
//     DIRTY   the CPU's; the CPU may do everything
//
// Any work that the device is given may use any of it. So before work is
// submitted all that is DIRTY is copied to the device and all becomes DEVICE's
// (pages_before_work); and when the CPU touches what is DEVICE's, it waits for
// the device to be idle and the granule is copied back (pages_touch). That is
// what concurrentManagedAccess = 0 says to programs: no CPU access while a
// kernel runs. One that does it all the same waits, and loses nothing.
//
// The CPU's pages are shared memory that is mapped twice: at the range's address
// for the program, and somewhere else ("alias") for us, so that a granule is
// filled or read while the program can't touch it. The pages stay when a granule
// becomes DEVICE's: to give them back and get them anew costs more than the copy.
//
// A range that does not fit into device memory is pages of the CPU, pinned, that
// the device uses over the bus at their own address: always the same for both.
//
// Variables of modules lie in memory of the driver's, beside what is none of the
// CPU's. Their ranges (placed) are there only in parts (parts.h): pages of the CPU
// lie over the pages that have any of a variable, and what is copied are the
// variables' own bytes.
//
// Locks: `pages` guards everything here. It is held during copies between the
// two memories, since every submission has to wait for them anyway, but never
// while the program's GPU work is waited for. Under it: books.h. Nothing under
// it touches the program's mapping, so a fault never waits for its own thread.
#ifndef HETCUDA_PAGES_H
#define HETCUDA_PAGES_H

#include <pthread.h>
#include <stdatomic.h>

#include "arena.h"
#include "cuda.h"

// 64 KiB: a fault costs 10 to 20 us, in which the bus moves half a megabyte, so
// smaller saves nothing; larger makes two threads (or a flag beside a buffer)
// that work next to one another copy what the other needs. Sequential access
// gets up to AHEAD at once.
#define GRANULE ((size_t)64 << 10)
#define AHEAD ((size_t)8 << 20)
// Ranges are made of whole pages of the device.
#define RANGE_UNIT ((size_t)2 << 20)

enum { DEVICE = 0, CLEAN = 1, DIRTY = 2 };

// Where a thread of the program is going, as far as its faults tell.
struct trail {
	size_t next, length; // granules
};

enum { TRAILS = 8 };

struct range {
	struct tree_node by_address;
	CUdeviceptr address;
	size_t size;
	CUcontext context; // whose memory it is
	CUdevice device;
	bool split;  // two memories; else pinned pages
	bool slab;   // for small allocations
	bool placed; // over memory of the driver's
	struct part *parts; // of it that are there, by their addresses
	bool fresh;  // no work was submitted since it was made: all is zero
	char *alias;
	uint8_t *state;
	size_t count;     // granules
	size_t valid;     // of them not DEVICE's
	size_t low, high; // no granule outside of these is among them
	struct trail reads[TRAILS], writes[TRAILS];
	unsigned turn;
	struct arena pieces;
	struct tree available;
	// What the program has advised.
	int preferred;   // device, or one of the negative numbers of cuda.h
	int prefetched;
	bool read_mostly;
};

extern pthread_mutex_t pages;

static inline void pages_release(const int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&pages);
}

// PAGES holds the lock until the end of the scope.
#define PAGES()                                                                \
	__attribute__((cleanup(pages_release), unused)) const int pages_held = \
		pthread_mutex_lock(&pages)

// Read by submit_x86_64.S without the lock. `mine`: something is not DEVICE's,
// or a fault is being served: who submits work has to call pages_before_work.
// `busy`: work was submitted since the device was last known to be idle.
extern _Atomic uint32_t hetcuda_pages_mine, hetcuda_pages_busy;

// range_first, range_next and range_find go through the ranges. Lock: held.
struct range *range_first(void);
struct range *range_next(const struct range *r);
struct range *range_find(CUdeviceptr address); // whatever of it is there
struct range *range_of(CUdeviceptr address);   // if that address is there
bool range_any(void); // lock: not needed

// range_add puts the CPU's pages over a range at which the device has memory
// (split; one that is placed has no parts yet), and lets it be found. range_remove takes them away again: the CPU
// can't touch the addresses any more. Lock: held.
CUresult range_add(struct range *r);
void range_remove(struct range *r);

// pages_flush makes a part of a range DEVICE's. Lock: held.
CUresult pages_flush(struct range *r, size_t from, size_t to);
CUresult pages_flush_all(void);

// pages_touch lets the CPU have what it has touched, and some of what follows.
// False if the device may be working on it: wait, and try again. What the thread
// will come to after that is put into *ahead, to be fetched while it works.
// pages_fetch fetches what nobody has touched yet. Lock: held.
struct ahead {
	size_t from, to; // granules
	bool write;
};

bool pages_touch(struct range *r, CUdeviceptr address, bool write, bool idle, struct ahead *ahead);
void pages_fetch(struct range *r, size_t from, size_t to, bool write);

// pages_forked forgets everything, in the child of a fork: it has none of it.
void pages_forked(void);

#endif
