// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Launched work, streams and events. All work is in one queue, from which each
// stream takes its own in order. It advances whenever somebody looks: at every
// later call and while a lock waits for it.
#include <signal.h>
#include <time.h>

#include "process.h"

static struct work *work_at(unsigned place)
{
	return &process.work[place % MAX_WORK];
}

// The streams that have work which is not done, in one walk through the queue.
struct pending {
	bool streams[MAX_STREAMS];
	bool standard, together; // the default one, and any that is not alone
};

static bool waits(const struct pending *p, const struct work *w)
{
	if (!w->stream)
		return p->standard || p->together;
	return p->streams[w->stream - process.streams] || (!w->alone && p->standard);
}

static void note(struct pending *p, const struct work *w)
{
	if (!w->stream)
		p->standard = true;
	else
		p->streams[w->stream - process.streams] = true;
	p->together = p->together || (w->stream && !w->alone);
}

bool work_advance(void)
{
	struct pending pending = {0};
	for (unsigned i = process.first; i != process.launched; i++) {
		struct work *w = work_at(i);
		if (w->done)
			continue;
		process.working_gpu = w->gpu;
		w->done = !waits(&pending, w) && (!w->ready_ms || now_ms() >= w->ready_ms) && w->run(w->params);
		if (!w->done)
			note(&pending, w);
	}
	while (process.first != process.launched && work_at(process.first)->done)
		process.first++;
	return process.first == process.launched;
}

bool work_done(unsigned last)
{
	return (int)(process.first - last) >= 0 || work_at(last - 1)->done;
}

static bool ordinary(CUstream stream)
{
	return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

bool stream_known(CUstream stream)
{
	if (!ordinary(stream))
		return true;
	return stream >= process.streams && stream < process.streams + MAX_STREAMS && stream->context;
}

void stream_drop(const struct CUctx_st *c)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (process.streams[i].context == c)
			process.streams[i].context = NULL;
}

int stream_gpu(CUstream stream)
{
	return ordinary(stream) ? stream->context->gpu : context_gpu();
}

static CUresult try_add(const struct work *w, CUstream stream, unsigned *last)
{
	ENTER();
	if (!stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream_gpu(stream) < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	work_advance();
	if (process.launched - process.first == MAX_WORK)
		return CUDA_ERROR_NOT_READY;
	struct work *slot = &process.work[process.launched % MAX_WORK];
	*slot = *w;
	slot->gpu = stream_gpu(stream);
	slot->stream = ordinary(stream) ? stream : NULL;
	slot->alone = slot->stream && stream->alone;
	slot->done = false;
	process.launched++;
	if (ordinary(stream))
		stream->last = process.launched;
	if (last)
		*last = process.launched;
	work_advance(); // it starts at once if nothing is before it
	return process.lost;
}

CUresult work_add(const struct work *w, CUstream stream, unsigned *last)
{
	CUresult r;
	while ((r = try_add(w, stream, last)) == CUDA_ERROR_NOT_READY)
		sleep_us(500); // the queue is full
	return r;
}

static CUresult query(unsigned last)
{
	ENTER();
	return work_done(last) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult work_wait(unsigned last)
{
	CUresult r;
	while ((r = query(last)) == CUDA_ERROR_NOT_READY)
		sleep_us(500);
	return r;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER();
	(void)priority; // is clamped, as the real one is
	if (!stream || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (int i = 0; i < MAX_STREAMS; i++) {
		struct CUstream_st *s = &process.streams[i];
		if (s->context)
			continue;
		*s = (struct CUstream_st){
			.context = context_current(), .last = process.first, .id = ++process.stream_ids, .alone = flags & CU_STREAM_NON_BLOCKING,
		};
		*stream = s;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	ENTER();
	if (!ordinary(stream) || !stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	stream->context = NULL;
	return CUDA_SUCCESS;
}

// Nothing is ever captured.
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ENTER();
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return stream_known(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The default streams have numbers that no other stream comes to.
CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	ENTER();
	if (!stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinary(stream) && context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = ordinary(stream) ? stream->id : (1ull << 48) + (unsigned long long)(context_current() - process.contexts);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	ENTER();
	if (!stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = ordinary(stream) ? stream->context : context_current();
	return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = current;
	current = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

// What the default stream waits for is at many places, so something is put behind
// them.
static bool run_nothing(uint64_t *v)
{
	(void)v;
	return true;
}

static CUresult stream_last(CUstream stream, unsigned *last)
{
	ENTER();
	if (!stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ordinary(stream) && context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*last = ordinary(stream) ? stream->last : process.first;
	return CUDA_SUCCESS;
}

static CUresult stream_end(CUstream stream, unsigned *last)
{
	struct work nothing = {.run = run_nothing};
	CUresult r = stream_last(stream, last);
	return r == CUDA_SUCCESS && !ordinary(stream) ? work_add(&nothing, stream, last) : r;
}

CUresult stream_wait(CUstream stream)
{
	unsigned last;
	CUresult r = stream_end(stream, &last);
	return r == CUDA_SUCCESS ? work_wait(last) : r;
}

static CUresult query_default(void)
{
	ENTER();
	for (unsigned i = process.first; i != process.launched; i++)
		if (!work_at(i)->done && !work_at(i)->alone)
			return CUDA_ERROR_NOT_READY;
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
	unsigned last;
	CUresult r = stream_last(stream, &last);
	if (r != CUDA_SUCCESS)
		return r;
	return ordinary(stream) ? query(last) : query_default();
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return stream_wait(stream);
}

// Values of host memory that streams write and wait for.
static _Atomic uint64_t *host_word(CUdeviceptr address)
{
	const struct alloc *a = alloc_at(address);
	return a && a->kind >= MANAGED && address % 8 == 0 ? (_Atomic uint64_t *)(uintptr_t)address : NULL;
}

static bool run_write_value(uint64_t *v)
{
	_Atomic uint64_t *word = host_word(v[0]);
	if (word)
		*word = v[1];
	else
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

static bool run_wait_value(uint64_t *v)
{
	_Atomic uint64_t *word = host_word(v[0]);
	if (!word)
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return !word || (int64_t)(*word - v[1]) >= 0;
}

static CUresult value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags, bool (*run)(uint64_t *))
{
	struct work w = {.run = run, .params = {address, value}};
	{
		ENTER();
		if (flags != 0 || !host_word(address))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return work_add(&w, stream, NULL);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t number, unsigned int flags)
{
	return value(stream, address, number, flags, run_write_value);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t number, unsigned int flags)
{
	return value(stream, address, number, flags, run_wait_value);
}

static bool event_known(CUevent event)
{
	return event >= process.events && event < process.events + MAX_EVENTS && event->used;
}

static bool run_wait(uint64_t *v)
{
	return work_done((unsigned)v[0]);
}

static CUresult check_wait(CUstream stream, CUevent event, unsigned *last)
{
	ENTER();
	if (!stream_known(stream) || !event_known(event))
		return CUDA_ERROR_INVALID_HANDLE;
	*last = event->last;
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	unsigned last = 0;
	CUresult r = flags > 1 ? CUDA_ERROR_INVALID_VALUE : check_wait(stream, event, &last);
	struct work w = {.run = run_wait, .params = {last}};
	return r == CUDA_SUCCESS ? work_add(&w, stream, NULL) : r;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	ENTER();
	if (!event || flags > 7 || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (int i = 0; i < MAX_EVENTS; i++) {
		if (process.events[i].used)
			continue;
		process.events[i] = (struct CUevent_st){.used = true, .flags = flags, .last = process.first};
		*event = &process.events[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	ENTER();
	if (!event_known(event))
		return CUDA_ERROR_INVALID_HANDLE;
	event->used = false;
	return CUDA_SUCCESS;
}

static bool run_record(uint64_t *v)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	process.events[v[0]].time = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	return true;
}

static CUresult check_event(CUevent event)
{
	ENTER();
	return event_known(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult r = check_event(event);
	struct work w = {.run = run_record, .params = {(uint64_t)(event - process.events)}};
	return r == CUDA_SUCCESS ? work_add(&w, stream, &event->last) : r;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

static CUresult event_last(CUevent event, unsigned *last)
{
	ENTER();
	if (!event_known(event))
		return CUDA_ERROR_INVALID_HANDLE;
	*last = event->last;
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
	unsigned last;
	CUresult r = event_last(event, &last);
	return r == CUDA_SUCCESS ? query(last) : r;
}

CUresult cuEventSynchronize(CUevent event)
{
	unsigned last;
	CUresult r = event_last(event, &last);
	return r == CUDA_SUCCESS ? work_wait(last) : r;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	ENTER();
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!event_known(start) || !event_known(end) || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!work_done(start->last) || !work_done(end->last))
		return CUDA_ERROR_NOT_READY;
	if (!start->time || !end->time)
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)((double)(int64_t)(end->time - start->time) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime(ms, start, end);
}

// Between processes there are none: libhetcuda's are its own.
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	ENTER();
	return handle && event_known(event) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	ENTER();
	(void)handle;
	return event ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

// A host function may be waited for by a program that makes no further call:
// a thread of its own looks after the work before it.
static void *pump(void *unused)
{
	(void)unused;
	for (;;) {
		if (enter() != CUDA_SUCCESS)
			return NULL;
		bool idle = work_advance();
		process.pumping = !idle;
		pthread_mutex_unlock(&process.mu);
		if (idle)
			return NULL;
		sleep_us(500);
	}
}

static CUresult start_pump(void)
{
	ENTER();
	pthread_t thread;
	sigset_t all, before;
	if (process.pumping || work_advance())
		return CUDA_SUCCESS;
	sigfillset(&all); // the program's signals are not its business
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, NULL, pump, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		return CUDA_ERROR_OPERATING_SYSTEM;
	pthread_detach(thread);
	process.pumping = true;
	return CUDA_SUCCESS;
}

static bool run_host(uint64_t *v)
{
	((CUhostFn)(uintptr_t)v[0])((void *)(uintptr_t)v[1]);
	return true;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	struct work w = {.run = run_host, .params = {(uintptr_t)function, (uintptr_t)data}};
	CUresult r = work_add(&w, stream, NULL);
	return r == CUDA_SUCCESS ? start_pump() : r;
}
