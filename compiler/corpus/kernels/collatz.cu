// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Threads of a warp leave the loop at different times, some in its middle.
KERNEL collatz(const u32 *in, u32 *steps, u32 n, u32 limit) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u64 v = in[i];
	u32 k = 0;
	while (v != 1) {
		if (k == limit) {
			steps[i] = FULL;
			return;
		}
		v = v & 1 ? 3 * v + 1 : v / 2;
		k++;
	}
	steps[i] = k;
}
