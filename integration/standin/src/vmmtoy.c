// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// vmmtoy: a program that uses device memory in every way that libhetcuda serves
// or passes on: many sizes from cuMemAlloc, mappings of its own, streams, events
// and page-locked memory. Each tick adds one to every word on the device, copies
// all of it back and compares; it looks whether every address still is what it
// was, in what the driver says and in a list of them on the device. Anything
// unexpected ends it with status 1.
//
//     vmmtoy [-b bytes] [-i ms] [-t ticks] [-l ms] [-g gpu] [-v] [-a]
//
// It prints "tick K sum S" every tick, as toy does. See README.md for the options.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "toy_ptx.h"

enum { STREAMS = 2, MAPPINGS = 3, MAX_BLOCKS = 16 };

static struct {
	size_t bytes;
	int gpu;
	unsigned interval_ms, long_ms;
	unsigned long ticks;
	bool mappings, async;
} opt = {.bytes = 8 << 20, .interval_ms = 100};

struct block {
	CUdeviceptr address;
	size_t size;
	uint32_t *host;
};

static const size_t sizes[] = {100, 512, 4096, 70000, 1 << 20, 2 << 20, (2 << 20) + 4, 3 << 20};

static struct block blocks[MAX_BLOCKS];
static int count;
static CUdeviceptr list; // of the addresses of the blocks, on the device
static CUmemGenericAllocationHandle handles[MAPPINGS];
static CUstream streams[STREAMS];
static CUevent started, copied[STREAMS];
static CUmodule module;
static CUfunction add, spin;

static void fail(const char *what, const char *why, long value)
{
	printf("error: %s: %s (%ld)\n", what, why, value);
	fflush(stdout);
	_exit(1);
}

static void check(const char *what, CUresult r)
{
	const char *name = NULL;
	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	fail(what, name ? name : "?", r);
}
#define CK(call) check(#call, call)

static void sleep_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static uint32_t pattern(int b, size_t i)
{
	return (uint32_t)i * 2654435761u + (uint32_t)b * 40503u;
}

// Every other block comes back into page-locked memory, the rest into ordinary.
static bool pinned(int b)
{
	return b % 2 == 0;
}

static void add_block(CUdeviceptr address, size_t size)
{
	struct block *b = &blocks[count];
	*b = (struct block){.address = address, .size = size / 4 * 4};
	if (pinned(count))
		CK(cuMemHostAlloc((void **)&b->host, size, CU_MEMHOSTALLOC_PORTABLE));
	else
		b->host = malloc(size);
	if (!b->host)
		fail("malloc", "out of memory", (long)size);
	for (size_t i = 0; i < b->size / 4; i++)
		b->host[i] = pattern(count, i);
	CK(cuMemcpyHtoD(b->address, b->host, b->size));
	count++;
}

// map_block makes one block of several pieces of memory, mapped side by side.
static void map_block(void)
{
	size_t granule;
	CUdeviceptr address;
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, opt.gpu},
	};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CK(cuMemAddressReserve(&address, MAPPINGS * granule, 0, 0, 0));
	for (int i = 0; i < MAPPINGS; i++) {
		CK(cuMemCreate(&handles[i], granule, &prop, 0));
		CK(cuMemMap(address + (size_t)i * granule, granule, 0, handles[i], 0));
	}
	CK(cuMemSetAccess(address, MAPPINGS * granule, &access, 1));
	add_block(address, MAPPINGS * granule);
}

static void unmap_block(const struct block *b)
{
	CK(cuMemUnmap(b->address, b->size));
	for (int i = 0; i < MAPPINGS; i++)
		CK(cuMemRelease(handles[i]));
	CK(cuMemAddressFree(b->address, b->size));
}

// allocate makes memory that lives on: every other piece in the order of a stream.
static void allocate(CUdeviceptr *address, size_t size)
{
	if (opt.async && count % 2 == 0)
		CK(cuMemAllocAsync(address, size, streams[0]));
	else
		CK(cuMemAlloc(address, size));
	CK(cuStreamSynchronize(streams[0]));
}

static void release(const struct block *b)
{
	if (opt.async && (b - blocks) % 2 == 0)
		CK(cuMemFreeAsync(b->address, streams[1]));
	else
		CK(cuMemFree(b->address));
}

static void setup(void)
{
	CUcontext context;
	CK(cuInit(0));
	CK(cuDevicePrimaryCtxRetain(&context, opt.gpu));
	CK(cuCtxSetCurrent(context));
	CK(cuModuleLoadData(&module, toy_ptx));
	CK(cuModuleGetFunction(&add, module, "add"));
	CK(cuModuleGetFunction(&spin, module, "spin"));
	CK(cuEventCreate(&started, CU_EVENT_DEFAULT));
	for (int i = 0; i < STREAMS; i++) {
		CK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CK(cuEventCreate(&copied[i], CU_EVENT_DISABLE_TIMING));
	}
	for (size_t i = 0; i <= sizeof sizes / sizeof *sizes; i++) {
		CUdeviceptr address;
		size_t size = i < sizeof sizes / sizeof *sizes ? sizes[i] : opt.bytes;
		allocate(&address, size);
		add_block(address, size);
	}
	if (opt.mappings)
		map_block();
	CUdeviceptr addresses[MAX_BLOCKS] = {0};
	for (int i = 0; i < count; i++)
		addresses[i] = blocks[i].address;
	CK(cuMemAlloc(&list, sizeof addresses));
	CK(cuMemcpyHtoD(list, addresses, sizeof addresses));
}

static void teardown(void)
{
	for (int i = 0; i < count; i++) {
		if (opt.mappings && i == count - 1)
			unmap_block(&blocks[i]);
		else
			release(&blocks[i]);
		if (pinned(i))
			CK(cuMemFreeHost(blocks[i].host));
		else
			free(blocks[i].host);
	}
	CK(cuMemFree(list));
	for (int i = 0; i < STREAMS; i++) {
		CK(cuStreamDestroy(streams[i]));
		CK(cuEventDestroy(copied[i]));
	}
	CK(cuEventDestroy(started));
	CK(cuModuleUnload(module));
}

// work adds one to every word and starts to copy all of it back. The first
// stream runs what takes long; the others wait for it.
static void work(void)
{
	uint32_t one = 1;
	uint64_t ns = (uint64_t)opt.long_ms * 1000000;
	if (opt.long_ms)
		CK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, streams[0], (void *[]){&ns}, NULL));
	CK(cuEventRecord(started, streams[0]));
	for (int i = 1; i < STREAMS; i++)
		CK(cuStreamWaitEvent(streams[i], started, 0));
	for (int i = 0; i < count; i++) {
		struct block *b = &blocks[i];
		uint64_t words = b->size / 4;
		CUstream s = streams[i % STREAMS];
		CK(cuLaunchKernel(add, (unsigned)((words + 255) / 256), 1, 1, 256, 1, 1, 0, s,
				  (void *[]){&b->address, &words, &one}, NULL));
		CK(cuMemcpyDtoHAsync(b->host, b->address, b->size, s));
	}
	for (int i = 0; i < STREAMS; i++)
		CK(cuEventRecord(copied[i], streams[i]));
}

static uint64_t verify(uint32_t tick)
{
	uint64_t sum = 0;
	for (int i = 0; i < STREAMS; i++)
		CK(cuEventSynchronize(copied[i]));
	for (int b = 0; b < count; b++) {
		const uint32_t *host = blocks[b].host;
		for (size_t i = 0; i < blocks[b].size / 4; i++) {
			if (host[i] != pattern(b, i) + tick) {
				printf("error: word %zu of block %d (%zu bytes) is %u and not %u\n", i, b, blocks[b].size,
				       host[i], pattern(b, i) + tick);
				fflush(stdout);
				_exit(1);
			}
			sum += (uint64_t)host[i] * (i | 1) * (uint64_t)(b + 1);
		}
	}
	return sum;
}

static void verify_addresses(void)
{
	CUdeviceptr addresses[MAX_BLOCKS];
	CK(cuMemcpyDtoH(addresses, list, sizeof addresses));
	for (int i = 0; i < count; i++) {
		CUdeviceptr base;
		size_t size;
		if (addresses[i] != blocks[i].address)
			fail("list", "another address", i);
		CK(cuMemGetAddressRange(&base, &size, blocks[i].address));
		if (base != blocks[i].address)
			fail("cuMemGetAddressRange", "another address", i);
	}
}

// come_and_go uses memory that lives for one tick only.
static void come_and_go(uint32_t tick)
{
	CUdeviceptr a, b;
	unsigned char byte = (unsigned char)tick, seen = 0;
	size_t size = 1000 + tick % 7 * 300000;
	CK(cuMemAlloc(&a, size));
	CK(cuMemAlloc(&b, size));
	CK(cuMemsetD8Async(a, byte, size, streams[0]));
	CK(cuMemcpyDtoDAsync(b, a, size, streams[0]));
	CK(cuStreamSynchronize(streams[0]));
	CK(cuMemFree(a));
	CK(cuMemcpyDtoH(&seen, b + size - 1, 1));
	if (seen != byte)
		fail("memory of one tick", "another byte", seen);
	CK(cuMemFree(b));
}

// flow does that in the order of streams: what one has freed the other may get, and
// none of it is seen before its time.
static void flow(uint32_t tick)
{
	CUdeviceptr a, b;
	unsigned char byte = (unsigned char)tick, seen = 0;
	size_t size = 1000 + tick % 7 * 300000;
	for (int i = 0; i < STREAMS; i++) {
		CUstream s = streams[i], next = streams[(i + 1) % STREAMS];
		CK(cuMemAllocAsync(&a, size, s));
		CK(cuMemsetD8Async(a, byte, size, s));
		CK(cuMemAllocAsync(&b, size, s));
		CK(cuMemcpyDtoDAsync(b, a, size, s));
		CK(cuMemFreeAsync(a, s));
		CK(cuMemAllocAsync(&a, size, next));
		CK(cuMemsetD8Async(a, (unsigned char)(byte + 1), size, next));
		CK(cuMemFreeAsync(a, next));
		CK(cuStreamSynchronize(s));
		CK(cuMemcpyDtoH(&seen, b + size - 1, 1));
		if (seen != byte)
			fail("memory in the order of streams", "another byte", seen);
		CK(cuMemFreeAsync(b, next));
	}
}

static void options(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "b:i:t:l:g:va")) != -1;) {
		switch (o) {
		case 'b': opt.bytes = strtoull(optarg, NULL, 10); break;
		case 'i': opt.interval_ms = (unsigned)atoi(optarg); break;
		case 't': opt.ticks = strtoul(optarg, NULL, 10); break;
		case 'l': opt.long_ms = (unsigned)atoi(optarg); break;
		case 'g': opt.gpu = atoi(optarg); break;
		case 'v': opt.mappings = true; break;
		case 'a': opt.async = true; break;
		default: exit(2);
		}
	}
	if (opt.bytes < 4)
		exit(2);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	prctl(PR_SET_NAME, "vmmtoy");
	setup();
	for (uint32_t tick = 1; !opt.ticks || tick <= opt.ticks; tick++) {
		work();
		uint64_t sum = verify(tick);
		verify_addresses();
		come_and_go(tick);
		if (opt.async)
			flow(tick);
		printf("tick %u sum %llx\n", tick, (unsigned long long)sum);
		fflush(stdout);
		sleep_ms(opt.interval_ms);
	}
	teardown();
	return 0;
}
