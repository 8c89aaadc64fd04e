// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define N 20

// All shortest paths; a barrier for each vertex in between.
KERNEL floyd(u32 *dist) {
	__shared__ u32 d[N * N];
	for (u32 i = threadIdx.x; i < N * N; i += blockDim.x)
		d[i] = dist[i];
#pragma unroll 1
	for (u32 k = 0; k < N; k++) {
		__syncthreads();
		for (u32 i = threadIdx.x; i < N * N; i += blockDim.x)
			d[i] = min(d[i], d[i / N * N + k] + d[k * N + i % N]);
	}
	__syncthreads();
	for (u32 i = threadIdx.x; i < N * N; i += blockDim.x)
		dist[i] = d[i];
}
