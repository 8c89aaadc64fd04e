// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL matmul_plain(const double *a, const double *b, double *c, u32 m, u32 n, u32 k) {
	u32 row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= m || col >= n)
		return;
	double sum = 0;
#pragma unroll 1
	for (u32 i = 0; i < k; i++)
		sum = fma(a[row * k + i], b[i * n + col], sum);
	c[row * n + col] = sum;
}
