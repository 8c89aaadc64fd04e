// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A table of functions, of which the data chooses one.
typedef u32 (*Function)(u32, u32);
__device__ u32 plus(u32 a, u32 b) { return a + b; }
__device__ u32 times(u32 a, u32 b) { return a * b; }
__device__ u32 minus(u32 a, u32 b) { return a - b; }
__device__ u32 mix(u32 a, u32 b) { return rotl(a, 7) ^ b; }
__device__ Function table[4] = {plus, times, minus, mix};

KERNEL indirect(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v = i;
#pragma unroll 1
	for (u32 j = 0; j < 6; j++)
		v = table[in[i] >> 2 * j & 3](v, in[i]);
	out[i] = v;
}
