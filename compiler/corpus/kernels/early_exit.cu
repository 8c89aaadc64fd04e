// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Threads that are outside leave before the barriers that the others meet at.
KERNEL early_exit(const u32 *in, u32 *out, u32 n) {
	__shared__ u32 v[64];
	u32 t = threadIdx.x, i = global_thread();
	v[t] = 0;
	__syncthreads();
	if (i >= n)
		return;
	v[t] = in[i];
	__syncthreads();
	u32 x = v[(t + 1) % 64];
	__syncthreads();
	v[t] += x;
	__syncthreads();
	out[i] = v[63 - t];
}
