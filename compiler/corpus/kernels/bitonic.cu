// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Sorts each block's blockDim.x values.
KERNEL bitonic(u32 *data) {
	__shared__ u32 v[256];
	u32 t = threadIdx.x, i = global_thread();
	v[t] = data[i];
	__syncthreads();
#pragma unroll 1
	for (u32 k = 2; k <= blockDim.x; k *= 2) {
#pragma unroll 1
		for (u32 j = k / 2; j > 0; j /= 2) {
			u32 other = t ^ j;
			if (other > t && (v[t] > v[other]) == ((t & k) == 0)) {
				u32 x = v[t];
				v[t] = v[other];
				v[other] = x;
			}
			__syncthreads();
		}
	}
	data[i] = v[t];
}
