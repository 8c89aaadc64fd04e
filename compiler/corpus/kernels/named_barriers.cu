// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Two warps make, two warps use: barriers of their own say "full" and "empty".
KERNEL named_barriers(const u32 *in, u32 *out, u32 rounds) {
	__shared__ u32 box[64];
	u32 t = threadIdx.x;
	if (t < 64) {
#pragma unroll 1
		for (u32 r = 0; r < rounds; r++) {
			if (r > 0)
				asm volatile("bar.sync 2, 128;" : : : "memory");
			box[t] = in[r * 64 + t] * 3;
			asm volatile("bar.arrive 1, 128;" : : : "memory");
		}
	} else {
		u32 sum = 0;
#pragma unroll 1
		for (u32 r = 0; r < rounds; r++) {
			asm volatile("bar.sync 1, 128;" : : : "memory");
			sum = sum * 7 + box[127 - t];
			if (r + 1 < rounds)
				asm volatile("bar.arrive 2, 128;" : : : "memory");
		}
		out[t - 64] = sum;
	}
}
