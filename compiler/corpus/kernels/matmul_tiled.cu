// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define TILE 8

KERNEL matmul_tiled(const float *a, const float *b, float *c, u32 n) {
	__shared__ float as[TILE][TILE], bs[TILE][TILE];
	u32 x = threadIdx.x, y = threadIdx.y;
	u32 row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
	float sum = 0;
#pragma unroll 1
	for (u32 t = 0; t < n; t += TILE) {
		as[y][x] = a[row * n + t + x];
		bs[y][x] = b[(t + y) * n + col];
		__syncthreads();
		for (u32 k = 0; k < TILE; k++)
			sum = fmaf(as[y][k], bs[k][x], sum);
		__syncthreads();
	}
	c[row * n + col] = sum;
}
