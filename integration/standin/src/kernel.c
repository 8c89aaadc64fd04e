// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Kernels. The stand-in compiles no PTX: it knows the kernels of the test
// programs by name and does in C what the PTX of that name does (toy_ptx.h, and
// kernels.h of integration/gpu/testdata).
#include <string.h>

#include "process.h"

enum {
	GRID = 7, // where a kernel finds the number of its blocks, behind its parameters
	MAX_PIECE = 2 << 20, // of hetgpu_digest
};

// get and put are how kernels read and write memory; what they may not is an
// error that stays.
static bool get(CUdeviceptr address, void *to, size_t size)
{
	return range_check(address, size, process.working_gpu, false) == CUDA_SUCCESS &&
	       range_read(address, to, size) == CUDA_SUCCESS;
}

static bool put(CUdeviceptr address, const void *from, size_t size)
{
	return range_check(address, size, process.working_gpu, true) == CUDA_SUCCESS &&
	       range_write(address, from, size) == CUDA_SUCCESS;
}

// ended ends a kernel.
static bool ended(bool ok)
{
	if (!ok)
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

// add(u32 *p, u64 n, u32 d): adds d to each of n words.
static bool run_add(uint64_t *v)
{
	size_t size = (size_t)v[1] * 4;
	CLEAN_FREE uint32_t *words = malloc(size);
	if (!words || !get(v[0], words, size))
		return ended(false);
	for (size_t i = 0; i < v[1]; i++)
		words[i] += (uint32_t)v[2];
	return ended(put(v[0], words, size));
}

// spin(u64 ns): runs for so long. The parameter becomes the end once it runs.
static bool run_spin(uint64_t *v)
{
	if (v[1] == 0)
		v[1] = now_ms() + v[0] / 1000000;
	return now_ms() >= v[1];
}

// meet(u32 *counters, u32 n, u32 me, u32 k): says that this rank has come to
// meeting k and ends when all n ranks have. The counters are host memory that
// the ranks share.
static bool run_meet(uint64_t *v)
{
	_Atomic uint32_t *counters = (_Atomic uint32_t *)(uintptr_t)v[0];
	counters[v[2]] = (uint32_t)v[3];
	for (uint64_t i = 0; i < v[1]; i++)
		if (counters[i] < (uint32_t)v[3])
			return false;
	return true;
}

// await(u32 *p, u32 k): ends when a word of device memory has come to k.
static bool run_await(uint64_t *v)
{
	uint32_t word;
	return get(v[0], &word, sizeof word) ? word >= (uint32_t)v[1] : ended(false);
}

// A rank's box, which all ranks have in their memory: what it brings to the last
// two rounds (the others may still read that of the one before), and which was
// the last.
struct box {
	uint64_t values[2];
	uint32_t round, unused;
};

// reduce(u64 *boxes, u32 n, u32 me, u32 round, u64 *mine, u64 *sum): brings a word
// to a round, waits for those of all n ranks and adds them to sum. boxes has the
// addresses.
static bool run_reduce(uint64_t *v)
{
	enum { BOXES, N, ME, ROUND, MINE, SUM, BROUGHT };
	uint64_t addresses[64], value, sum;
	struct box box;
	if (v[N] > sizeof addresses / sizeof *addresses || v[ME] >= v[N] || !get(v[BOXES], addresses, v[N] * 8))
		return ended(false);
	if (!v[BROUGHT]) {
		uint64_t slot = addresses[v[ME]] + v[ROUND] % 2 * 8, word = addresses[v[ME]] + offsetof(struct box, round);
		if (!get(v[MINE], &value, 8) || !put(slot, &value, 8) || !put(word, &v[ROUND], sizeof box.round))
			return ended(false);
		v[BROUGHT] = 1;
	}
	if (!get(v[SUM], &sum, 8))
		return ended(false);
	for (uint64_t i = 0; i < v[N]; i++) {
		if (!get(addresses[i], &box, sizeof box))
			return ended(false);
		if (box.round < (uint32_t)v[ROUND])
			return false;
		if (!get(addresses[i], &box, sizeof box)) // the value is older than the round
			return ended(false);
		sum += box.values[v[ROUND] % 2];
	}
	return ended(put(v[SUM], &sum, 8));
}

// each calls one for every 64-bit word of device memory, and writes it back.
static bool each(CUdeviceptr address, uint64_t words, void (*one)(uint64_t *word, uint64_t i, uint64_t *context),
		 uint64_t *context)
{
	CLEAN_FREE uint64_t *data = malloc(words * 8);
	if (!data || !get(address, data, words * 8))
		return false;
	for (uint64_t i = 0; i < words; i++)
		one(&data[i], i, context);
	return put(address, data, words * 8);
}

static void fill_word(uint64_t *word, uint64_t i, uint64_t *seed)
{
	uint64_t x = (*seed + i) * 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	*word = x ^ x >> 31;
}

static void step_word(uint64_t *word, uint64_t i, uint64_t *unused)
{
	(void)i;
	(void)unused;
	++*word;
}

static void sum_word(uint64_t *word, uint64_t i, uint64_t *sum)
{
	*sum += *word * (i | 1);
}

// fill(u64 *p, u64 n, u64 seed): numbers that nobody could guess.
static bool run_fill(uint64_t *v)
{
	return ended(each(v[0], v[1], fill_word, &v[2]));
}

// step(u64 *p, u64 n): adds one to each.
static bool run_step(uint64_t *v)
{
	return ended(each(v[0], v[1], step_word, NULL));
}

// sum(u64 *p, u64 n, u64 *out): adds p[i] * (i | 1) for each i to what out has.
static bool run_sum(uint64_t *v)
{
	uint64_t sum = 0, before;
	if (!get(v[2], &before, 8) || !each(v[0], v[1], sum_word, &sum))
		return ended(false);
	sum += before;
	return ended(put(v[2], &sum, 8));
}

// beat(u32 *p, u64 ns): runs for so long and adds one to a word of host memory.
static bool run_beat(uint64_t *v)
{
	if (v[2] == 0)
		v[2] = now_ms() + v[1] / 1000000;
	if (now_ms() < v[2])
		return false;
	++*(volatile uint32_t *)(uintptr_t)v[0];
	return true;
}

// last_mix ends a digest.
static uint64_t last_mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

// digest_of is memfile.DigestOf of internal/memfile, with the bitwise or of all
// words in the third.
static void digest_of(const uint64_t *words, uint64_t bytes, uint64_t result[4])
{
	uint64_t a = 0, b = 0, any = 0;
	for (uint64_t i = 0; i < bytes / 8; i++) {
		uint64_t p = (i + 1) * 0x9E3779B97F4A7C15, x = words[i] + p, y, z;
		x = (x ^ x >> 32) * 0xBF58476D1CE4E5B9;
		x ^= x >> 29;
		y = (x + p) * 0x94D049BB133111EB;
		z = (x ^ p) * 0xD6E8FEB86659FD93;
		a += y ^ y >> 32;
		b += z ^ z >> 32;
		any |= words[i];
	}
	result[0] = last_mix(a + bytes);
	result[1] = last_mix(b ^ bytes);
	result[2] = any;
	result[3] = 0;
}

// hetgpu_digest(list, results), one entry for each block of the grid: digests of
// pieces of memory, as gpuplugin/nvidia/driver/digest.ptx has them. list has
// {u64 address, bytes}, results {u64 a, b, any, 0}.
static bool run_digest(uint64_t *v)
{
	for (uint64_t i = 0; i < v[GRID]; i++) {
		uint64_t piece[2], result[4];
		if (!get(v[0] + i * sizeof piece, piece, sizeof piece) || piece[1] > MAX_PIECE)
			return ended(false);
		CLEAN_FREE uint64_t *words = malloc(piece[1] + 1);
		if (!words || !get(piece[0], words, piece[1]))
			return ended(false);
		digest_of(words, piece[1], result);
		if (!put(v[1] + i * sizeof result, result, sizeof result))
			return ended(false);
	}
	return ended(true);
}

static const struct CUfunc_st functions[] = {
	{"hetgpu_digest", run_digest, (const unsigned char[]){8, 8, 0}},
	{"add", run_add, (const unsigned char[]){8, 8, 4, 0}},
	{"spin", run_spin, (const unsigned char[]){8, 0}},
	{"meet", run_meet, (const unsigned char[]){8, 4, 4, 4, 0}},
	{"await", run_await, (const unsigned char[]){8, 4, 0}},
	{"reduce", run_reduce, (const unsigned char[]){8, 4, 4, 4, 8, 8, 0}},
	{"fill", run_fill, (const unsigned char[]){8, 8, 8, 0}},
	{"step", run_step, (const unsigned char[]){8, 8, 0}},
	{"sum", run_sum, (const unsigned char[]){8, 8, 8, 0}},
	{"beat", run_beat, (const unsigned char[]){8, 8, 0}},
};

const struct CUfunc_st *kernel_find(const char *name)
{
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	return NULL;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	static const int values[] = {1024, 0, 0, 0, 16, 70, 90, 0};
	if (!value || !function || (unsigned)attribute >= sizeof values / sizeof *values)
		return CUDA_ERROR_INVALID_VALUE;
	*value = values[attribute];
	return CUDA_SUCCESS;
}

// take_buffer takes parameters that come as one block, each aligned to its size:
// {1, block, 2, its length, NULL} (CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END).
static bool take_buffer(struct work *w, const unsigned char *sizes, void **extra)
{
	if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])
		return false;
	const unsigned char *values = extra[1];
	size_t at = 0, length = *(size_t *)extra[3];
	for (int i = 0; sizes[i]; at += sizes[i++]) {
		at = (at + sizes[i] - 1) / sizes[i] * sizes[i];
		if (at + sizes[i] > length)
			return false;
		memcpy(&w->params[i], values + at, sizes[i]);
	}
	return true;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	(void)shared;
	if (!function || !params == !extra || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z)
		return CUDA_ERROR_INVALID_VALUE;
	struct work w = {.run = function->run, .params[GRID] = grid_x};
	if (extra && !take_buffer(&w, function->sizes, extra))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; params && function->sizes[i]; i++)
		memcpy(&w.params[i], params[i], function->sizes[i]);
	return work_add(&w, stream, NULL);
}
