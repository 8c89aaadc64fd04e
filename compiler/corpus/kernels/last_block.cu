// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

__device__ u32 arrived;

// Each block adds up its part; the last one to come adds up the parts.
KERNEL last_block(const u32 *in, u32 *parts, u32 *out, u32 n) {
	__shared__ u32 sum, last;
	if (threadIdx.x == 0)
		sum = 0;
	__syncthreads();
	for (u32 i = global_thread(); i < n; i += global_threads())
		atomicAdd(&sum, in[i]);
	__syncthreads();
	if (threadIdx.x == 0) {
		parts[blockIdx.x] = sum;
		__threadfence();
		last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
	}
	__syncthreads();
	if (last && threadIdx.x == 0) {
		u32 all = 0;
		for (u32 i = 0; i < gridDim.x; i++)
			all += ((volatile u32 *)parts)[i];
		*out = all;
	}
}
