// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// The place of the greatest value, the first where there are many.
KERNEL argmax(const float *in, u32 *where, u32 n) {
	__shared__ float value[128];
	__shared__ u32 index[128];
	u32 t = threadIdx.x;
	float best = -__builtin_inff();
	u32 at = FULL;
	for (u32 i = t; i < n; i += blockDim.x)
		if (in[blockIdx.x * n + i] > best) {
			best = in[blockIdx.x * n + i];
			at = i;
		}
	value[t] = best;
	index[t] = at;
#pragma unroll 1
	for (u32 step = blockDim.x / 2; step > 0; step /= 2) {
		__syncthreads();
		if (t < step) {
			float v = value[t + step];
			u32 j = index[t + step];
			if (v > value[t] || (v == value[t] && j < index[t])) {
				value[t] = v;
				index[t] = j;
			}
		}
	}
	if (t == 0)
		where[blockIdx.x] = index[0];
}
