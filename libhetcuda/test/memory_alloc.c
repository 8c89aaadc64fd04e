// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// cuMemAlloc and its kin over a driver of software: against a model, with calls
// that fail, with contexts that end.
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "block.h"
#include "chunk.h"
#include "counters.h"
#include "memory_fake.h"
#include "memory.h"
#include "overrides.h"
#include "real.h"
#include "window.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

static uint32_t seed = 12345;

static uint32_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// nothing_left checks that all memory has gone back to the driver.
static void nothing_left(void)
{
	block_trim();
	CHECK(chunk_count == 0 && chunk_bytes == 0 && !chunks);
	CHECK(fake.handles == 0 && fake.maps == 0 && fake.used[0] == 0);
	CHECK(block_stats.allocations == 0 && block_stats.asked == 0 && block_stats.held == 0);
}

static void simple(void)
{
	fake_start(1, 8 * GIB);
	fake_context(0);
	CUdeviceptr a, b, c;
	OK(hetcuda_cuMemAlloc_v2(&a, 1));
	OK(hetcuda_cuMemAlloc_v2(&b, 513));
	OK(hetcuda_cuMemAlloc_v2(&c, 3 * GIB + 5));
	CHECK(a == 0x200000000000 && b == a + 512 && c == a + 2 * MIB);
	CHECK(fake.handles == 1 + 4 && fake.maps == 5);
	memset((void *)a, 1, 1);
	memset((void *)b, 2, 513);
	memset((void *)(c + 3 * GIB - 5), 3, 10); // across two chunks
	char text[HETCUDA_TEXT];
	hetcuda_memory_describe(text);
	CHECK(strstr(text, "3 allocations, ") == text && !strstr(text, "driver"));
	CHECK(hetcuda_cuMemFree_v2(a + 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemFree_v2(c + 2 * MIB) == CUDA_ERROR_INVALID_VALUE);
	unsigned before = fake.syncs;
	OK(hetcuda_cuMemFree_v2(a));
	CHECK(fake.syncs == before + 1);
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemFree_v2(b));
	OK(hetcuda_cuMemFree_v2(c));
	CHECK(fake.handles == 1); // the slab that is kept
	nothing_left();
	OK(hetcuda_cuMemFree_v2(0));
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAlloc_v2(&a, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAlloc_v2(NULL, 1) == CUDA_ERROR_INVALID_VALUE);
	unsigned long long calls = fake.calls;
	CHECK(hetcuda_cuMemAlloc_v2(&a, 9 * GIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake.calls == calls + 1); // not one chunk after the other
	CHECK(hetcuda_cuMemAlloc_v2(&a, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	size_t pitch;
	OK(hetcuda_cuMemAllocPitch_v2(&a, &pitch, 513, 1000, 4));
	CHECK(pitch == 1024);
	memset((void *)a, 4, pitch * 1000);
	OK(hetcuda_cuMemFree_v2(a));
	CHECK(hetcuda_cuMemAllocPitch_v2(&a, &pitch, 513, 1000, 3) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemAlloc_v2(&a, 100));
	OK(hetcuda_cuMemFreeAsync(a, NULL));
	nothing_left();
}

// A model: every allocation has a pattern of its own at both ends, in memory
// that is really there; no other allocation writes there.
enum { LIVE = 400 };

struct live {
	CUdeviceptr address;
	size_t size;
	uint64_t mark;
};

static void stamp(const struct live *l, bool check)
{
	unsigned char *p = (unsigned char *)l->address;
	size_t ends[] = {0, l->size / 2, l->size - 1};
	for (size_t i = 0; i < 3; i++) {
		unsigned char want = (unsigned char)(l->mark * 31 + (l->size > 2 ? i : 0));
		if (check)
			CHECK(p[ends[i]] == want);
		else
			p[ends[i]] = want;
	}
}

static size_t random_size(void)
{
	switch (draw() % 8) {
	case 0: return 1 + draw() % (8 * MIB);
	case 1: return MIB + draw() % 5 - 2;
	case 2: return 2 * MIB;
	case 3: return 1 + draw() % 100;
	default: return 1 + draw() % (64 << 10);
	}
}

static void model(void)
{
	static struct live live[LIVE];
	fake_start(1, 8 * GIB);
	fake_context(0);
	for (int step = 0; step < 40000; step++) {
		struct live *l = &live[draw() % LIVE];
		if (l->address) {
			stamp(l, true);
			struct extent *e = block_find(l->address + draw() % l->size);
			CHECK(e && e->address == l->address && e->asked == l->size);
			CHECK(!(e = block_find(l->address + l->size)) || e->address != l->address);
			OK(hetcuda_cuMemFree_v2(l->address));
			CHECK(!block_find(l->address) || block_find(l->address)->address != l->address);
			l->address = 0;
			continue;
		}
		l->size = random_size();
		l->mark = (uint64_t)step;
		OK(hetcuda_cuMemAlloc_v2(&l->address, l->size));
		CHECK(l->address % 512 == 0 && window_has(l->address));
		CHECK(l->size < SMALL || l->address % (2 * MIB) == 0);
		stamp(l, false);
	}
	for (int i = 0; i < LIVE; i++) {
		if (!live[i].address)
			continue;
		stamp(&live[i], true);
		OK(hetcuda_cuMemFree_v2(live[i].address));
	}
	nothing_left();
	CHECK(fake.reservations == 1);
}

// 100,000 allocations at a time, freed in another order than they were made.
static void speed(void)
{
	enum { N = 100000 };
	static CUdeviceptr all[N];
	fake_start(1, 64 * GIB);
	fake_context(0);
	double t = now();
	for (int i = 0; i < N; i++)
		OK(hetcuda_cuMemAlloc_v2(&all[i], 1 + draw() % 8192));
	double made = now() - t;
	t = now();
	for (int i = 0; i < N; i++)
		CHECK(block_find(all[i] + 1 > all[i] ? all[i] : 0));
	double found = now() - t;
	for (int i = N - 1; i > 0; i--) {
		uint32_t k = draw() % (uint32_t)(i + 1);
		CUdeviceptr x = all[i];
		all[i] = all[k];
		all[k] = x;
	}
	t = now();
	for (int i = 0; i < N; i++)
		OK(hetcuda_cuMemFree_v2(all[i]));
	double freed = now() - t;
	printf("%d allocations: %.0f ns each, found in %.0f ns, freed in %.0f ns\n", N, made / N * 1e9, found / N * 1e9,
	       freed / N * 1e9);
	nothing_left();
	// Without a sanitizer 0.2 to 1 us each; a scan would take minutes.
	CHECK(made + found + freed < 20);
}

// Each call that can fail does so once, at every place; the program gets an
// error or memory of the driver's, and nothing is lost.
static void failures(void)
{
	fake_start(1, 8 * GIB);
	fake_context(0);
	static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
	static const size_t sizes[] = {100, 5 * MIB, 3 * GIB};
	for (size_t s = 0; s < 3; s++) {
		for (unsigned e = 0; e < 2; e++) {
			for (unsigned n = 1;; n++) {
				CUdeviceptr a = 0;
				fake.fail = "";
				fake.nth = n;
				fake.with = errors[e];
				CUresult r = hetcuda_cuMemAlloc_v2(&a, sizes[s]);
				bool all = fake.nth > 0;
				fake.nth = 0;
				if (r == CUDA_SUCCESS && window_has(a))
					memset((void *)a, 1, 100);
				if (r == CUDA_SUCCESS)
					OK(hetcuda_cuMemFree_v2(a));
				block_trim();
				CHECK(chunk_count == 0 && fake.handles == 0 && fake.maps == 0 && fake.used[0] == 0 && fake.driver == 0);
				if (all)
					break;
			}
		}
	}
	nothing_left();
	// A free that fails has freed nothing, and can be tried again.
	for (size_t s = 0; s < 3; s++) {
		for (unsigned n = 1; n <= 2; n++) {
			CUdeviceptr a;
			OK(hetcuda_cuMemAlloc_v2(&a, sizes[s]));
			memset((void *)a, 7, 100);
			fake.fail = n == 1 ? "cuCtxSynchronize" : "cuMemUnmap";
			fake.nth = n;
			fake.with = CUDA_ERROR_ILLEGAL_ADDRESS;
			CUresult r = hetcuda_cuMemFree_v2(a);
			bool failed = fake.nth == 0;
			fake.nth = 0;
			if (!failed)
				continue;
			CHECK(r == CUDA_ERROR_ILLEGAL_ADDRESS);
			CHECK(*(char *)a == 7);
			OK(hetcuda_cuMemFree_v2(a));
		}
	}
	nothing_left();
	// A device that says more than it can.
	CUdeviceptr a;
	fake.no_rdma = true;
	OK(hetcuda_cuMemAlloc_v2(&a, 5 * MIB));
	CHECK(window_has(a));
	OK(hetcuda_cuMemFree_v2(a));
	nothing_left();
}

static void contexts(void)
{
	fake_start(2, 8 * GIB);
	CUdeviceptr a, b, c, d;
	CUcontext one = fake_context(0), two = fake_context(0);
	OK(hetcuda_cuMemAlloc_v2(&a, 100));
	OK(hetcuda_cuMemAlloc_v2(&b, 5 * GIB));
	OK(REAL(cuCtxSetCurrent)(one));
	OK(hetcuda_cuMemAlloc_v2(&c, 100));
	OK(hetcuda_cuMemFree_v2(a)); // of a context that is not current
	OK(hetcuda_cuCtxDestroy_v2(two));
	CHECK(fake.handles == 1);
	CHECK(hetcuda_cuMemFree_v2(b) == CUDA_ERROR_INVALID_VALUE);
	memset((void *)c, 1, 100);
	// A primary context ends with its last reference.
	CUcontext primary;
	OK(REAL(cuDevicePrimaryCtxRetain)(&primary, 1));
	OK(REAL(cuDevicePrimaryCtxRetain)(&primary, 1));
	OK(REAL(cuCtxSetCurrent)(primary));
	OK(hetcuda_cuMemAlloc_v2(&d, 3 * MIB));
	CHECK(d == 0x210000000000);
	OK(hetcuda_cuDevicePrimaryCtxRelease_v2(1));
	memset((void *)d, 1, 100);
	OK(hetcuda_cuDevicePrimaryCtxRelease_v2(1));
	CHECK(fake.handles == 1);
	OK(REAL(cuDevicePrimaryCtxRetain)(&primary, 1));
	OK(REAL(cuCtxSetCurrent)(primary));
	OK(hetcuda_cuMemAlloc_v2(&d, 3 * MIB));
	OK(hetcuda_cuDevicePrimaryCtxReset_v2(1));
	CHECK(fake.handles == 1);
	// What a green one had is the primary one's when it goes.
	OK(REAL(cuDevicePrimaryCtxRetain)(&primary, 1));
	CUcontext green = fake_context(1);
	OK(hetcuda_cuMemAlloc_v2(&d, 3 * MIB));
	OK(hetcuda_cuGreenCtxDestroy((CUgreenCtx)(void *)green));
	memset((void *)d, 1, 100);
	CHECK(fake.handles == 2 && context_first()->handle == primary);
	OK(hetcuda_cuDevicePrimaryCtxRelease_v2(1));
	CHECK(fake.handles == 1);
	OK(hetcuda_cuCtxDestroy_v2(one));
	CHECK(fake.handles == 0 && context_first() == NULL);
	nothing_left();
	OK(REAL(cuCtxSetCurrent)(NULL));
	CHECK(hetcuda_cuMemAlloc_v2(&a, 5) == CUDA_ERROR_INVALID_CONTEXT);
}

static void peers(void)
{
	fake_start(3, 8 * GIB);
	CUdeviceptr old, fresh, small;
	CUcontext one = fake_context(1), zero = fake_context(0);
	OK(hetcuda_cuMemAlloc_v2(&old, 3 * MIB));
	CHECK(fake_access(old, 0) && !fake_access(old, 1));
	OK(REAL(cuCtxSetCurrent)(one));
	OK(hetcuda_cuCtxEnablePeerAccess(zero, 0));
	CHECK(fake_access(old, 0) && fake_access(old, 1) && !fake_access(old, 2));
	OK(REAL(cuCtxSetCurrent)(zero));
	OK(hetcuda_cuMemAlloc_v2(&fresh, 3 * MIB));
	OK(hetcuda_cuMemAlloc_v2(&small, 3));
	CHECK(fake_access(fresh, 1) && fake_access(small, 1));
	OK(REAL(cuCtxSetCurrent)(one));
	OK(hetcuda_cuCtxDisablePeerAccess(zero));
	CHECK(!fake_access(fresh, 1) && !fake_access(small, 1) && fake_access(small, 0));
	OK(hetcuda_cuCtxEnablePeerAccess(zero, 0));
	CHECK(fake_access(small, 1));
	OK(hetcuda_cuCtxDestroy_v2(one));
	CHECK(!fake_access(fresh, 1) && !fake_access(small, 1) && fake_access(small, 0));
	// An access that can't be granted.
	one = fake_context(1);
	fake.fail = "cuMemSetAccess";
	fake.nth = 2;
	fake.with = CUDA_ERROR_UNKNOWN;
	CHECK(hetcuda_cuCtxEnablePeerAccess(zero, 0) == CUDA_ERROR_UNKNOWN);
	CHECK(!fake_access(old, 1) && !fake_access(fresh, 1) && !fake_access(small, 1));
	OK(hetcuda_cuCtxDestroy_v2(zero));
	nothing_left();
}

// Where nothing is where we want it memory is served all the same.
static void strays(void)
{
	fake_start(1, 8 * GIB);
	fake.no_hint = true;
	fake_context(0);
	CUdeviceptr a;
	OK(hetcuda_cuMemAlloc_v2(&a, 3 * MIB));
	memset((void *)a, 1, 3 * MIB);
	CHECK(window_stray() == 1 && fake.reservations == 1 && window_has(a));
	OK(hetcuda_cuMemFree_v2(a));
	nothing_left();
}

static void capture(void)
{
	fake_start(1, 8 * GIB);
	fake_context(0);
	CUdeviceptr a, b;
	CUgraph graph;
	uint32_t count;
	char text[HETCUDA_TEXT] = "";
	OK(hetcuda_cuMemAlloc_v2(&a, 3 * MIB));
	OK(hetcuda_cuStreamBeginCapture_v2((CUstream)8, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(hetcuda_memory_quiesce(100, &count, text) < 0 && text[0]);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	OK(REAL(cuThreadExchangeStreamCaptureMode)(&mode));
	unsigned before = fake.syncs;
	OK(hetcuda_cuMemFree_v2(a));
	CHECK(fake.syncs == before && fake.used[0] == 4 * MIB); // later
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuStreamEndCapture((CUstream)8, &graph));
	OK(hetcuda_cuMemAlloc_v2(&b, 100));
	CHECK(fake.used[0] == 2 * MIB);
	OK(hetcuda_cuMemFree_v2(b));
	// A thread that is not relaxed is told what the driver would tell it;
	// one that has no part in another's capture may free.
	mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	OK(REAL(cuThreadExchangeStreamCaptureMode)(&mode));
	OK(hetcuda_cuMemAlloc_v2(&a, 3 * MIB));
	OK(hetcuda_cuStreamBeginCapture_v2((CUstream)8, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fake.fail = "cuCtxSynchronize";
	fake.nth = 1;
	fake.with = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	CHECK(hetcuda_cuMemFree_v2(a) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(hetcuda_cuStreamEndCapture((CUstream)8, &graph));
	OK(hetcuda_cuStreamBeginCapture_v2((CUstream)8, CU_STREAM_CAPTURE_MODE_RELAXED));
	before = fake.syncs;
	OK(hetcuda_cuMemFree_v2(a));
	CHECK(fake.syncs == before && fake.used[0] == 6 * MIB);
	OK(hetcuda_cuStreamEndCapture((CUstream)8, &graph));
	OK(hetcuda_cuMemFree_v2(0));
	nothing_left();
}

static void queries(void)
{
	fake_start(1, 8 * GIB);
	CUcontext one = fake_context(0), two = fake_context(0);
	CUdeviceptr a, b, c, base;
	size_t size;
	OK(hetcuda_cuMemAlloc_v2(&a, 100));
	OK(hetcuda_cuMemAlloc_v2(&b, 3 * GIB + 1));
	OK(REAL(cuCtxSetCurrent)(one));
	OK(hetcuda_cuMemAlloc_v2(&c, 700));
	OK(hetcuda_cuMemGetAddressRange_v2(&base, &size, a + 99));
	CHECK(base == a && size == 100);
	OK(hetcuda_cuMemGetAddressRange_v2(&base, NULL, b + 2 * GIB));
	CHECK(base == b);
	OK(hetcuda_cuMemGetAddressRange_v2(NULL, &size, b + 3 * GIB));
	CHECK(size == 3 * GIB + 1);
	CHECK(hetcuda_cuMemGetAddressRange_v2(&base, &size, a + 100) == CUDA_ERROR_NOT_FOUND);
	CHECK(hetcuda_cuMemGetAddressRange_v2(&base, &size, 4096) == CUDA_ERROR_NOT_FOUND);
	uint64_t id_a = 0, id_c = 0, value;
	OK(hetcuda_cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 5));
	OK(hetcuda_cuPointerGetAttribute(&id_c, CU_POINTER_ATTRIBUTE_BUFFER_ID, c + 5));
	CHECK(id_a && id_c && id_a != id_c);
	CUcontext context;
	OK(hetcuda_cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	CHECK(context == two);
	OK(hetcuda_cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, c + 699));
	CHECK(base == c);
	OK(hetcuda_cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, c + 699));
	CHECK(size == 700);
	CHECK(hetcuda_cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, c + 700) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, c) == CUDA_ERROR_INVALID_VALUE);
	struct {
		char answer;
		char beyond[7];
	} narrow = {'x', "beyond"};
	OK(hetcuda_cuPointerGetAttribute(&narrow, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, a));
	CHECK(narrow.answer == 0 && !strcmp(narrow.beyond, "beyond"));
	unsigned int type = 9, managed = 9, mapped = 9, sync = 9;
	int ordinal = 9;
	CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				      CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
	void *data[] = {&type, &ordinal, &mapped, &base};
	OK(hetcuda_cuPointerGetAttributes(4, list, data, b + 7));
	CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && mapped == 1 && base == b + 7);
	OK(hetcuda_cuPointerGetAttributes(3, list, data, b - 7));
	CHECK(type == 0 && mapped == 0);
	managed = 0;
	OK(hetcuda_cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
	CHECK(managed == 0);
	OK(hetcuda_cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	CHECK(sync == 0);
	sync = 1;
	OK(hetcuda_cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	OK(REAL(cuCtxGetFlags)(&type));
	CHECK(type & CU_CTX_SYNC_MEMOPS);
	sync = 9;
	OK(hetcuda_cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 7));
	CHECK(sync == 1);
	OK(hetcuda_cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b));
	CHECK(sync == 0);
	OK(hetcuda_cuCtxDestroy_v2(one));
	OK(hetcuda_cuCtxDestroy_v2(two));
	nothing_left();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"simple", simple},   {"model", model}, {"speed", speed},   {"failures", failures}, {"contexts", contexts},
		{"peers", peers},     {"strays", strays}, {"capture", capture}, {"queries", queries}, {0},
	};
	return run_tests(tests, argc, argv);
}
