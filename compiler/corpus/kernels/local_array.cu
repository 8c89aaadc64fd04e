// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// An array of each thread's own, with indices that are known at run time only.
KERNEL local_array(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v[24];
#pragma unroll 1
	for (u32 j = 0; j < 24; j++)
		v[j] = in[(i + j * 7) % n];
#pragma unroll 1
	for (u32 j = 1; j < 24; j++) {
		u32 x = v[j], k = j;
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
	out[2 * i] = v[12];
	out[2 * i + 1] = v[in[i] % 24];
}
