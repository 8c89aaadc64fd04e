// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What passes us by: memory that the driver keeps, and that its own checkpoint
// has to carry or refuses. Only counted.
#include "counters.h"

#include <stdio.h>

#include "block.h"
#include "memory.h"
#include "overrides.h"
#include "pools.h"
#include "real.h"
#include "window.h"

struct counters counters;

static CUresult host(CUresult r)
{
	if (r == CUDA_SUCCESS)
		COUNT(host);
	return r;
}

CUresult hetcuda_cuMemAllocHost_v2(void **address, size_t size)
{
	return host(REAL(cuMemAllocHost)(address, size));
}

CUresult hetcuda_cuMemHostAlloc(void **address, size_t size, unsigned int flags)
{
	return host(REAL(cuMemHostAlloc)(address, size, flags));
}

CUresult hetcuda_cuMemHostRegister_v2(void *address, size_t size, unsigned int flags)
{
	return host(REAL(cuMemHostRegister)(address, size, flags));
}

void hetcuda_memory_describe(char *text)
{
	const struct {
		const char *what;
		uint64_t count;
	} beside[] = {
		{"managed", (uint64_t)COUNTED(managed)},   {"imported", (uint64_t)COUNTED(imported)},
		{"exported", (uint64_t)COUNTED(exported)}, {"served by the driver", COUNTED(driver)},
		{"fixed", COUNTED(fixed)},                 {"stream-ordered", COUNTED(async)},
		{"pinned host", COUNTED(host)},            {"IPC", (uint64_t)COUNTED(ipc)},
		{"IPC events", (uint64_t)COUNTED(events)},
		{"unreleased", COUNTED(unreleased)},       {"windows elsewhere", window_stray()},
		{"bytes in pools", pools_held()},
	};
	uint64_t held = atomic_load(&block_stats.held), asked = atomic_load(&block_stats.asked);
	int n = snprintf(text, HETCUDA_TEXT, "%llu allocations, %llu bytes, %llu more held",
			 (unsigned long long)atomic_load(&block_stats.allocations), (unsigned long long)asked,
			 (unsigned long long)(held > asked ? held - asked : 0));
	for (size_t i = 0; i < sizeof beside / sizeof *beside && n > 0 && n < HETCUDA_TEXT; i++)
		if (beside[i].count)
			n += snprintf(text + n, (size_t)(HETCUDA_TEXT - n), "; %s: %llu", beside[i].what,
				      (unsigned long long)beside[i].count);
}
