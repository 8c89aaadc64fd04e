// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Each thread finds its number's rank by itself: a loop without barriers.
KERNEL ranksort(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v = in[i], rank = 0;
#pragma unroll 1
	for (u32 j = 0; j < n; j++)
		rank += in[j] < v || (in[j] == v && j < i);
	out[rank] = v;
}
