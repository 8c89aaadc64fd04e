// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "parts.h"
#include "real.h"
#include "ring.h"
#include "watch.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

pthread_mutex_t pages = PTHREAD_MUTEX_INITIALIZER;

_Alignas(64) _Atomic uint32_t hetcuda_pages_mine;
_Atomic uint32_t hetcuda_pages_busy;

// A thread that goes on in order works on what it got for about as long as it
// takes to fetch as much: so it finds this many times AHEAD more.
enum { FURTHER = 2 };

static struct tree ranges;
static _Atomic size_t range_count;

struct range *range_first(void)
{
	return OF(tree_first(&ranges), struct range, by_address);
}

struct range *range_next(const struct range *r)
{
	return OF(tree_next(&r->by_address), struct range, by_address);
}

struct range *range_find(CUdeviceptr address)
{
	struct range *r = OF(tree_floor(&ranges, address, 0), struct range, by_address);
	return r && address - r->address < r->size ? r : NULL;
}

struct range *range_of(CUdeviceptr address)
{
	struct range *r = range_find(address);
	return r && (!r->placed || part_find(r, address)) ? r : NULL;
}

bool range_any(void)
{
	return atomic_load_explicit(&range_count, memory_order_relaxed) > 0;
}

// The program's mapping.
static void *seen(const struct range *r)
{
	return (void *)(uintptr_t)r->address;
}

// cover puts shared pages over the driver's own mapping of the addresses, which
// nobody can touch (it only keeps them reserved); uncover puts such a one back,
// in one step: addresses that were free for a moment could become another
// mapping, which the driver would then end together with its reservation.
static bool cover(struct range *r)
{
	r->alias = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->alias == MAP_FAILED)
		return false;
	// A child has no managed memory, as the driver has it.
	madvise(r->alias, r->size, MADV_DONTFORK);
	if (r->placed)
		return true;
	// The same pages once more.
	if (mremap(r->alias, 0, r->size, MREMAP_MAYMOVE | MREMAP_FIXED, seen(r)) == MAP_FAILED) {
		munmap(r->alias, r->size);
		return false;
	}
	madvise(seen(r), r->size, MADV_DONTFORK);
	return true;
}

static void uncover(struct range *r)
{
	if (!r->placed &&
	    mmap(seen(r), r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		hetcuda_log("managed memory at %#llx can't be taken away", r->address);
	munmap(r->alias, r->size);
}

CUresult range_add(struct range *r)
{
	if (r->split) {
		r->count = r->size / GRANULE;
		r->low = r->count;
		r->state = calloc(r->count, 1);
		if (!r->state)
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (!cover(r)) {
			free(r->state);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (!r->placed && !watch_add(r->address, r->size)) {
			uncover(r);
			free(r->state);
			return CUDA_ERROR_OPERATING_SYSTEM;
		}
		// Until work is submitted all of it is known to be zero: that is
		// something that a submission has to end.
		r->fresh = !r->placed;
		atomic_fetch_add(&hetcuda_pages_mine, r->fresh);
	}
	tree_insert(&ranges, &r->by_address, r->address, 0);
	atomic_fetch_add(&range_count, 1);
	return CUDA_SUCCESS;
}

void range_remove(struct range *r)
{
	tree_remove(&ranges, &r->by_address);
	atomic_fetch_sub(&range_count, 1);
	if (!r->split)
		return;
	atomic_fetch_sub(&hetcuda_pages_mine, (uint32_t)r->valid + r->fresh);
	if (!r->placed)
		watch_remove(r->address, r->size);
	uncover(r);
	free(r->state);
}

// become sets the state of granules.
static void become(struct range *r, size_t from, size_t to, uint8_t state)
{
	size_t before = 0;
	for (size_t g = from; g < to; g++)
		before += r->state[g] != DEVICE;
	memset(r->state + from, state, to - from);
	size_t now = state != DEVICE ? to - from : 0;
	r->valid += now - before;
	atomic_fetch_add(&hetcuda_pages_mine, (uint32_t)(now - before));
	if (r->valid == 0) {
		r->low = r->count;
		r->high = 0;
	} else if (now > 0) {
		r->low = from < r->low ? from : r->low;
		r->high = to > r->high ? to : r->high;
	}
}

// end_of_run is where granules like the first end: those that are DEVICE's or
// those that aren't (alike: 0), or those of exactly its state (1).
static size_t end_of_run(const struct range *r, size_t from, size_t to, bool exactly)
{
	uint8_t first = r->state[from];
	while (from < to && (exactly ? r->state[from] == first : (r->state[from] != DEVICE) == (first != DEVICE)))
		from++;
	return from;
}

// send copies the DIRTY granules of a run to the device. They are closed: a
// thread that writes on waits until this is over.
static void send(struct ring *ring, const struct range *r, size_t from, size_t to)
{
	for (size_t g = from, end; g < to; g = end) {
		end = end_of_run(r, g, to, true);
		if (r->state[g] != DIRTY)
			continue;
		BYTES_THERE(r, at, n, g * GRANULE, end * GRANULE)
			ring_up(ring, r->address + at, r->alias + at, n);
	}
}

static CUresult flush(struct range *r, size_t from, size_t to)
{
	struct ring *ring;
	CUresult result = ring_of(r->context, &ring);
	if (result == CUDA_SUCCESS)
		result = ring_begin(ring);
	if (result != CUDA_SUCCESS)
		return result;
	for (size_t g = from, end; g < to; g = end) {
		end = end_of_run(r, g, to, false);
		if (r->state[g] == DEVICE)
			continue;
		watch_close(r, g, end);
		send(ring, r, g, end);
	}
	return ring_end(ring);
}

CUresult pages_flush(struct range *r, size_t from, size_t to)
{
	if (!r->split)
		return CUDA_SUCCESS;
	size_t unit = watch_unit();
	from = from / unit * unit;
	to = (to + unit - 1) / unit * unit;
	from = from > r->low ? from : r->low;
	to = to < r->high ? to : r->high;
	if (from >= to)
		return CUDA_SUCCESS;
	CUresult result = flush(r, from, to);
	// With an error (the context is lost, or gone) what was DIRTY stays so:
	// closed, but opened again when it is touched.
	if (result == CUDA_SUCCESS)
		become(r, from, to, DEVICE);
	return result;
}

CUresult pages_flush_all(void)
{
	CUresult result = CUDA_SUCCESS;
	for (struct range *r = range_first(); r; r = range_next(r)) {
		CUresult one = pages_flush(r, 0, r->count);
		if (result == CUDA_SUCCESS)
			result = one;
		if (r->fresh)
			atomic_fetch_sub(&hetcuda_pages_mine, 1);
		r->fresh = false;
	}
	return result;
}

// fill makes the CPU's pages of granules that are DEVICE's the same as the
// device's.
static void fill(struct range *r, size_t from, size_t to)
{
	char *at = r->alias + from * GRANULE;
	size_t size = (to - from) * GRANULE;
	if (r->fresh) {
		// Never touched by anybody: the kernel's pages are zero.
		if (madvise(at, size, MADV_POPULATE_WRITE) != 0)
			memset(at, 0, size);
		return;
	}
	struct ring *ring;
	CUresult result = ring_of(r->context, &ring);
	if (result == CUDA_SUCCESS)
		result = ring_begin(ring);
	if (result == CUDA_SUCCESS) {
		BYTES_THERE(r, there, n, from * GRANULE, to * GRANULE)
			ring_down(ring, r->alias + there, r->address + there, n);
		result = ring_end(ring);
	}
	if (result == CUDA_SUCCESS)
		return;
	// The context is lost. The thread can't be left waiting for ever; what
	// it sees now is as undefined as CUDA says it is after such an error.
	hetcuda_log("managed memory at %#llx can't be read: error %d", r->address + from * GRANULE, (int)result);
	if (madvise(at, size, MADV_POPULATE_WRITE) != 0)
		memset(at, 0, size);
}

// step is how many granules a thread gets that has come to one: those that
// follow too, twice as many as the last time, if it goes where its trail led.
static size_t step(struct range *r, struct trail *trails, size_t granule, struct trail **trail)
{
	size_t unit = watch_unit(), most = AHEAD / GRANULE;
	for (int i = 0; i < TRAILS; i++) {
		struct trail *t = &trails[i];
		if (t->length == 0 || granule != t->next)
			continue;
		t->length = t->length * 2 < most ? t->length * 2 : most;
		t->next = granule + t->length;
		*trail = t;
		return t->length;
	}
	struct trail *t = &trails[r->turn++ % TRAILS];
	t->length = unit;
	t->next = granule + unit;
	*trail = t;
	return unit;
}

// Granules [from, to) become the CPU's.
static void give(struct range *r, size_t from, size_t to, bool write)
{
	fill(r, from, to);
	uint8_t state = write || !watch_tracks_writes() ? DIRTY : CLEAN;
	become(r, from, to, state);
	watch_open(r, from, to, state == DIRTY);
}

void pages_fetch(struct range *r, size_t from, size_t to, bool write)
{
	size_t unit = watch_unit();
	from = from / unit * unit;
	to = (to + unit - 1) / unit * unit;
	to = to < r->count ? to : r->count;
	for (size_t g = from, end; r->split && g < to; g = end) {
		end = end_of_run(r, g, to, true);
		if (r->state[g] == DEVICE)
			give(r, g, end, write);
	}
}

// look_ahead says what a thread that has gone far in order comes to next. It
// finds it there, so the trail goes on behind it.
static struct ahead look_ahead(const struct range *r, struct trail *t, bool write)
{
	size_t most = AHEAD / GRANULE, from = t->next, to = from + most * FURTHER;
	to = to < r->count ? to : r->count;
	if (t->length < most || from >= to || r->state[from] != DEVICE)
		return (struct ahead){0};
	to = end_of_run(r, from, to, true);
	t->next = to;
	return (struct ahead){from, to, write};
}

bool pages_touch(struct range *r, CUdeviceptr address, bool write, bool idle, struct ahead *ahead)
{
	struct trail *trail;
	if (!r->split)
		return true;
	size_t unit = watch_unit(), granule = (address - r->address) / GRANULE, from = granule / unit * unit;
	uint8_t state = r->state[granule];
	if (state == DEVICE && !idle && !r->fresh)
		return false;
	if (state == DEVICE) {
		size_t length = step(r, r->reads, from, &trail);
		size_t to = from + length < r->count ? from + length : r->count;
		to = end_of_run(r, from, to, true);
		// One that writes its way through will write the rest too: to copy
		// it back is cheaper than a fault for each granule.
		size_t middle = !write ? from : length > unit ? to : from + unit;
		if (middle > from)
			give(r, from, middle, true);
		if (to > middle)
			give(r, middle, to, false);
		*ahead = look_ahead(r, trail, write);
		return true;
	}
	if (state == CLEAN && write) {
		size_t length = step(r, r->writes, from, &trail);
		size_t to = from + length < r->count ? from + length : r->count;
		to = end_of_run(r, from, to, true);
		become(r, from, to, DIRTY);
		watch_allow(r, from, to);
		return true;
	}
	// Another thread was here first, or a copy to the device has failed.
	watch_open(r, from, from + unit, state == DIRTY);
	return true;
}

void pages_forked(void)
{
	pthread_mutex_init(&pages, NULL);
	ranges = (struct tree){0};
	atomic_store(&range_count, 0);
	atomic_store(&hetcuda_pages_mine, 0);
}
