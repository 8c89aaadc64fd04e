// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Only the first two warps meet at a barrier of their own; then the whole block.
KERNEL partial_barrier(const u32 *in, u32 *out) {
	__shared__ u32 v[96];
	u32 t = threadIdx.x;
	v[t] = in[t];
	if (t < 64) {
		asm volatile("barrier.sync 3, 64;" : : : "memory");
		u32 x = v[63 - t];
		asm volatile("barrier.sync 3, 64;" : : : "memory");
		v[t] = x + 1;
	}
	__syncthreads();
	out[t] = v[(t + 40) % 96];
}
