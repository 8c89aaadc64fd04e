// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Stream-ordered memory, step by step: who gets which memory when, what pools keep,
// and what the program is told. The streams do nothing until they are told to.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "block.h"
#include "counters.h"
#include "lane.h"
#include "memory.h"
#include "overrides.h"
#include "pool.h"
#include "pools.h"
#include "real.h"
#include "stream_fake.h"
#include "window.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

static CUmemoryPool pool;
static CUstream one, two;
static CUcontext context;

static void begin(int devices, size_t memory)
{
	fake_start(devices, memory);
	streams_start();
	context = fake_context(0);
	OK(REAL(cuStreamCreate)(&one, 0));
	OK(REAL(cuStreamCreate)(&two, 0));
	OK(REAL(cuDeviceGetDefaultMemPool)(&pool, 0));
}

static cuuint64_t get(CUmemoryPool p, CUmemPool_attribute a)
{
	cuuint64_t value = 0;
	OK(hetcuda_cuMemPoolGetAttribute(p, a, &value));
	return value;
}

static void set(CUmemoryPool p, CUmemPool_attribute a, cuuint64_t value)
{
	int truth = (int)value;
	OK(hetcuda_cuMemPoolSetAttribute(p, a, a <= 3 ? (void *)&truth : (void *)&value));
}

#define RESERVED(p) get(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(p) get(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

static CUdeviceptr alloc(size_t size, CUstream s)
{
	CUdeviceptr a;
	OK(hetcuda_cuMemAllocAsync(&a, size, s));
	return a;
}

static void nothing(void *unused)
{
	(void)unused;
}

// keep gives a stream something to do.
static void keep(CUstream s)
{
	stream_work(s, false, nothing, NULL);
}

static void end(void)
{
	streams_drain();
	pools_quiesce();
	block_trim();
	CHECK(chunk_count == 0 && fake.handles == 0 && fake.maps == 0 && streams_fake.events == 0);
	CHECK(block_stats.allocations == 0 && block_stats.asked == 0 && block_stats.held == 0);
	CHECK(!lane_first());
}

static void order(void)
{
	begin(1, 8 * GIB);
	CUdeviceptr a = alloc(MIB, one), b, c;
	memset((void *)a, 1, MIB);
	CHECK(window_has(a) && a % 512 == 0 && RESERVED(pool) == 32 * MIB && USED(pool) == MIB);
	keep(one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(USED(pool) == 0);
	// The same stream has it at once, and what is left of it.
	b = alloc(MIB / 4, one);
	c = alloc(MIB / 2, one);
	CHECK(b == a && c == a + MIB / 4 && streams_fake.created == 1);
	OK(hetcuda_cuMemFreeAsync(b, one));
	OK(hetcuda_cuMemFreeAsync(c, one));
	// Side by side they are one piece again.
	CHECK(alloc(MIB, one) == a);
	OK(hetcuda_cuMemFreeAsync(a, one));
	// Another stream has it when the first has come that far, and not before.
	a = alloc(31 * MIB, one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	b = alloc(31 * MIB, two);
	CHECK(b != a && streams_fake.waits == 0);
	while (stream_step(one)) {
	}
	c = alloc(31 * MIB, two);
	CHECK(c == a && streams_fake.waits == 0);
	OK(hetcuda_cuMemFreeAsync(b, two));
	OK(hetcuda_cuMemFreeAsync(c, two));
	streams_drain();
	OK(hetcuda_cuMemPoolTrimTo(pool, 0));
	// Large ones have segments of their own, and no small one gets into them.
	a = alloc(100 * MIB + 1, one);
	CHECK(RESERVED(pool) == 102 * MIB);
	keep(one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	streams_drain();
	OK(hetcuda_cuMemPoolTrimTo(pool, SIZE_MAX)); // looks at the streams
	b = alloc(100, two);
	CHECK(b < a || b >= a + 102 * MIB);
	OK(hetcuda_cuMemFreeAsync(b, two));
	CHECK(alloc(60 * MIB, two) == a && RESERVED(pool) == (32 + 102) * MIB);
	CHECK(alloc(40 * MIB, two) == a + 60 * MIB);
	OK(hetcuda_cuMemFree_v2(a));
	OK(hetcuda_cuMemFree_v2(a + 60 * MIB));
	CHECK(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 134 * MIB && USED(pool) == 0);
	CHECK(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 100 * MIB);
	set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	CHECK(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
	OK(hetcuda_cuMemPoolTrimTo(pool, 100 * MIB));
	CHECK(RESERVED(pool) <= 134 * MIB);
	OK(hetcuda_cuMemPoolTrimTo(pool, 0));
	CHECK(RESERVED(pool) == 32 * MIB); // what a stream has freed and has not come to
	streams_drain();
	OK(hetcuda_cuMemPoolTrimTo(pool, 0));
	CHECK(RESERVED(pool) == 0 && fake.handles == 0);
	CHECK(streams_fake.served == 0);
	end();
}

// Without more memory a stream waits for another one; with its pool's leave.
static void internal(void)
{
	begin(1, 64 * MIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CUdeviceptr a = alloc(60 * MIB, one), b;
	keep(one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	CHECK(hetcuda_cuMemAllocAsync(&b, 60 * MIB, two) == CUDA_ERROR_OUT_OF_MEMORY && streams_fake.waits == 0);
	set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
	streams_fake.fail = "cuStreamWaitEvent";
	streams_fake.with = CUDA_ERROR_UNKNOWN;
	CHECK(hetcuda_cuMemAllocAsync(&b, 60 * MIB, two) == CUDA_ERROR_OUT_OF_MEMORY && USED(pool) == 0);
	b = alloc(60 * MIB, two);
	CHECK(b == a && streams_fake.waits == 1);
	CHECK(!stream_step(two)); // it waits for the other's free
	// Freed at once, without a stream: the first stream is not done with it, and
	// nobody else may have it.
	OK(hetcuda_cuMemFree_v2(b));
	set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	CHECK(hetcuda_cuMemAllocAsync(&b, 60 * MIB, two) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(alloc(60 * MIB, one) == a);
	OK(hetcuda_cuMemFreeAsync(a, one));
	streams_drain();
	// Memory that pools keep goes where it is needed: cuMemAlloc, a smaller piece.
	OK(hetcuda_cuMemAlloc_v2(&b, 50 * MIB));
	CHECK(window_has(b) && RESERVED(pool) == 0 && fake.driver == 0);
	CHECK(alloc(100, one) && RESERVED(pool) == 2 * MIB); // as little as will do
	OK(hetcuda_cuMemFree_v2(b));
	OK(hetcuda_cuCtxDestroy_v2(context));
}

// What a pool keeps is used before more is made, and when there is no more.
static void kept(void)
{
	begin(1, 64 * MIB);
	cuuint64_t all[] = {UINT64_MAX, 0};
	for (int i = 0; i < 2; i++) {
		set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
		CUdeviceptr a = alloc(60 * MIB, one), b, large;
		OK(hetcuda_cuMemFreeAsync(a, one));
		streams_drain();
		large = alloc(40 * MIB, two);
		set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, all[i]);
		b = alloc(3 * MIB, two);
		CHECK(RESERVED(pool) == (i == 0 ? 60 : 64) * MIB && large == a);
		CUdeviceptr c = alloc(3 * MIB, one);
		CHECK(RESERVED(pool) == (i == 0 ? 60 : 64) * MIB && c > a && c < a + 60 * MIB);
		memset((void *)c, 1, 3 * MIB);
		OK(hetcuda_cuMemFreeAsync(b, two));
		OK(hetcuda_cuMemFreeAsync(c, one));
		OK(hetcuda_cuMemFreeAsync(large, one));
		streams_drain();
		OK(hetcuda_cuMemPoolTrimTo(pool, 0));
		CHECK(RESERVED(pool) == 0);
	}
	end();
}

// A stream that waits for an event gets what was freed before it.
static void follows(void)
{
	begin(1, 8 * GIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CUdeviceptr a = alloc(31 * MIB, one), b = alloc(31 * MIB, one), c;
	CUevent event, next;
	CUstream third;
	OK(REAL(cuStreamCreate)(&third, 0));
	OK(REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(REAL(cuEventCreate)(&next, CU_EVENT_DISABLE_TIMING));
	keep(one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	OK(hetcuda_cuEventRecord(event, one));
	OK(hetcuda_cuMemFreeAsync(b, one)); // after the event
	OK(hetcuda_cuStreamWaitEvent(two, event, 0));
	set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
	c = alloc(31 * MIB, two);
	CHECK(c != a && c != b);
	set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
	CHECK(alloc(31 * MIB, third) != a); // this one has not waited
	// It waits for the mark all the same: an event may have got another meaning.
	unsigned waits = streams_fake.waits;
	CHECK(alloc(31 * MIB, two) == a && streams_fake.waits == waits + 1);
	CHECK(alloc(31 * MIB, two) != b);
	// By way of another stream.
	OK(hetcuda_cuMemFreeAsync(a, two));
	OK(hetcuda_cuEventRecordWithFlags(next, two, 0));
	OK(hetcuda_cuStreamWaitEvent(third, next, 0));
	CHECK(alloc(31 * MIB, third) == a);
	OK(hetcuda_cuEventRecord(event, one));
	OK(hetcuda_cuStreamWaitEvent(third, event, 0));
	CHECK(alloc(31 * MIB, third) == b);
	CHECK(hetcuda_cuStreamWaitEvent(third, event, 8) != CUDA_SUCCESS);
	OK(REAL(cuEventDestroy)(event));
	OK(REAL(cuEventDestroy)(next));
	streams_drain();
}

// What a pool may keep is looked at when the program waits.
static void threshold(void)
{
	begin(1, 8 * GIB);
	CUdeviceptr a = alloc(MIB, one), b = alloc(100 * MIB, one);
	OK(hetcuda_cuMemFreeAsync(b, one));
	CHECK(RESERVED(pool) == 132 * MIB);
	// The other stream is at work: to unmap would wait for it.
	OK(hetcuda_cuMemFreeAsync(alloc(100, two), two));
	keep(two);
	while (stream_step(one)) {
	}
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(RESERVED(pool) == 132 * MIB);
	streams_drain();
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(RESERVED(pool) == 32 * MIB && USED(pool) == MIB);
	OK(hetcuda_cuMemFreeAsync(a, two));
	streams_drain();
	CUevent event;
	OK(REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(hetcuda_cuEventSynchronize(event));
	OK(REAL(cuEventDestroy_v2)(event));
	CHECK(RESERVED(pool) == 0);
	// With a threshold so much stays.
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 40 * MIB);
	CHECK(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 40 * MIB);
	a = alloc(MIB, one);
	b = alloc(100 * MIB, one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	OK(hetcuda_cuMemFreeAsync(b, one));
	OK(hetcuda_cuCtxSynchronize());
	CHECK(RESERVED(pool) <= 40 * MIB);
	// Memory of a device on which another context is at work stays.
	OK(hetcuda_cuMemPoolTrimTo(pool, 0));
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
	OK(hetcuda_cuMemFreeAsync(alloc(MIB, one), one));
	streams_drain();
	fake_context(0);
	CUstream far;
	OK(REAL(cuStreamCreate)(&far, 0));
	OK(hetcuda_cuMemFreeAsync(alloc(100, far), far));
	keep(far);
	OK(REAL(cuCtxSetCurrent)(context));
	OK(hetcuda_cuCtxSynchronize());
	CHECK(RESERVED(pool) == 32 * MIB);
	streams_drain();
	OK(hetcuda_cuCtxSynchronize());
	CHECK(RESERVED(pool) == 0);
	end();
}

// By the environment it is all the driver's.
static void left_alone(void)
{
	setenv(HETCUDA_POOLS_ENV, "driver", 1);
	begin(1, 8 * GIB);
	CUdeviceptr a = alloc(MIB, one);
	CHECK(!window_has(a) && streams_fake.served == 1 && RESERVED(pool) == 0);
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(streams_fake.freed == 1);
	CHECK(COUNTED(async) == 1);
}

// A pool without opportunism gives the same answers however fast the streams are.
static void determined(void)
{
	begin(1, 8 * GIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	CUdeviceptr a = alloc(MIB, one), b;
	OK(hetcuda_cuMemFreeAsync(a, one));
	streams_drain();
	b = alloc(MIB, two);
	CHECK(b != a);
	OK(hetcuda_cuStreamSynchronize(two));
	CHECK(alloc(MIB, two) != a);
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(alloc(MIB, two) == a);
	OK(hetcuda_cuMemFree_v2(a));
	OK(hetcuda_cuMemFreeAsync(b, one));
	OK(hetcuda_cuMemFreeAsync(b + MIB, one));
	OK(hetcuda_cuCtxSynchronize());
	CHECK(alloc(4 * MIB, two) == a);
	OK(hetcuda_cuMemFreeAsync(a, two));
	end();
}

static void wrong(void)
{
	begin(1, 8 * GIB);
	CUdeviceptr a = alloc(1000, one), b;
	CHECK(hetcuda_cuMemFreeAsync(a + 512, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemFree_v2(a + 512) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemFreeAsync(a, (CUstream)77) != CUDA_SUCCESS);
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(hetcuda_cuMemFreeAsync(a, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemFreeAsync(a, two) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAllocAsync(NULL, 5, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAllocAsync(&b, 0, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAllocAsync(&b, SIZE_MAX, one) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(hetcuda_cuMemAllocAsync(&b, 9 * GIB, one) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(hetcuda_cuMemAllocFromPoolAsync(&b, 5, (CUmemoryPool)77, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAllocFromPoolAsync(&b, 5, NULL, one) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
	CHECK(window_has(alloc(5, one))); // which was not destroyed
	// Either kind is freed by either call.
	OK(hetcuda_cuMemAlloc_v2(&b, 100));
	OK(hetcuda_cuMemFreeAsync(b, one));
	CHECK(hetcuda_cuMemFreeAsync(b, one) == CUDA_ERROR_INVALID_VALUE);
	a = alloc(100, two);
	OK(hetcuda_cuMemFree_v2(a));
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
	OK(REAL(cuCtxSetCurrent)(NULL));
	CHECK(hetcuda_cuMemAllocAsync(&a, 5, NULL) == CUDA_ERROR_INVALID_CONTEXT);
}

static void queries(void)
{
	begin(2, 8 * GIB);
	CUdeviceptr a = alloc(700, one), base;
	size_t size;
	OK(hetcuda_cuMemGetAddressRange_v2(&base, &size, a + 600));
	CHECK(base == a && size == 700);
	CHECK(hetcuda_cuMemGetAddressRange_v2(&base, &size, a + 700) == CUDA_ERROR_NOT_FOUND);
	CUmemoryPool p;
	OK(hetcuda_cuPointerGetAttribute(&p, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
	CHECK(p == pool);
	CUcontext c = context;
	int device = 9, type = 9;
	CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {&c, &device, &type, &size};
	OK(hetcuda_cuPointerGetAttributes(4, list, data, a + 7));
	CHECK(!c && device == 0 && type == CU_MEMORYTYPE_DEVICE && size == 700);
	unsigned int no = 0;
	OK(hetcuda_cuPointerGetAttribute(&no, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
	CHECK(no == 0);
	CUmemPoolPtrExportData exported;
	CHECK(hetcuda_cuMemPoolExportPointer(&exported, a) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(hetcuda_cuPointerGetAttribute(&p, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a) == CUDA_ERROR_INVALID_VALUE);
	char text[HETCUDA_TEXT];
	a = alloc(100, one);
	hetcuda_memory_describe(text);
	CHECK(strstr(text, "1 allocations, 100 bytes") == text && !strstr(text, "stream-ordered"));
	OK(hetcuda_cuMemFreeAsync(a, one));
	end();
}

static CUmemoryPool make(CUmemPoolProps p)
{
	CUmemoryPool made;
	p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	OK(hetcuda_cuMemPoolCreate(&made, &p));
	return made;
}

static const CUmemLocation device0 = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, device1 = {CU_MEM_LOCATION_TYPE_DEVICE, 1};

static void pools(void)
{
	begin(2, 8 * GIB);
	CUdeviceptr a, b;
	CUmemoryPool mine = make((CUmemPoolProps){.location = device0, .maxSize = 5 * MIB});
	OK(hetcuda_cuMemAllocFromPoolAsync(&a, 4 * MIB, mine, one));
	CHECK(window_has(a) && RESERVED(mine) == 4 * MIB);
	unsigned served = streams_fake.served;
	CHECK(hetcuda_cuMemAllocFromPoolAsync(&b, 4 * MIB, mine, one) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(streams_fake.served == served);
	// A device may take another pool, and takes its own again when that is gone.
	CUmemoryPool other = make((CUmemPoolProps){.location = device0});
	CHECK(alloc(5, one) && USED(other) == 0);
	OK(hetcuda_cuDeviceSetMemPool(0, other));
	b = alloc(5 * MIB, one);
	CHECK(USED(other) == 5 * MIB);
	OK(hetcuda_cuMemPoolDestroy(other));
	CHECK(USED(pool) == 512 && alloc(5, one) && USED(pool) == 1024);
	memset((void *)b, 1, 5 * MIB); // it lives until it is freed
	size_t handles = fake.handles;
	OK(hetcuda_cuMemFreeAsync(b, one));
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(fake.handles == handles - 1);
	// A new pool has the handle of one whose memory is in use.
	CUmemoryPool again = make((CUmemPoolProps){.location = device0});
	OK(hetcuda_cuMemAllocFromPoolAsync(&b, 3 * MIB, again, one));
	OK(hetcuda_cuMemPoolDestroy(again));
	other = make((CUmemPoolProps){.location = device0});
	CHECK(other == again && USED(other) == 0);
	OK(hetcuda_cuMemFreeAsync(b, one));
	CHECK(USED(other) == 0 && RESERVED(other) == 0);
	OK(hetcuda_cuMemPoolDestroy(other));
	CHECK(hetcuda_cuMemPoolDestroy(other) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuStreamSynchronize(one));
	// Memory of another device than the stream's.
	CUmemoryPool far = make((CUmemPoolProps){.location = device1});
	OK(hetcuda_cuMemAllocFromPoolAsync(&b, 100, far, one));
	CHECK(fake_access(b, 1) && !fake_access(b, 0));
	CUmemAccessDesc both[] = {{device0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	OK(hetcuda_cuMemPoolSetAccess(far, both, 1));
	CHECK(fake_access(b, 1) && fake_access(b, 0));
	CUdeviceptr c;
	OK(hetcuda_cuMemAllocFromPoolAsync(&c, 10 * MIB, far, one));
	CHECK(fake_access(c, 0));
	both[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	fake.fail = "cuMemSetAccess";
	fake.nth = 2;
	fake.with = CUDA_ERROR_UNKNOWN;
	CHECK(hetcuda_cuMemPoolSetAccess(far, both, 1) == CUDA_ERROR_UNKNOWN);
	CHECK(fake_access(b, 0) && fake_access(c, 0));
	OK(hetcuda_cuMemPoolSetAccess(far, both, 1));
	CHECK(!fake_access(b, 0) && !fake_access(c, 0) && fake_access(b, 1));
	CUmemAccessDesc no[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 7}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
	CHECK(hetcuda_cuMemPoolSetAccess(far, no, 1) == CUDA_ERROR_INVALID_DEVICE);
	// The driver's: what the host has, what can be shared, what is for hardware.
	served = streams_fake.served;
	CUmemPoolProps drivers[] = {{.location = {CU_MEM_LOCATION_TYPE_HOST, 0}},
				    {.location = device0, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
				    {.location = device0, .usage = 2}};
	for (int i = 0; i < 3; i++) {
		CUmemoryPool p = make(drivers[i]);
		OK(hetcuda_cuMemAllocFromPoolAsync(&b, 5, p, one));
		CHECK(!window_has(b) && streams_fake.served == ++served);
		OK(hetcuda_cuMemFreeAsync(b, two));
		CHECK(streams_fake.freed == (unsigned)i + 1);
		if (i == 1) {
			uint32_t count;
			char text[HETCUDA_TEXT] = "";
			int fd;
			CUmemoryPool imported;
			OK(hetcuda_cuMemPoolExportToShareableHandle(&fd, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
			OK(hetcuda_cuMemPoolExportToShareableHandle(&fd, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
			CHECK(hetcuda_memory_quiesce(1000, &count, text) < 0 && strstr(text, "1 exported"));
			OK(hetcuda_cuMemPoolDestroy(p));
			OK(hetcuda_cuMemPoolImportFromShareableHandle(&imported, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
			CHECK(hetcuda_memory_quiesce(1000, &count, text) < 0 && strstr(text, "1 pieces imported, 0 exported"));
			OK(hetcuda_cuMemAllocFromPoolAsync(&b, 5, imported, one));
			CHECK(!window_has(b) && streams_fake.served == ++served);
			OK(hetcuda_cuMemPoolDestroy(imported));
			continue;
		}
		OK(hetcuda_cuMemPoolDestroy(p));
	}
	CHECK(COUNTED(exported) == 0 && COUNTED(imported) == 0 && COUNTED(async) == 4);
	OK(hetcuda_cuMemFreeAsync(a, one));
	OK(hetcuda_cuMemPoolDestroy(mine));
	CUmemLocation zero = device0;
	OK(hetcuda_cuMemSetMemPool(&zero, CU_MEM_ALLOCATION_TYPE_PINNED, far));
	c = alloc(100, one);
	CHECK(fake_access(c, 1) && !fake_access(c, 0));
}

// What is captured is the driver's; beside it, everything goes on.
static void capture(void)
{
	begin(1, 8 * GIB);
	CUdeviceptr a = alloc(100, one), b;
	OK(hetcuda_cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_GLOBAL));
	streams_fake.capturing = two;
	b = alloc(100, two);
	CHECK(!window_has(b) && streams_fake.served == 1);
	CHECK(hetcuda_cuMemFreeAsync(a, two) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemFreeAsync(b, two));
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(alloc(100, one) == a);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	OK(REAL(cuThreadExchangeStreamCaptureMode)(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL); // as it was
	OK(hetcuda_cuMemFreeAsync(alloc(40 * MIB, one), one));
	keep(one);
	OK(hetcuda_cuMemFreeAsync(alloc(40 * MIB, NULL), NULL));
	CHECK(!streams_fake.spoilt);
	streams_fake.capturing = NULL;
	CUgraph graph;
	OK(hetcuda_cuStreamEndCapture(two, &graph));
	OK(hetcuda_cuMemFreeAsync(a, two));
	end();
}

// The first allocation of all, in a stream that is being captured.
static void first_captured(void)
{
	begin(1, 8 * GIB);
	OK(hetcuda_cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_GLOBAL));
	streams_fake.capturing = two;
	CUdeviceptr a = alloc(100, two);
	CHECK(!window_has(a) && streams_fake.served == 1 && !streams_fake.spoilt);
	OK(hetcuda_cuMemFreeAsync(a, two));
	CHECK(!streams_fake.spoilt);
	streams_fake.capturing = NULL;
	CUgraph graph;
	OK(hetcuda_cuStreamEndCapture(two, &graph));
	end();
}

static void *other_thread(void *p)
{
	CUdeviceptr *a = p;
	OK(REAL(cuCtxSetCurrent)(context));
	OK(hetcuda_cuMemAllocAsync_ptsz(&a[1], MIB, NULL));
	OK(hetcuda_cuMemFreeAsync_ptsz(a[1], NULL));
	return NULL;
}

// No stream is one of the context's, or of each thread's, and those are not the same.
static void defaults(void)
{
	begin(1, 8 * GIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CUdeviceptr a[2], b;
	pthread_t thread;
	OK(hetcuda_cuMemAllocAsync_ptsz(&a[0], MIB, NULL));
	stream_work(NULL, true, nothing, NULL);
	OK(hetcuda_cuMemFreeAsync_ptsz(a[0], NULL));
	CHECK(pthread_create(&thread, NULL, other_thread, a) == 0);
	pthread_join(thread, NULL);
	CHECK(a[1] != a[0]); // another stream
	b = alloc(MIB, NULL);
	CHECK(b != a[0] && b != a[1]);
	OK(hetcuda_cuMemFreeAsync(b, CU_STREAM_LEGACY)); // the same one
	CHECK(alloc(MIB, CU_STREAM_LEGACY) == b);
	OK(hetcuda_cuMemFreeAsync(b, NULL));
	CHECK(alloc(MIB, CU_STREAM_PER_THREAD) == a[0]);
	OK(hetcuda_cuMemFreeAsync_ptsz(a[0], CU_STREAM_PER_THREAD));
	OK(hetcuda_cuStreamSynchronize_ptsz(NULL));
	OK(hetcuda_cuMemAllocAsync_ptsz(&b, 2 * MIB, NULL));
	OK(hetcuda_cuMemFreeAsync_ptsz(b, NULL));
	end();
}

static void *short_lived(void *unused)
{
	CUdeviceptr a;
	OK(REAL(cuCtxSetCurrent)(context));
	OK(hetcuda_cuMemAllocAsync_ptsz(&a, 100, NULL));
	OK(hetcuda_cuMemFreeAsync_ptsz(a, NULL));
	return unused;
}

// Threads that come and go leave no lane each, and no event.
static void many(void)
{
	unsigned lanes = 0;
	begin(1, 8 * GIB);
	for (int i = 0; i < 400; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, short_lived, NULL) == 0);
		pthread_join(thread, NULL);
		streams_drain();
		streams_forget();
	}
	for (const struct lane *l = lane_first(); l; l = lane_next(l))
		lanes++;
	CHECK(lanes < 70 && streams_fake.events < 70);
	end();
}

// Streams and contexts that end take nothing with them that is somebody's.
static void ends(void)
{
	begin(1, 8 * GIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	CUdeviceptr a = alloc(31 * MIB, one), b = alloc(MIB, one);
	memset((void *)b, 5, MIB);
	keep(one);
	OK(hetcuda_cuMemFreeAsync(a, one));
	OK(hetcuda_cuStreamDestroy_v2(one));
	CHECK(alloc(31 * MIB, two) != a); // its work goes on
	streams_drain();
	CHECK(alloc(31 * MIB, two) == a);
	CHECK(hetcuda_cuStreamDestroy_v2((CUstream)77) == CUDA_ERROR_INVALID_HANDLE);
	OK(hetcuda_cuMemFreeAsync(a, two));
	CUcontext second = fake_context(0);
	CUstream s;
	OK(REAL(cuStreamCreate)(&s, 0));
	CUdeviceptr c = alloc(3 * MIB, s);
	stream_work(s, false, nothing, NULL);
	OK(hetcuda_cuMemFreeAsync(c, s));
	unsigned events = streams_fake.events;
	OK(hetcuda_cuCtxDestroy_v2(second));
	CHECK(streams_fake.events == events); // they went with the context
	OK(REAL(cuCtxSetCurrent)(context));
	CHECK(alloc(3 * MIB, two) == c);
	CHECK(*(char *)b == 5 && *(char *)(b + MIB - 1) == 5);
	OK(hetcuda_cuMemFree_v2(b));
}

// Each call that can fail does so once, at every place.
static void failures(void)
{
	begin(1, 8 * GIB);
	static const char *const calls[] = {"cuEventCreate", "cuEventRecord", "cuStreamGetCtx"};
	for (int i = 0; i < 3; i++) {
		streams_fake.fail = calls[i];
		streams_fake.with = CUDA_ERROR_UNKNOWN;
		CUdeviceptr a = alloc(MIB, one);
		if (window_has(a))
			OK(hetcuda_cuMemFreeAsync(a, one)); // the stream is waited for instead
		CHECK(!streams_fake.fail || i < 2);
		CHECK(USED(pool) == 0);
		streams_fake.fail = NULL;
		pools_quiesce();
	}
	// A stream of which the driver tells nothing is waited for.
	CUdeviceptr other = alloc(MIB, one);
	keep(two);
	streams_fake.fail = "cuStreamGetCtx";
	OK(hetcuda_cuMemFreeAsync(other, two));
	CHECK(!streams_fake.fail && !stream_step(two) && USED(pool) == 0);
	pools_quiesce();
	CUdeviceptr a = alloc(MIB, one);
	*(char *)a = 3;
	streams_fake.fail = "cuEventRecord";
	OK(hetcuda_cuMemFreeAsync(a, one));
	CHECK(USED(pool) == 0);
	// And where even that fails, nothing is freed.
	a = alloc(MIB, one);
	streams_fake.lasting = true;
	streams_fake.fail = "cu";
	CHECK(hetcuda_cuMemFreeAsync(a, one) == CUDA_ERROR_UNKNOWN && USED(pool) == MIB);
	streams_fake.fail = NULL;
	streams_fake.lasting = false;
	OK(hetcuda_cuMemFreeAsync(a, one));
	end();
	for (unsigned e = 0; e < 2; e++) {
		for (unsigned n = 1;; n++) {
			fake.fail = "";
			fake.nth = n;
			fake.with = e ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
			CUresult r = hetcuda_cuMemAllocAsync(&a, 3 * GIB, one);
			bool all = fake.nth > 0;
			fake.nth = 0;
			if (r == CUDA_SUCCESS && window_has(a))
				memset((void *)a, 1, 100);
			if (r == CUDA_SUCCESS)
				OK(hetcuda_cuMemFreeAsync(a, one));
			OK(hetcuda_cuStreamSynchronize(one));
			CHECK(fake.handles == 0 && fake.maps == 0 && chunk_count == 0);
			if (all)
				break;
		}
	}
	// A release that fails is tried again.
	OK(hetcuda_cuMemFreeAsync(alloc(MIB, one), one));
	fake.fail = "cuMemUnmap";
	fake.nth = 1;
	fake.with = CUDA_ERROR_UNKNOWN;
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(RESERVED(pool) == 32 * MIB);
	OK(hetcuda_cuStreamSynchronize(one));
	CHECK(RESERVED(pool) == 0);
	end();
}

// At a park what is free goes, what is used goes along, and no event is left.
static void park(void)
{
	begin(1, 8 * GIB);
	enum { N = 40 };
	static CUdeviceptr used[N];
	struct hetcuda_chunk taken[N];
	int fds[N];
	uint32_t count;
	char text[HETCUDA_TEXT];
	CUdeviceptr large = alloc(100 * MIB, two), idle = alloc(200 * MIB, one);
	for (int i = 0; i < N; i++) {
		used[i] = alloc(MIB, i % 2 ? one : two);
		memset((void *)used[i], i, MIB);
		keep(one);
	}
	memset((void *)large, 99, 100 * MIB);
	for (int i = 0; i < N; i += 4)
		OK(hetcuda_cuMemFreeAsync(used[i], one));
	OK(hetcuda_cuMemFreeAsync(idle, one));
	for (int round = 0; round < 3; round++) {
		OK(hetcuda_memory_quiesce(1000, &count, text));
		CHECK(streams_fake.events == 0 && !lane_first());
		CHECK(count == 3 && chunk_bytes == (2 * 32 + 100) * MIB);
		for (uint32_t i = 0; i < count; i++)
			OK(hetcuda_memory_export(i, &taken[i], &fds[i], text));
		OK(hetcuda_memory_commit(text));
		CHECK(fake.handles == 0 && fake.maps == 0);
		for (uint32_t i = 0; i < count; i++) {
			OK(hetcuda_memory_take(&taken[i], fds[i], text));
			close(fds[i]);
		}
		OK(hetcuda_memory_take_finish(&(uint32_t){0}, text));
		for (int i = 0; i < N; i++)
			CHECK(i % 4 == 0 || (*(char *)used[i] == i && *(char *)(used[i] + MIB - 1) == i));
		CHECK(*(char *)large == 99 && *(char *)(large + 100 * MIB - 1) == 99);
		// What was free is free.
		CUdeviceptr a = alloc(MIB, two);
		CHECK(RESERVED(pool) == (2 * 32 + 100) * MIB);
		OK(hetcuda_cuMemFreeAsync(a, one));
	}
	for (int i = 0; i < N; i++)
		if (i % 4)
			OK(hetcuda_cuMemFreeAsync(used[i], two));
	OK(hetcuda_cuMemFree_v2(large));
	end();
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// What a pair of calls costs without a driver's time; for regressions only.
static void speed(void)
{
	enum { N = 200000, LIVE = 1000 };
	begin(1, 8 * GIB);
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	static CUdeviceptr live[LIVE];
	for (int i = 0; i < LIVE; i++)
		live[i] = alloc(1000 + 512 * (size_t)(i % 50), i % 2 ? one : two);
	double t = now();
	for (int i = 0; i < N; i++) {
		OK(hetcuda_cuMemFreeAsync(live[i % LIVE], i % 2 ? one : two));
		stream_step(i % 2 ? one : two);
		live[i % LIVE] = alloc(1000 + 512 * (size_t)(i * 7 % 50), i % 2 ? one : two);
	}
	double pair = (now() - t) / N;
	printf("a pair of calls with %d pieces in use: %.0f ns, %u events\n", LIVE, pair * 1e9, streams_fake.created);
	CHECK(pair < 100e-6 && streams_fake.created < 200);
	for (int i = 0; i < LIVE; i++)
		OK(hetcuda_cuMemFree_v2(live[i]));
	end();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"order", order},       {"internal", internal}, {"follows", follows}, {"kept", kept}, {"threshold", threshold}, {"determined", determined}, {"left_alone", left_alone},
		{"wrong", wrong},       {"queries", queries},   {"pools", pools},         {"capture", capture},
		{"first_captured", first_captured},
		{"defaults", defaults}, {"many", many}, {"ends", ends},         {"failures", failures},   {"park", park},
		{"speed", speed},       {0},
	};
	return run_tests(tests, argc, argv);
}
