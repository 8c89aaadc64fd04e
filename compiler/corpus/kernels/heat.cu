// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define N 16

// Many rounds of a stencil in one launch: two barriers a round.
KERNEL heat(float *grid, u32 rounds) {
	__shared__ float v[N][N];
	u32 x = threadIdx.x, y = threadIdx.y, base = blockIdx.x * N * N;
	v[y][x] = grid[base + y * N + x];
	__syncthreads();
	bool inside = x > 0 && y > 0 && x < N - 1 && y < N - 1;
#pragma unroll 1
	for (u32 i = 0; i < rounds; i++) {
		float next = v[y][x];
		if (inside)
			next = 0.25f * ((v[y - 1][x] + v[y + 1][x]) + (v[y][x - 1] + v[y][x + 1]));
		__syncthreads();
		v[y][x] = next;
		__syncthreads();
	}
	grid[base + y * N + x] = v[y][x];
}
