// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// One level of a search in breadth; the host repeats it until nothing is found.
KERNEL bfs(const u32 *first, const u32 *edges, u32 *level, u32 *found, u32 now, u32 n) {
	u32 v = global_thread();
	if (v >= n || level[v] != now)
		return;
	for (u32 e = first[v]; e < first[v + 1]; e++)
		if (atomicCAS(&level[edges[e]], FULL, now + 1) == FULL)
			atomicAdd(found, 1u);
}
