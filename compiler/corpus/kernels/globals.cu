// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Variables of the module: with initial values, with addresses of others in them,
// and one that threads change.
struct Entry {
	const u32 *data;
	u32 length;
};
__device__ u32 small[3] = {5, 6, 7};
__device__ u32 large[8] = {1, 2, 4, 8, 16, 32, 64, 128};
__device__ Entry entries[3] = {{small, 3}, {large, 8}, {large + 2, 4}};
__device__ u64 total = 1000;
__constant__ short steps[4] = {-1, 2, -3, 4};

KERNEL globals(u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	Entry e = entries[i % 3];
	u32 v = e.data[i % e.length] + steps[i & 3];
	out[i] = v;
	atomicAdd(&total, (u64)v);
}
