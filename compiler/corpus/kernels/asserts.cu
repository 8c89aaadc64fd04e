// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#ifdef __NVCC__
#include <cassert>
#else
// assert, as CUDA's headers have it.
extern "C" __device__ void __assertfail(const char *message, const char *file, u32 line, const char *function, u64 size);
#define assert(e) ((e) ? (void)0 : __assertfail(#e, __FILE__, __LINE__, __func__, 1))
#endif

// A walk through a permutation, with every index looked at before it is used. A
// thread that finds a bad one ends the launch, so all come to the barriers.
KERNEL asserts(const u32 *next, u32 *out, u32 n, u32 steps) {
	__shared__ u32 at[96], to[96];
	u32 t = threadIdx.x;
	if (n > 96)
		__builtin_trap();
	to[t] = next[blockIdx.x * n + t];
	assert(to[t] < n);
	at[t] = t;
	__syncthreads();
	for (u32 i = 0; i < steps; i++) {
		u32 k = at[to[t]];
		if (k >= n)
			__builtin_trap();
		__syncthreads();
		assert(k != to[k]);
		at[t] = to[k];
		__syncthreads();
	}
	out[blockIdx.x * n + t] = at[t];
}
