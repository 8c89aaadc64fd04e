// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// An array of each thread's own that lives over barriers.
KERNEL local_barrier(const u32 *in, u32 *out, u32 rounds) {
	__shared__ u32 box[64];
	u32 t = threadIdx.x, history[16];
	for (u32 i = 0; i < 16; i++)
		history[i] = 0;
	u32 v = in[global_thread()];
#pragma unroll 1
	for (u32 r = 0; r < rounds; r++) {
		box[t] = v;
		__syncthreads();
		v = v * 5 + box[(t + r + 1) % blockDim.x];
		history[v % 16] += r + 1;
		__syncthreads();
	}
	u32 sum = v;
	for (u32 i = 0; i < 16; i++)
		sum = sum * 31 + history[i];
	out[global_thread()] = sum;
}
