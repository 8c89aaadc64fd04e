// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Neighbours change places until none does; all threads learn it from the barrier.
KERNEL oddeven(s32 *data, u32 n, u32 *rounds) {
	extern __shared__ s32 v[];
	u32 t = threadIdx.x, round = 0;
	for (u32 i = t; i < n; i += blockDim.x)
		v[i] = data[i];
	__syncthreads();
	bool swapped;
	do {
		swapped = false;
#pragma unroll 1
		for (u32 odd = 0; odd < 2; odd++) {
			u32 i = 2 * t + odd;
			if (i + 1 < n && v[i] > v[i + 1]) {
				s32 x = v[i];
				v[i] = v[i + 1];
				v[i + 1] = x;
				swapped = true;
			}
			__syncthreads();
		}
		round++;
	} while (__syncthreads_or(swapped));
	for (u32 i = t; i < n; i += blockDim.x)
		data[i] = v[i];
	if (t == 0)
		*rounds = round;
}
