// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Inclusive prefix sum of a block: each step adds what lies a power of two before.
KERNEL scan_hillis(const u32 *in, u32 *out) {
	__shared__ u32 v[2][128];
	u32 t = threadIdx.x, from = 0;
	v[0][t] = in[global_thread()];
	__syncthreads();
#pragma unroll 1
	for (u32 d = 1; d < blockDim.x; d *= 2) {
		v[1 - from][t] = v[from][t] + (t >= d ? v[from][t - d] : 0);
		from = 1 - from;
		__syncthreads();
	}
	out[global_thread()] = v[from][t];
}
