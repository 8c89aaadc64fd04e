// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "follow.h"

#include "books.h"
#include "events.h"
#include "overrides.h"
#include "ptsz.h"
#include "real.h"

// What is known of the events that were recorded last. Another event in the same
// place takes it.
struct point {
	CUevent event;
	struct known known[KNOWN + 1]; // what its stream came after, and the stream itself
};
static struct point points[256];

static struct point *place_of(CUevent event)
{
	return &points[((uintptr_t)event >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 56];
}

bool follow_after(const struct mark *m, const struct lane *l)
{
	for (int i = 0; i < KNOWN; i++)
		if (l->known[i].lane == m->lane->by_id.major)
			return l->known[i].clock > m->ended;
	return false;
}

// recording notes what an event comes after, before it is recorded.
static void recording(CUevent event, CUstream stream, struct manner how)
{
	unsigned long long id;
	if (!lanes_any() || (how.own ? REAL(cuStreamGetId_ptsz) : REAL(cuStreamGetId))(stream, &id) != CUDA_SUCCESS)
		return;
	BOOKS();
	struct point *p = place_of(event);
	struct lane *l = lane_peek(id);
	if (!l) {
		// Of a stream that has freed nothing; or another event's place.
		p->event = p->event == event ? NULL : p->event;
		return;
	}
	p->event = event;
	for (int i = 0; i < KNOWN; i++)
		p->known[i] = l->known[i];
	p->known[KNOWN] = (struct known){.lane = id, .clock = ++l->clock};
}

// learn has a lane know of one more that it comes after. The oldest is forgotten.
static void learn(struct lane *l, const struct known *k)
{
	if (k->lane == 0 || k->lane == l->by_id.major)
		return;
	for (int i = 0; i < KNOWN; i++) {
		if (l->known[i].lane != k->lane)
			continue;
		if (l->known[i].clock < k->clock)
			l->known[i].clock = k->clock;
		return;
	}
	l->known[l->learnt++ % KNOWN] = *k;
}

// waiting notes what a stream comes after from now on.
static CUresult waiting(CUstream stream, CUevent event, struct manner how, CUresult r)
{
	CUresult unused;
	if (r != CUDA_SUCCESS || !lanes_any())
		return r;
	{
		BOOKS();
		if (place_of(event)->event != event)
			return r;
	}
	struct lane *l = lane_open(stream, how, &unused);
	if (!l)
		return r;
	{
		BOOKS();
		const struct point *p = place_of(event);
		for (int i = 0; p->event == event && i <= KNOWN; i++)
			learn(l, &p->known[i]);
	}
	lane_close(l);
	return r;
}

static const struct manner legacy = {.own = false}, per_thread = {.own = true};

CUresult hetcuda_cuEventRecord(CUevent event, CUstream stream)
{
	recording(event, stream, legacy);
	return events_recorded(REAL(cuEventRecord)(event, stream), event, stream, false, 0);
}

CUresult hetcuda_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	recording(event, stream, per_thread);
	return events_recorded(REAL(cuEventRecord_ptsz)(event, stream), event, stream, true, 0);
}

CUresult hetcuda_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	recording(event, stream, legacy);
	return events_recorded(REAL(cuEventRecordWithFlags)(event, stream, flags), event, stream, false, flags);
}

CUresult hetcuda_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
	recording(event, stream, per_thread);
	return events_recorded(REAL(cuEventRecordWithFlags_ptsz)(event, stream, flags), event, stream, true, flags);
}

CUresult hetcuda_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	CUresult r;
	if (!events_wait(stream, false, event, &r))
		r = REAL(cuStreamWaitEvent)(stream, event, flags);
	return waiting(stream, event, legacy, r);
}

CUresult hetcuda_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	CUresult r;
	if (!events_wait(stream, true, event, &r))
		r = REAL(cuStreamWaitEvent_ptsz)(stream, event, flags);
	return waiting(stream, event, per_thread, r);
}
