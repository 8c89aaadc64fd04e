// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// How many ways there are to place n queens, the first two given by the thread: a
// search with a stack of its own.
KERNEL queens(u32 *solutions, u32 n) {
	u32 i = global_thread(), found = 0;
	if (i >= n * n)
		return;
	u32 full = (1 << n) - 1, a = 1 << i / n, b = 1 << i % n;
	if (a & b || a << 1 & b || a >> 1 & b)
		return;
	u32 cols[16], left[16], right[16], free[16], depth = 2;
	cols[2] = a | b;
	left[2] = (a << 1 | b) << 1;
	right[2] = (a >> 1 | b) >> 1;
	free[2] = full & ~(cols[2] | left[2] | right[2]);
	while (depth >= 2) {
		u32 f = free[depth];
		if (f == 0) {
			depth--;
			continue;
		}
		u32 bit = f & -f;
		free[depth] = f ^ bit;
		if (depth == n - 1) {
			found++;
			continue;
		}
		cols[depth + 1] = cols[depth] | bit;
		left[depth + 1] = (left[depth] | bit) << 1;
		right[depth + 1] = (right[depth] | bit) >> 1;
		depth++;
		free[depth] = full & ~(cols[depth] | left[depth] | right[depth]);
	}
	atomicAdd(solutions, found);
}
