// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Kernels. The stand-in compiles no PTX: it knows the kernels of the test
// programs by name and does in C what the PTX of that name does (toy_ptx.h, and
// kernels.h of integration/gpu/testdata). Launched work is done in order and
// advances whenever somebody looks: at every later call and while a lock waits
// for it.
#include <string.h>

#include "process.h"

// add(u32 *p, u64 n, u32 d): adds d to each of n words.
static bool run_add(void *params)
{
	const uint64_t *v = params;
	size_t offset, size = (size_t)v[1] * 4;
	struct alloc *a = alloc_find(v[0], size, &offset);
	CLEAN_FREE uint32_t *words = malloc(size);
	if (!a || !words || !alloc_read(a, offset, words, size)) {
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
		return true;
	}
	for (size_t i = 0; i < v[1]; i++)
		words[i] += (uint32_t)v[2];
	if (!alloc_write(a, offset, words, size))
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

// spin(u64 ns): runs for so long. The parameter becomes the end once it runs.
static bool run_spin(void *params)
{
	uint64_t *v = params;
	if (v[1] == 0)
		v[1] = now_ms() + v[0] / 1000000;
	return now_ms() >= v[1];
}

// meet(u32 *counters, u32 n, u32 me, u32 k): says that this rank has come to
// meeting k and ends when all n ranks have. The counters are host memory that
// the ranks share.
static bool run_meet(void *params)
{
	const uint64_t *v = params;
	_Atomic uint32_t *counters = (_Atomic uint32_t *)(uintptr_t)v[0];
	counters[v[2]] = (uint32_t)v[3];
	for (uint64_t i = 0; i < v[1]; i++)
		if (counters[i] < (uint32_t)v[3])
			return false;
	return true;
}

// each calls one for every 64-bit word of device memory, and writes it back.
static bool each(CUdeviceptr address, uint64_t words, void (*one)(uint64_t *word, uint64_t i, uint64_t *context),
		 uint64_t *context)
{
	size_t offset;
	struct alloc *a = alloc_find(address, words * 8, &offset);
	CLEAN_FREE uint64_t *data = malloc(words * 8);
	if (!a || !data || !alloc_read(a, offset, data, words * 8))
		return false;
	for (uint64_t i = 0; i < words; i++)
		one(&data[i], i, context);
	return alloc_write(a, offset, data, words * 8);
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
static bool run_fill(void *params)
{
	uint64_t *v = params;
	if (!each(v[0], v[1], fill_word, &v[2]))
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

// step(u64 *p, u64 n): adds one to each.
static bool run_step(void *params)
{
	uint64_t *v = params;
	if (!each(v[0], v[1], step_word, NULL))
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

// sum(u64 *p, u64 n, u64 *out): adds p[i] * (i | 1) for each i to what out has.
static bool run_sum(void *params)
{
	uint64_t *v = params, sum = 0, before;
	size_t offset;
	struct alloc *out = alloc_find(v[2], 8, &offset);
	bool ok = out && each(v[0], v[1], sum_word, &sum) && alloc_read(out, offset, &before, 8);
	sum += ok ? before : 0;
	if (!ok || !alloc_write(out, offset, &sum, 8))
		process.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

// beat(u32 *p, u64 ns): runs for so long and adds one to a word of host memory.
static bool run_beat(void *params)
{
	uint64_t *v = params;
	if (v[2] == 0)
		v[2] = now_ms() + v[1] / 1000000;
	if (now_ms() < v[2])
		return false;
	++*(volatile uint32_t *)(uintptr_t)v[0];
	return true;
}

static const struct CUfunc_st functions[] = {
	{"add", run_add, (const unsigned char[]){8, 8, 4, 0}},
	{"spin", run_spin, (const unsigned char[]){8, 0}},
	{"meet", run_meet, (const unsigned char[]){8, 4, 4, 4, 0}},
	{"fill", run_fill, (const unsigned char[]){8, 8, 8, 0}},
	{"step", run_step, (const unsigned char[]){8, 8, 0}},
	{"sum", run_sum, (const unsigned char[]){8, 8, 8, 0}},
	{"beat", run_beat, (const unsigned char[]){8, 8, 0}},
};

// A module is the text that it was loaded from.
CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER();
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!strstr(image, ".version"))
		return CUDA_ERROR_INVALID_PTX;
	*module = (CUmodule)strdup(image);
	return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER();
	char entry[64];
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(entry, sizeof entry, ".entry %s(", name);
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		if (strcmp(functions[i].name, name) != 0 || !strstr((const char *)module, entry))
			continue;
		*function = (CUfunction)(uintptr_t)&functions[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleUnload(CUmodule module)
{
	ENTER_IDLE();
	free(module);
	return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool work_advance(void)
{
	while (process.first != process.launched) {
		struct work *w = &process.work[process.first % MAX_WORK];
		if (!w->function->run(w->params))
			return false;
		process.first++;
	}
	return true;
}

static CUresult launch(const struct CUfunc_st *function, void **params)
{
	ENTER();
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	work_advance();
	if (process.launched - process.first == MAX_WORK)
		return CUDA_ERROR_NOT_READY;
	struct work *w = &process.work[process.launched % MAX_WORK];
	*w = (struct work){.function = function};
	for (int i = 0; function->sizes[i]; i++)
		memcpy(&w->params[i], params[i], function->sizes[i]);
	process.launched++;
	work_advance(); // it starts at once if nothing is before it
	return process.lost;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	(void)shared;
	if (!function || !params || extra || stream || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r;
	while ((r = launch(function, params)) == CUDA_ERROR_NOT_READY)
		sleep_us(500); // the queue is full
	return r;
}
