// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A tree in shared memory: one barrier a step.
KERNEL reduce_shared(const u32 *in, u32 *out, u32 n) {
	__shared__ u32 part[256];
	u32 t = threadIdx.x, sum = 0;
	for (u32 i = global_thread(); i < n; i += global_threads())
		sum += in[i];
	part[t] = sum;
	__syncthreads();
#pragma unroll 1
	for (u32 step = blockDim.x / 2; step > 0; step /= 2) {
		if (t < step)
			part[t] += part[t + step];
		__syncthreads();
	}
	if (t == 0)
		out[blockIdx.x] = part[0];
}
