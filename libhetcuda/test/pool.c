// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Stream-ordered memory with all of the library, over the stand-in: threads that use
// it while the process is parked again and again, a child, and what a pair of calls
// costs.
//
//     pool [TEST...]
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "test.h"

#define MIB ((size_t)1 << 20)
#define GIVES(code, call) \
	do { \
		CUresult r_ = (call); \
		CHECK(r_ == (code), "%s: error %d", #call, (int)r_); \
	} while (0)
#define CU(call) GIVES(CUDA_SUCCESS, call)

enum { THREADS = 3, STEPS = 500, LIVE = 8, PARKS = 5 };

static CUcontext context;
static CUmemoryPool pool;
static struct parked self;

static void start(void)
{
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
}

static cuuint64_t value(CUmemPool_attribute a)
{
	cuuint64_t v;
	CU(cuMemPoolGetAttribute(pool, a, &v));
	return v;
}

// In a park goes what is used, and nothing that is free.
static void test_park(void)
{
	CUdeviceptr used, unused;
	CUstream s;
	char back[16] = "";
	cuuint64_t most = UINT64_MAX;
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	CU(cuStreamCreate(&s, 0));
	CU(cuMemAllocAsync(&used, 5 * MIB, s));
	CU(cuMemAllocAsync(&unused, 50 * MIB, s));
	CU(cuMemFreeAsync(unused, s));
	CU(cuMemcpyHtoD(used + 5 * MIB - 16, "what is in there", 16));
	CHECK(value(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 82 * MIB && value(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * MIB);
	park_self(&self);
	CHECK(self.parcel.count == 1 && self.parcel.chunks[0].size == 32 * MIB, "%u chunks", self.parcel.count);
	unpark_self(&self);
	CHECK(value(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 32 * MIB);
	CU(cuMemcpyDtoH(back, used + 5 * MIB - 16, 16));
	CHECK(!memcmp(back, "what is in there", 16));
	CU(cuMemFreeAsync(used, s));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(used, s));
	CU(cuStreamDestroy(s));
	park_self(&self);
	CHECK(self.parcel.count == 0);
	unpark_self(&self);
	most = 0;
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
}

struct live {
	CUdeviceptr address;
	size_t words;
	uint32_t tag;
};

// What a stream has written into its piece has to be there when the piece is freed,
// whoever had it before and gets it next.
static void *use(void *argument)
{
	uint32_t seed = 77 + *(unsigned *)argument, tag = *(unsigned *)argument << 24, seen[2];
	CUstream s[2];
	struct live live[LIVE] = {0};
	CUresult r;
	CU(cuCtxSetCurrent(context));
	for (int i = 0; i < 2; i++)
		CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	for (int step = 0; step < STEPS + LIVE; step++) {
		seed = seed * 1103515245 + 12345;
		unsigned i = step < STEPS ? (seed >> 16) % LIVE : (unsigned)(step - STEPS);
		struct live *l = &live[i];
		CUstream its = s[i % 2];
		if (l->address) {
			CU(cuMemcpyDtoHAsync(&seen[0], l->address, 4, its));
			CU(cuMemcpyDtoHAsync(&seen[1], l->address + (l->words - 1) * 4, 4, its));
			CHECK(seen[0] == l->tag && seen[1] == l->tag, "%#x and %#x, not %#x", seen[0], seen[1], l->tag);
			if (seed >> 20 & 7)
				CU(cuMemFreeAsync(l->address, its));
			else
				CU(cuMemFree(l->address));
			l->address = 0;
		} else if (step < STEPS) {
			l->words = 1 + (seed >> 8) % (seed >> 28 ? 30000 : 3000000);
			l->tag = ++tag;
			r = cuMemAllocAsync(&l->address, l->words * 4, its);
			CHECK(r == CUDA_SUCCESS, "%d", (int)r);
			CU(cuMemsetD32Async(l->address, l->tag, l->words, its));
		}
		if ((seed >> 12) % 16 == 0)
			CU(cuStreamSynchronize(its));
	}
	for (int i = 0; i < 2; i++)
		CU(cuStreamDestroy(s[i]));
	return NULL;
}

static void test_threads(void)
{
	pthread_t thread[THREADS];
	unsigned number[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		number[i] = i + 1;
		CHECK(pthread_create(&thread[i], NULL, use, &number[i]) == 0);
	}
	for (int i = 0; i < PARKS; i++) {
		park_self(&self);
		unpark_self(&self);
		sleep_ms(20);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CU(cuCtxSynchronize());
	CHECK(value(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0 && value(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

// A child has nothing of it, and says so.
static void test_fork(void)
{
	CUdeviceptr a;
	CU(cuMemAllocAsync(&a, 100, NULL));
	CU(cuMemFreeAsync(a, NULL));
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		CUdeviceptr b;
		alarm(30);
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAllocAsync(&b, 100, NULL));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemFreeAsync(a, NULL));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemPoolTrimTo(pool, 0));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuStreamSynchronize(NULL));
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "%#x", status);
	CU(cuMemAllocAsync(&a, 100, NULL));
	CU(cuMemFreeAsync(a, NULL));
}

typedef CUresult alloc_async(CUdeviceptr *, size_t, CUstream);
typedef CUresult free_async(CUdeviceptr, CUstream);

static double pair(alloc_async *take, free_async *give, CUstream s)
{
	enum { N = 300 };
	double best = 1;
	for (int round = 0; round < 5; round++) {
		double at = now();
		for (int i = 0; i < N; i++) {
			CUdeviceptr a;
			CU(take(&a, 100000, s));
			CU(give(a, s));
		}
		at = (now() - at) / N;
		best = at < best ? at : best;
	}
	CU(cuStreamSynchronize(s));
	return best;
}

// The stand-in makes a file for each allocation, which no driver does: the numbers
// are for seeing what has become slower, and say nothing of a GPU.
static void test_bench(void)
{
	CUstream s;
	CUdeviceptr first;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocAsync(&first, 100, s)); // keeps the segment
	double driver = pair((alloc_async *)theirs("cuMemAllocAsync"), (free_async *)theirs("cuMemFreeAsync"), s);
	double library = pair((alloc_async *)ours("cuMemAllocAsync"), (free_async *)ours("cuMemFreeAsync"), s);
	printf("an allocation and its free: stand-in %.2f us, libhetcuda over it %.2f us\n", driver * 1e6, library * 1e6);
	CHECK(library < 5e-3);
	CU(cuMemFreeAsync(first, s));
	CU(cuStreamDestroy(s));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {{"park", test_park}, {"threads", test_threads}, {"fork", test_fork}, {"bench", test_bench}};
	start();
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		bool wanted = argc < 2;
		for (int k = 1; k < argc; k++)
			wanted = wanted || !strcmp(argv[k], tests[i].name);
		if (!wanted)
			continue;
		double begin = now();
		tests[i].run();
		printf("%s %.2f s\n", tests[i].name, now() - begin);
		fflush(stdout);
	}
	return 0;
}
