// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Shortest paths in one block: relaxes edges until no distance changes.
KERNEL shortest(const u32 *from, const u32 *to, const u32 *cost, u32 *distance, u32 edges, u32 n) {
	extern __shared__ u32 d[];
	u32 t = threadIdx.x;
	for (u32 i = t; i < n; i += blockDim.x)
		d[i] = distance[i];
	s32 changed;
	do {
		__syncthreads();
		changed = 0;
		for (u32 e = t; e < edges; e += blockDim.x) {
			u32 have = d[from[e]];
			if (have != FULL && atomicMin(&d[to[e]], have + cost[e]) > have + cost[e])
				changed = 1;
		}
	} while (__syncthreads_count(changed) != 0);
	for (u32 i = t; i < n; i += blockDim.x)
		distance[i] = d[i];
}
