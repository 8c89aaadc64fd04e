// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Sums of floats that are exact in any order: small whole numbers and halves.
KERNEL atomics_float(const float *in, float *f, double *d, u32 n) {
	__shared__ float own;
	if (threadIdx.x == 0)
		own = 0;
	__syncthreads();
	u32 i = global_thread();
	if (i < n) {
		atomicAdd(f, in[i]);
		atomicAdd(d, (double)in[i] * 0.25);
		atomicAdd(&own, in[i]);
	}
	__syncthreads();
	if (threadIdx.x == 0)
		f[1 + blockIdx.x] = own;
}
