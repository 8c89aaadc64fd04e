// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define R 3

// The sum of each value and three on either side, of which the block loads those
// outside of it too.
KERNEL stencil1d(const s32 *in, s32 *out, u32 n) {
	__shared__ s32 v[128 + 2 * R];
	u32 t = threadIdx.x, i = global_thread();
	v[t + R] = i < n ? in[i] : 0;
	if (t < R) {
		v[t] = i >= R ? in[i - R] : 0;
		v[t + R + blockDim.x] = i + blockDim.x < n ? in[i + blockDim.x] : 0;
	}
	__syncthreads();
	if (i >= n)
		return;
	s32 sum = 0;
	for (s32 d = -R; d <= R; d++)
		sum += v[t + R + d];
	out[i] = sum;
}
