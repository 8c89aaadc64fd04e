// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A prefix sum of any length in three launches: blocks, their sums, and both.
KERNEL scan_blocks(const u32 *in, u32 *out, u32 *sums, u32 n) {
	__shared__ u32 v[64];
	u32 t = threadIdx.x, i = global_thread();
	v[t] = i < n ? in[i] : 0;
	__syncthreads();
#pragma unroll 1
	for (u32 d = 1; d < blockDim.x; d *= 2) {
		u32 below = t >= d ? v[t - d] : 0;
		__syncthreads();
		v[t] += below;
		__syncthreads();
	}
	if (i < n)
		out[i] = v[t];
	if (t == blockDim.x - 1)
		sums[blockIdx.x] = v[t];
}

KERNEL scan_sums(u32 *sums, u32 n) {
	if (global_thread() != 0)
		return;
	u32 total = 0;
#pragma unroll 1
	for (u32 i = 0; i < n; i++) {
		u32 v = sums[i];
		sums[i] = total;
		total += v;
	}
}

KERNEL scan_add(u32 *out, const u32 *sums, u32 n) {
	u32 i = global_thread();
	if (i < n)
		out[i] += sums[blockIdx.x];
}
