// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A function that calls itself twice, and one that needs its caller's stack.
__device__ __noinline__ u32 ackermann(u32 m, u32 n) {
	if (m == 0)
		return n + 1;
	return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__device__ __noinline__ u32 tree(const u32 *keys, u32 from, u32 to, u32 depth) {
	if (from >= to)
		return depth;
	u32 middle = (from + to) / 2, left = tree(keys, from, middle, depth + 1);
	return keys[middle] * 3 + left * 5 + tree(keys, middle + 1, to, depth + 1) * 7;
}

KERNEL recursion(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	out[2 * i] = ackermann(in[i] % 3, in[i] / 4 % 4);
	out[2 * i + 1] = tree(in, i, i + in[i] % 12, 1);
}
