// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Exclusive prefix sum of each block's 2*blockDim.x values: up and down a tree.
KERNEL scan_blelloch(const u32 *in, u32 *out) {
	extern __shared__ u32 tree[];
	u32 t = threadIdx.x, n = 2 * blockDim.x, base = blockIdx.x * n, step = 1;
	tree[2 * t] = in[base + 2 * t];
	tree[2 * t + 1] = in[base + 2 * t + 1];
#pragma unroll 1
	for (u32 d = n / 2; d > 0; d /= 2) {
		__syncthreads();
		if (t < d)
			tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
		step *= 2;
	}
	if (t == 0)
		tree[n - 1] = 0;
#pragma unroll 1
	for (u32 d = 1; d < n; d *= 2) {
		step /= 2;
		__syncthreads();
		if (t < d) {
			u32 left = step * (2 * t + 1) - 1, right = step * (2 * t + 2) - 1;
			u32 v = tree[left];
			tree[left] = tree[right];
			tree[right] += v;
		}
	}
	__syncthreads();
	out[base + 2 * t] = tree[2 * t];
	out[base + 2 * t + 1] = tree[2 * t + 1];
}
