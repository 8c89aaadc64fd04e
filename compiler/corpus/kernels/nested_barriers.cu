// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Barriers in two loops, one in the other, in a branch that the whole block takes,
// with predicates and numbers of all sizes that live over them.
KERNEL nested_barriers(const u32 *in, u64 *out, u32 outer, u32 inner) {
	__shared__ u32 v[96];
	u32 t = threadIdx.x;
	u64 sum = blockIdx.x;
	double weight = 1;
	u16 small = t;
	bool odd = in[global_thread()] & 1;
	v[t] = in[global_thread()];
	__syncthreads();
	if (blockIdx.x % 2 == 0) {
#pragma unroll 1
		for (u32 i = 0; i < outer; i++) {
#pragma unroll 1
			for (u32 j = 0; j < inner; j++) {
				u32 x = v[(t + j + 1) % 96];
				__syncthreads();
				v[t] = odd ? x + 3 : x ^ i;
				small = small * 7 + x;
				odd = odd != (x % 3 == 0);
				__syncthreads();
			}
			weight = weight * 1.5 + v[(t + i) % 96] % 10;
			sum += v[95 - t];
			__syncthreads();
		}
	} else {
		sum += v[95 - t];
		__syncthreads();
		v[t] = sum;
		__syncthreads();
		weight += v[(t + 5) % 96];
	}
	out[global_thread()] = sum * 1000003 + small + odd + (u64)weight;
}
