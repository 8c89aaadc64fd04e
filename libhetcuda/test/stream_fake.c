// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "stream_fake.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ptsz.h"
#include "real.h"

enum { STREAMS = 64, QUEUE = 4096, POOLS = 32, DEVICES = 8 };

struct item {
	enum { WORK, RECORD, WAIT } what;
	void (*call)(void *);
	void *argument;
	CUevent event;
	unsigned version;
};

struct CUstream_st {
	bool used, dying;
	unsigned long long id;
	CUcontext context;
	pthread_t thread; // of a per-thread one
	struct item queue[QUEUE];
	unsigned first, count;
};

struct CUevent_st {
	unsigned recorded, done;
	unsigned items; // in queues
	bool destroyed;
	CUcontext context;
};

struct CUmemPoolHandle_st {
	bool used, standard;
	CUmemPoolProps p;
	cuuint64_t attribute[16];
	int access[DEVICES];
};

struct streams_fake streams_fake;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct CUstream_st streams[STREAMS]; // created, legacy and per-thread ones
static struct CUmemPoolHandle_st pools[POOLS];
static CUmemoryPool current_pool[DEVICES];
static unsigned long long ids;
static pthread_t gpu;
static _Atomic bool goes;

static void release(const int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mu);
}

#define HOLD() __attribute__((cleanup(release), unused)) const int held = pthread_mutex_lock(&mu)

static CUcontext current(void)
{
	CUcontext c = NULL;
	REAL(cuCtxGetCurrent)(&c);
	return c;
}

static CUdevice device_now(void)
{
	CUdevice d = -1;
	REAL(cuCtxGetDevice)(&d);
	return d;
}

// failing tells whether a call is the one that fails.
static bool failing(const char *name)
{
	if (!streams_fake.fail || strncmp(streams_fake.fail, name, strlen(streams_fake.fail)) != 0)
		return false;
	if (!streams_fake.lasting)
		streams_fake.fail = NULL;
	return true;
}

// The default streams are kinds of their own: of a context, or of a thread in it.
enum kind { CREATED, LEGACY, OWN };
static enum kind kinds[STREAMS];

static CUstream add(enum kind kind, CUcontext c)
{
	for (int i = 0; i < STREAMS; i++) {
		CUstream s = &streams[i];
		if (s->used)
			continue;
		s->used = true;
		s->dying = false;
		s->id = ++ids;
		s->context = c;
		s->thread = pthread_self();
		s->first = s->count = 0;
		kinds[i] = kind;
		return s;
	}
	abort();
}

static CUstream find(CUstream stream, bool own)
{
	enum kind kind = stream == CU_STREAM_PER_THREAD || (!stream && own) ? OWN : LEGACY;
	CUcontext c = current();
	if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
		return stream >= streams && stream < streams + STREAMS && stream->used && !stream->dying ? stream : NULL;
	if (!c)
		return NULL;
	for (int i = 0; i < STREAMS; i++)
		if (streams[i].used && kinds[i] == kind && streams[i].context == c &&
		    (kind == LEGACY || pthread_equal(streams[i].thread, pthread_self())))
			return &streams[i];
	return add(kind, c);
}

static void drop_event(CUevent event)
{
	if (event->destroyed && event->items == 0)
		free(event);
}

static void push(CUstream s, struct item item)
{
	if (item.event)
		item.event->items++;
	while (s->count == QUEUE)
		pthread_cond_wait(&moved, &mu);
	s->queue[(s->first + s->count++) % QUEUE] = item;
}

// step does the next thing in a stream. What was submitted to one default stream is
// not held up by others here: that is less order than there really is.
static bool step(CUstream s)
{
	if (s->count == 0)
		return false;
	struct item item = s->queue[s->first];
	if (item.what == WAIT && item.event->done < item.version)
		return false;
	if (item.what == RECORD && item.event->done < item.version)
		item.event->done = item.version;
	if (item.what == WORK) {
		pthread_mutex_unlock(&mu);
		item.call(item.argument);
		pthread_mutex_lock(&mu);
	}
	if (item.event) {
		item.event->items--;
		drop_event(item.event);
	}
	s->first = (s->first + 1) % QUEUE;
	s->count--;
	if (s->count == 0 && s->dying)
		s->used = false;
	pthread_cond_broadcast(&moved);
	return true;
}

void stream_work(CUstream stream, bool own, void (*call)(void *), void *argument)
{
	HOLD();
	CUstream s = find(stream, own);
	CHECK(s);
	push(s, (struct item){.what = WORK, .call = call, .argument = argument});
}

bool stream_step(CUstream stream)
{
	HOLD();
	return step(find(stream, false));
}

void streams_drain(void)
{
	HOLD();
	for (bool any = true; any;) {
		any = false;
		for (int i = 0; i < STREAMS; i++)
			while (streams[i].used && step(&streams[i]))
				any = true;
	}
	for (int i = 0; i < STREAMS; i++)
		CHECK(!streams[i].used || streams[i].count == 0); // nothing waits for what never comes
}

void streams_forget(void)
{
	HOLD();
	for (int i = 0; i < STREAMS; i++)
		if (streams[i].used && kinds[i] == OWN && !pthread_equal(streams[i].thread, pthread_self()))
			streams[i].used = false;
}

static void *run(void *argument)
{
	unsigned seed = *(unsigned *)argument;
	while (goes) {
		{
			HOLD();
			for (int i = 0; i < 8; i++) {
				CUstream s = &streams[rand_r(&seed) % STREAMS];
				if (s->used)
					step(s);
			}
		}
		if (rand_r(&seed) % 64 == 0)
			usleep(20);
	}
	return NULL;
}

void streams_go(unsigned seed)
{
	static unsigned given;
	given = seed;
	goes = true;
	CHECK(pthread_create(&gpu, NULL, run, &given) == 0);
}

void streams_halt(void)
{
	goes = false;
	pthread_join(gpu, NULL);
}

// Without a thread that does it nobody would do what is waited for.
static void wait_until(bool (*done)(void *), void *argument)
{
	while (!done(argument)) {
		if (goes) {
			pthread_cond_wait(&moved, &mu);
			continue;
		}
		bool any = false;
		for (int i = 0; i < STREAMS; i++)
			any = (streams[i].used && step(&streams[i])) || any;
		CHECK(any);
	}
}

static bool is_empty(void *stream)
{
	return ((CUstream)stream)->count == 0;
}

static bool all_empty(void *context)
{
	for (int i = 0; i < STREAMS; i++)
		if (streams[i].used && streams[i].context == (CUcontext)context && streams[i].count > 0)
			return false;
	return true;
}

static bool is_done(void *event)
{
	return ((CUevent)event)->done >= ((CUevent)event)->recorded;
}

static CUresult f_cuCtxSynchronize(void)
{
	HOLD();
	if (failing("cuCtxSynchronize"))
		return streams_fake.with;
	wait_until(all_empty, current());
	fake.syncs++;
	return CUDA_SUCCESS;
}

static CUresult get_id(bool own, CUstream stream, unsigned long long *id)
{
	HOLD();
	CUstream s = find(stream, own);
	if (!s)
		return stream ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
	*id = s->id;
	return CUDA_SUCCESS;
}

static CUresult get_context(bool own, CUstream stream, CUcontext *context)
{
	HOLD();
	CUstream s = find(stream, own);
	if (failing("cuStreamGetCtx"))
		return streams_fake.with;
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = s->context;
	return CUDA_SUCCESS;
}

static CUresult capturing(bool own, CUstream stream, CUstreamCaptureStatus *status)
{
	HOLD();
	CUstream s = find(stream, own);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	*status = streams_fake.capturing == s ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult wait_event(bool own, CUstream stream, CUevent event, unsigned int flags)
{
	HOLD();
	CUstream s = find(stream, own);
	if (failing("cuStreamWaitEvent"))
		return streams_fake.with;
	if (!s || flags)
		return CUDA_ERROR_INVALID_HANDLE;
	streams_fake.waits++;
	push(s, (struct item){.what = WAIT, .event = event, .version = event->recorded});
	return CUDA_SUCCESS;
}

static CUresult record(bool own, CUevent event, CUstream stream)
{
	HOLD();
	CUstream s = find(stream, own);
	if (failing("cuEventRecord"))
		return streams_fake.with;
	if (!s || s->context != event->context)
		return CUDA_ERROR_INVALID_HANDLE;
	push(s, (struct item){.what = RECORD, .event = event, .version = ++event->recorded});
	return CUDA_SUCCESS;
}

static CUresult synchronize(bool own, CUstream stream)
{
	HOLD();
	CUstream s = find(stream, own);
	if (failing("cuStreamSynchronize"))
		return streams_fake.with;
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	wait_until(is_empty, s);
	return CUDA_SUCCESS;
}

static CUresult f_cuStreamGetId(CUstream s, unsigned long long *id) { return get_id(false, s, id); }
static CUresult f_cuStreamGetId_ptsz(CUstream s, unsigned long long *id) { return get_id(true, s, id); }
static CUresult f_cuStreamGetCtx(CUstream s, CUcontext *c) { return get_context(false, s, c); }
static CUresult f_cuStreamGetCtx_ptsz(CUstream s, CUcontext *c) { return get_context(true, s, c); }
static CUresult f_cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *c) { return capturing(false, s, c); }
static CUresult f_cuStreamIsCapturing_ptsz(CUstream s, CUstreamCaptureStatus *c) { return capturing(true, s, c); }
static CUresult f_cuStreamWaitEvent(CUstream s, CUevent e, unsigned int f) { return wait_event(false, s, e, f); }
static CUresult f_cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned int f) { return wait_event(true, s, e, f); }
static CUresult f_cuEventRecord(CUevent e, CUstream s) { return record(false, e, s); }
static CUresult f_cuEventRecord_ptsz(CUevent e, CUstream s) { return record(true, e, s); }
static CUresult f_cuStreamSynchronize(CUstream s) { return synchronize(false, s); }
static CUresult f_cuStreamSynchronize_ptsz(CUstream s) { return synchronize(true, s); }

static CUresult f_cuEventRecordWithFlags(CUevent e, CUstream s, unsigned int f) { return f > 1 ? CUDA_ERROR_INVALID_VALUE : record(false, e, s); }

static CUresult f_cuStreamQuery(CUstream stream)
{
	HOLD();
	CUstream s = find(stream, false);
	return !s ? CUDA_ERROR_INVALID_HANDLE : s->count ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult f_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	HOLD();
	(void)flags;
	*stream = add(CREATED, current());
	return CUDA_SUCCESS;
}

static CUresult f_cuStreamDestroy_v2(CUstream stream)
{
	HOLD();
	CUstream s = find(stream, false);
	if (!s || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	s->dying = true;
	s->used = s->count > 0;
	return CUDA_SUCCESS;
}

static void unsafe(void);

static CUresult f_cuEventCreate(CUevent *event, unsigned int flags)
{
	HOLD();
	if (failing("cuEventCreate"))
		return streams_fake.with;
	unsafe();
	CHECK(flags == CU_EVENT_DISABLE_TIMING);
	*event = calloc(1, sizeof **event);
	(*event)->context = current();
	streams_fake.events++;
	streams_fake.created++;
	return CUDA_SUCCESS;
}

// As with the driver's, what was submitted with it is done all the same.
static CUresult f_cuEventDestroy_v2(CUevent event)
{
	HOLD();
	event->destroyed = true;
	drop_event(event);
	streams_fake.events--;
	return CUDA_SUCCESS;
}

// unsafe is for calls that spoil a capture of somebody's.
static void unsafe(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	if (streams_fake.capturing && mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		streams_fake.spoilt = true;
	REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static CUresult f_cuEventQuery(CUevent event)
{
	unsafe();
	HOLD();
	return is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult f_cuEventSynchronize(CUevent event)
{
	HOLD();
	wait_until(is_done, event);
	return CUDA_SUCCESS;
}

// The driver's pools.

static CUmemoryPool new_pool(const CUmemPoolProps *p, bool standard)
{
	for (int i = 0; i < POOLS; i++) {
		if (pools[i].used)
			continue;
		pools[i] = (struct CUmemPoolHandle_st){.used = true, .standard = standard, .p = *p};
		for (int a = 1; a <= 3; a++)
			pools[i].attribute[a] = 1;
		return &pools[i];
	}
	abort();
}

static bool known(CUmemoryPool pool)
{
	return pool >= pools && pool < pools + POOLS && pool->used;
}

static CUresult f_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	unsafe();
	HOLD();
	for (int i = 0; i < POOLS; i++) {
		if (pools[i].used && pools[i].standard && pools[i].p.location.id == device) {
			*pool = &pools[i];
			return CUDA_SUCCESS;
		}
	}
	CUmemPoolProps p = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, device}, NULL, 0, 0, {0}};
	*pool = new_pool(&p, true);
	return CUDA_SUCCESS;
}

static CUresult f_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	unsafe();
	{
		HOLD();
		*pool = current_pool[device];
		if (known(*pool))
			return CUDA_SUCCESS;
	}
	return f_cuDeviceGetDefaultMemPool(pool, device);
}

static CUresult f_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	HOLD();
	if (!known(pool))
		return CUDA_ERROR_INVALID_VALUE;
	current_pool[device] = pool;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	return type == CU_MEM_ALLOCATION_TYPE_PINNED ? f_cuDeviceSetMemPool(location->id, pool) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *p)
{
	HOLD();
	if (!pool || !p || p->location.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = new_pool(p, false);
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolDestroy(CUmemoryPool pool)
{
	HOLD();
	if (!known(pool) || pool->standard)
		return CUDA_ERROR_INVALID_VALUE;
	pool->used = false;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute a, void *value)
{
	HOLD();
	if (!known(pool) || a < 1 || a > 8 || a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || a == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	pool->attribute[a] = a <= 3 ? (cuuint64_t)*(int *)value : *(cuuint64_t *)value;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute a, void *value)
{
	unsafe();
	HOLD();
	if (!known(pool) || a < 1 || a > 8)
		return CUDA_ERROR_INVALID_VALUE;
	if (a <= 3)
		*(int *)value = (int)pool->attribute[a];
	else
		*(cuuint64_t *)value = pool->attribute[a];
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	HOLD();
	(void)keep;
	return known(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count)
{
	HOLD();
	if (!known(pool) || !list || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || list[i].location.id >= fake.devices)
			return CUDA_ERROR_INVALID_DEVICE;
	for (size_t i = 0; i < count; i++)
		pool->access[list[i].location.id] = list[i].flags;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
						   unsigned long long flags)
{
	HOLD();
	(void)flags;
	if (!known(pool) || !(pool->p.handleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)shareable = 1;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type,
						     unsigned long long flags)
{
	HOLD();
	(void)shareable, (void)flags;
	CUmemPoolProps p = {CU_MEM_ALLOCATION_TYPE_PINNED, type, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, NULL, 0, 0, {0}};
	*pool = new_pool(&p, false);
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
	(void)address;
	memset(data, 1, sizeof *data);
	return CUDA_SUCCESS;
}

// The driver's own allocations of pools: numbers.
static CUresult own_alloc(CUdeviceptr *address, size_t size, bool pool_known)
{
	static _Atomic CUdeviceptr next = 0x110000000000;
	if (!address || size == 0 || !pool_known)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_now() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	size_t available, total;
	REAL(cuMemGetInfo)(&available, &total);
	if (size > available)
		return CUDA_ERROR_OUT_OF_MEMORY;
	streams_fake.served++;
	*address = next += 1 << 20;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemAllocAsync(CUdeviceptr *a, size_t n, CUstream s) { (void)s; return own_alloc(a, n, true); }
static CUresult f_cuMemAllocAsync_ptsz(CUdeviceptr *a, size_t n, CUstream s) { (void)s; return own_alloc(a, n, true); }
static CUresult f_cuMemAllocFromPoolAsync(CUdeviceptr *a, size_t n, CUmemoryPool p, CUstream s) { (void)s; return own_alloc(a, n, known(p)); }
static CUresult f_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *a, size_t n, CUmemoryPool p, CUstream s) { (void)s; return own_alloc(a, n, known(p)); }

static CUresult f_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	(void)stream;
	if (address < 0x110000000000 || address >= 0x120000000000)
		return CUDA_ERROR_INVALID_VALUE;
	streams_fake.freed++;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
	return f_cuMemFreeAsync(address, stream);
}

#define FAKES(X)                                                                                                              \
	X(cuCtxSynchronize) X(cuStreamGetId) X(cuStreamGetId_ptsz) X(cuStreamGetCtx) X(cuStreamGetCtx_ptsz)                   \
	X(cuStreamIsCapturing) X(cuStreamIsCapturing_ptsz) X(cuStreamWaitEvent) X(cuStreamWaitEvent_ptsz) X(cuEventRecord)    \
	X(cuEventRecord_ptsz) X(cuEventRecordWithFlags) X(cuStreamSynchronize) X(cuStreamSynchronize_ptsz) X(cuStreamQuery) X(cuStreamCreate)           \
	X(cuStreamDestroy_v2) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventQuery) X(cuEventSynchronize)                     \
	X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuMemSetMemPool) X(cuMemPoolCreate)        \
	X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) X(cuMemPoolGetAttribute) X(cuMemPoolTrimTo) X(cuMemPoolSetAccess)        \
	X(cuMemPoolExportToShareableHandle) X(cuMemPoolImportFromShareableHandle) X(cuMemPoolExportPointer) X(cuMemAllocAsync) \
	X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz) X(cuMemFreeAsync)                  \
	X(cuMemFreeAsync_ptsz)

#define TYPED(name) static __typeof__(name) *const t_##name = f_##name;
FAKES(TYPED)

void streams_start(void)
{
#define FILL(name) hetcuda_real[HETCUDA_INDEX_##name] = (void *)(uintptr_t)t_##name;
	FAKES(FILL)
}
