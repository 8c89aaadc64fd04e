// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// __managed__ variables, beside __device__ ones that lie in the same pages: an integer, a
// struct, arrays. The CPU and the GPU change them in turns, and every word is checked from
// both sides in every turn; the GPU's own ones are checked by copies. A line for each turn:
//
//     {"row": "loop", "ok": true, "turn": 3}
//
// or, with "ok": false and "why", what was wrong, and the program ends with 1.
//
//     variables [-t TURNS]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <unistd.h>

enum { BIG = 300001, SMALL = 5, WORDS = 1000 };

struct pair {
	uint32_t count, words[7];
	uint64_t sum;
};

__managed__ uint32_t counter = 40;
__device__ uint32_t beside = 7;
__managed__ pair both = {1, {2, 3, 4, 5, 6, 7, 8}, 9};
__device__ uint32_t own[WORDS];
__managed__ uint32_t little[SMALL] = {11, 12, 13, 14, 15};
__device__ uint32_t another[SMALL] = {21, 22, 23, 24, 25};
__managed__ uint32_t big[BIG];
__device__ uint32_t last = 99;

// Each word is changed by one thread.
__global__ void bump()
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < BIG)
		big[i] += 1;
	if (i < WORDS)
		own[i] += 3;
	if (i < SMALL) {
		little[i] += 5;
		another[i] += 7;
	}
	if (i < 7)
		both.words[i] += 11;
	if (i == 0) {
		counter += 13;
		both.count += 17;
		both.sum += 19;
		beside += 23;
		last += 29;
	}
}

static void fail(const char *what, const char *why)
{
	printf("{\"row\": \"loop\", \"ok\": false, \"what\": \"%s\", \"why\": \"%s\"}\n", what, why);
	fflush(stdout);
	exit(1);
}

#define CK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) fail(#call, cudaGetErrorName(e_)); } while (0)

static void same(const char *what, size_t i, uint64_t is, uint64_t wanted)
{
	char why[160];
	if (is == wanted)
		return;
	snprintf(why, sizeof why, "word %zu is %llu and not %llu", i, (unsigned long long)is, (unsigned long long)wanted);
	fail(what, why);
}

// What the CPU knows that they have to be.
static uint32_t turns_gpu, turns_cpu;

static uint32_t big_is(size_t i)
{
	return turns_gpu + turns_cpu * (uint32_t)(i % 5);
}

static void check_cpu()
{
	same("counter", 0, counter, 40 + 13 * turns_gpu + 100 * turns_cpu);
	same("both.count", 0, both.count, 1 + 17 * turns_gpu + turns_cpu);
	same("both.sum", 0, both.sum, 9 + 19 * turns_gpu + 1000ull * turns_cpu);
	for (uint32_t i = 0; i < 7; i++)
		same("both.words", i, both.words[i], 2 + i + 11 * turns_gpu + i * turns_cpu);
	for (uint32_t i = 0; i < SMALL; i++)
		same("little", i, little[i], 11 + i + 5 * turns_gpu + 2 * turns_cpu);
	for (size_t i = 0; i < BIG; i++)
		same("big", i, big[i], big_is(i));
}

static void change_cpu()
{
	turns_cpu++;
	counter += 100;
	both.count += 1;
	both.sum += 1000;
	for (uint32_t i = 0; i < 7; i++)
		both.words[i] += i;
	for (uint32_t i = 0; i < SMALL; i++)
		little[i] += 2;
	for (size_t i = 0; i < BIG; i++)
		big[i] += (uint32_t)(i % 5);
}

static uint32_t copied[BIG];

// What the device has, by copies: the managed ones as well.
static void check_gpu()
{
	CK(cudaMemcpyFromSymbol(copied, beside, 4));
	same("beside", 0, copied[0], 7 + 23 * turns_gpu);
	CK(cudaMemcpyFromSymbol(copied, last, 4));
	same("last", 0, copied[0], 99 + 29 * turns_gpu);
	CK(cudaMemcpyFromSymbol(copied, own, sizeof own));
	for (size_t i = 0; i < WORDS; i++)
		same("own", i, copied[i], 3 * turns_gpu);
	CK(cudaMemcpyFromSymbol(copied, another, sizeof another));
	for (uint32_t i = 0; i < SMALL; i++)
		same("another", i, copied[i], 21 + i + 7 * turns_gpu);
	CK(cudaMemcpy(copied, big, sizeof big, cudaMemcpyDefault));
	for (size_t i = 0; i < BIG; i++)
		same("big of the device", i, copied[i], big_is(i));
	CK(cudaMemcpy(copied, little, sizeof little, cudaMemcpyDefault));
	for (uint32_t i = 0; i < SMALL; i++)
		same("little of the device", i, copied[i], 11 + i + 5 * turns_gpu + 2 * turns_cpu);
}

static void check_attributes(const char *what, const void *p)
{
	cudaPointerAttributes a;
	CK(cudaPointerGetAttributes(&a, p));
	if (a.type != cudaMemoryTypeManaged || a.device != 0 || a.devicePointer != p)
		fail(what, "it is no managed memory by its attributes");
}

int main(int argc, char **argv)
{
	unsigned long turns = 0;
	if (argc > 2 && !strcmp(argv[1], "-t"))
		turns = strtoul(argv[2], nullptr, 0);
	check_cpu(); // before CUDA was called for anything
	change_cpu();
	for (unsigned long turn = 0; !turns || turn < turns; turn++) {
		bump<<<(BIG + 255) / 256, 256>>>();
		turns_gpu++;
		CK(cudaGetLastError());
		if (turn % 2)
			check_gpu(); // before the CPU has seen them
		CK(cudaDeviceSynchronize());
		check_cpu();
		change_cpu();
		check_gpu();
		if (turn % 3 == 0) {
#if CUDART_VERSION >= 13000
			CK(cudaMemPrefetchAsync(big, sizeof big, cudaMemLocation{cudaMemLocationTypeDevice, {0}}, 0, 0));
#else
			CK(cudaMemPrefetchAsync(big, sizeof big, 0, 0));
#endif
			check_cpu();
		}
		check_attributes("big", big);
		check_attributes("counter", &counter);
		printf("{\"row\": \"loop\", \"ok\": true, \"turn\": %lu}\n", turn);
		fflush(stdout);
		usleep(20000);
	}
	return 0;
}
