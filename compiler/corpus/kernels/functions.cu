// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Calls that stay calls: structures by value, and results that are structures.
struct Pair {
	u64 a;
	u32 b;
	u8 c;
};

__device__ __noinline__ Pair twist(Pair p, u32 n) { return Pair{p.a * n + p.b, (u32)(p.a >> 32) ^ p.c, (u8)(p.b + n)}; }
__device__ __noinline__ float blend(float a, float b, float t) { return fmaf(t, b - a, a); }
__device__ __noinline__ void both(u32 *sum, u32 *product, u32 a, u32 b) {
	*sum = a + b;
	*product = a * b;
}

KERNEL functions(Pair start, const u32 *in, u64 *out, float *mixed, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	Pair p = start;
#pragma unroll 1
	for (u32 j = 0; j < in[i] % 5 + 1; j++)
		p = twist(p, in[i] + j);
	u32 sum, product;
	both(&sum, &product, in[i], i);
	out[i] = (p.a ^ p.b) + ((u64)sum << 32 | product) + p.c;
	mixed[i] = blend((float)i, 2.5f, 0.125f);
}
