// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "ring.h"

#include <stdbool.h>
#include <stdlib.h>

#include "context.h"
#include "copy.h"
#include "real.h"

// A piece takes the bus 40 us, twice what it costs to ask for it and to wait for
// it; with eight of them the CPU's copies and the bus's go on at the same time.
enum { SLOTS = 8 };
#define SLOT ((size_t)2 << 20)

struct slot {
	char *memory;
	CUstream stream; // a stream each: waiting for one waits for its slot only
	bool busy;
};

struct ring {
	struct ring *next;
	CUcontext context;
	struct slot slots[SLOTS];
	unsigned turn;
	CUresult result;
	CUcontext before;
	CUstreamCaptureMode mode;
	bool relaxed;
};

static struct ring *rings;

static void end_slots(struct ring *r)
{
	for (int i = 0; i < SLOTS; i++) {
		if (r->slots[i].stream)
			REAL(cuStreamDestroy)(r->slots[i].stream);
		if (r->slots[i].memory)
			REAL(cuMemFreeHost)(r->slots[i].memory);
	}
}

static void relax(struct ring *r)
{
	r->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	r->relaxed = REAL(cuThreadExchangeStreamCaptureMode) &&
		     REAL(cuThreadExchangeStreamCaptureMode)(&r->mode) == CUDA_SUCCESS;
}

CUresult ring_begin(struct ring *r)
{
	CUresult result = context_switch(r->context, &r->before);
	if (result != CUDA_SUCCESS)
		return result;
	relax(r);
	r->result = CUDA_SUCCESS;
	return CUDA_SUCCESS;
}

static void keep(struct ring *r, CUresult result)
{
	if (r->result == CUDA_SUCCESS)
		r->result = result;
}

static void settle(struct ring *r, struct slot *s)
{
	if (s->busy)
		keep(r, REAL(cuStreamSynchronize)(s->stream));
	s->busy = false;
}

CUresult ring_end(struct ring *r)
{
	for (int i = 0; i < SLOTS; i++)
		settle(r, &r->slots[i]);
	if (r->relaxed)
		REAL(cuThreadExchangeStreamCaptureMode)(&r->mode);
	context_switch_back(r->context, r->before);
	return r->result;
}

CUresult ring_of(CUcontext context, struct ring **found)
{
	for (struct ring *r = rings; r; r = r->next) {
		if (r->context == context) {
			*found = r;
			return CUDA_SUCCESS;
		}
	}
	struct ring *r = calloc(1, sizeof *r);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->context = context;
	CUresult result = ring_begin(r);
	if (result != CUDA_SUCCESS) {
		free(r);
		return result;
	}
	for (int i = 0; i < SLOTS && r->result == CUDA_SUCCESS; i++) {
		keep(r, REAL(cuStreamCreate)(&r->slots[i].stream, CU_STREAM_NON_BLOCKING));
		if (r->result == CUDA_SUCCESS)
			keep(r, REAL(cuMemHostAlloc)((void **)&r->slots[i].memory, SLOT, CU_MEMHOSTALLOC_PORTABLE));
	}
	if (r->result != CUDA_SUCCESS)
		end_slots(r);
	result = ring_end(r);
	if (result != CUDA_SUCCESS) {
		free(r);
		return result;
	}
	r->next = rings;
	rings = r;
	*found = r;
	return CUDA_SUCCESS;
}

static struct slot *next_slot(struct ring *r)
{
	struct slot *s = &r->slots[r->turn++ % SLOTS];
	settle(r, s);
	return s;
}

void ring_up(struct ring *r, CUdeviceptr to, const void *from, size_t size)
{
	for (size_t at = 0; at < size && r->result == CUDA_SUCCESS;) {
		size_t n = size - at < SLOT ? size - at : SLOT;
		struct slot *s = next_slot(r);
		copy(s->memory, (const char *)from + at, n);
		keep(r, REAL(cuMemcpyHtoDAsync)(to + at, s->memory, n, s->stream));
		s->busy = true;
		at += n;
	}
}

void ring_down(struct ring *r, void *to, CUdeviceptr from, size_t size)
{
	size_t asked = 0, done = 0;
	unsigned first = r->turn;
	while (done < size && r->result == CUDA_SUCCESS) {
		while (asked < size && asked - done < SLOTS * SLOT) {
			size_t n = size - asked < SLOT ? size - asked : SLOT;
			struct slot *s = next_slot(r);
			keep(r, REAL(cuMemcpyDtoHAsync)(s->memory, from + asked, n, s->stream));
			s->busy = true;
			asked += n;
		}
		struct slot *s = &r->slots[first++ % SLOTS];
		size_t n = size - done < SLOT ? size - done : SLOT;
		settle(r, s);
		if (r->result == CUDA_SUCCESS)
			copy((char *)to + done, s->memory, n);
		done += n;
	}
}

void ring_zero(struct ring *r, CUdeviceptr at, size_t size)
{
	struct slot *s = next_slot(r);
	keep(r, REAL(cuMemsetD8Async)(at, 0, size, s->stream));
	s->busy = true;
}

void ring_drop(CUcontext context)
{
	for (struct ring **link = &rings; *link; link = &(*link)->next) {
		struct ring *r = *link;
		if (r->context != context)
			continue;
		*link = r->next;
		free(r); // the context took the rest with it
		return;
	}
}

void ring_drop_all(void)
{
	while (rings) {
		struct ring *r = rings;
		rings = r->next;
		if (ring_begin(r) == CUDA_SUCCESS) {
			end_slots(r);
			ring_end(r);
		}
		free(r);
	}
}

void ring_forked(void)
{
	rings = NULL;
}
