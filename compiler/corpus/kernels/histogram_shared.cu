// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL histogram_shared(const u8 *in, u32 *bins, u32 n) {
	__shared__ u32 own[256];
	for (u32 i = threadIdx.x; i < 256; i += blockDim.x)
		own[i] = 0;
	__syncthreads();
	for (u32 i = global_thread(); i < n; i += global_threads())
		atomicAdd(&own[in[i]], 1u);
	__syncthreads();
	for (u32 i = threadIdx.x; i < 256; i += blockDim.x)
		if (own[i])
			atomicAdd(&bins[i], own[i]);
}
