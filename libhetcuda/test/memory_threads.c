// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Threads that allocate and free at once, while contexts come and go, access is
// given and taken, and the driver runs out of memory now and then.
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "block.h"
#include "chunk.h"
#include "handles.h"
#include "memory_fake.h"
#include "overrides.h"
#include "real.h"
#include "window.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

enum { THREADS = 4, STEPS = 4000, LIVE = 40 };

static CUcontext shared, user;

static uint32_t draw(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

static void *allocate(void *argument)
{
	uint32_t seed = 77 + *(unsigned *)argument;
	struct {
		CUdeviceptr address;
		size_t size;
	} live[LIVE] = {0};
	OK(REAL(cuCtxSetCurrent)(shared));
	for (int step = 0; step < STEPS + LIVE; step++) {
		unsigned i = step < STEPS ? draw(&seed) % LIVE : (unsigned)(step - STEPS);
		if (live[i].address) {
			unsigned char *p = (unsigned char *)live[i].address;
			if (window_has(live[i].address))
				CHECK(p[0] == (unsigned char)i && p[live[i].size - 1] == (unsigned char)i);
			OK(hetcuda_cuMemFree_v2(live[i].address));
			live[i].address = 0;
		} else if (step < STEPS) {
			live[i].size = draw(&seed) % 20 ? 1 + draw(&seed) % 20000 : 1 + draw(&seed) % (6 * MIB);
			CUresult r = hetcuda_cuMemAlloc_v2(&live[i].address, live[i].size);
			CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
			if (r != CUDA_SUCCESS)
				live[i].address = 0;
			else if (window_has(live[i].address))
				memset((void *)live[i].address, (int)i, live[i].size);
		}
	}
	return NULL;
}

static void *come_and_go(void *argument)
{
	uint32_t seed = 5;
	(void)argument;
	for (int step = 0; step < 200; step++) {
		CUdeviceptr a;
		CUcontext c = fake_context(0);
		for (int i = 0; i < 10; i++)
			if (hetcuda_cuMemAlloc_v2(&a, 1 + draw(&seed) % (2 * MIB)) == CUDA_SUCCESS && !window_has(a))
				OK(hetcuda_cuMemFree_v2(a)); // the driver's, which this one keeps
		OK(hetcuda_cuCtxDestroy_v2(c));
		OK(REAL(cuCtxSetCurrent)(user));
		OK(hetcuda_cuCtxEnablePeerAccess(shared, 0));
		OK(hetcuda_cuCtxDisablePeerAccess(shared));
	}
	return NULL;
}

static void *map_and_unmap(void *argument)
{
	CUdeviceptr va;
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
	};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	(void)argument;
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	for (int step = 0; step < 500; step++) {
		CUmemGenericAllocationHandle h, again;
		OK(hetcuda_cuMemCreate(&h, 4 * MIB, &prop, 0));
		OK(hetcuda_cuMemMap(va, 4 * MIB, 0, h, 0));
		OK(hetcuda_cuMemSetAccess(va, 4 * MIB, &access, 1));
		OK(hetcuda_cuMemRelease(h));
		OK(hetcuda_cuMemRetainAllocationHandle(&again, (void *)va));
		OK(hetcuda_cuMemUnmap(va, 4 * MIB));
		OK(hetcuda_cuMemRelease(again));
	}
	return NULL;
}

static void threads(void)
{
	fake_start(2, 400 * MIB);
	shared = fake_context(0);
	user = fake_context(1);
	pthread_t thread[THREADS + 2];
	unsigned number[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		number[i] = i;
		CHECK(pthread_create(&thread[i], NULL, allocate, &number[i]) == 0);
	}
	CHECK(pthread_create(&thread[THREADS], NULL, come_and_go, NULL) == 0);
	CHECK(pthread_create(&thread[THREADS + 1], NULL, map_and_unmap, NULL) == 0);
	for (int i = 0; i < THREADS + 2; i++)
		pthread_join(thread[i], NULL);
	block_trim();
	CHECK(fake.driver == 0);
	CHECK(chunk_count == 0 && fake.handles == 0 && fake.maps == 0);
	CHECK(block_stats.allocations == 0 && block_stats.held == 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {{"threads", threads}, {0}};
	return run_tests(tests, argc, argv);
}
