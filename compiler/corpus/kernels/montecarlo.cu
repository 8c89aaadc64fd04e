// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Darts: how many of each thread's hit the circle; a generator of random numbers.
KERNEL montecarlo(u32 seed, u32 darts, u32 *hits) {
	u64 s = (u64)(seed + global_thread()) * 6364136223846793005ull + 1442695040888963407ull;
	u32 hit = 0;
#pragma unroll 1
	for (u32 i = 0; i < darts; i++) {
		float p[2];
		for (u32 k = 0; k < 2; k++) {
			s = s * 6364136223846793005ull + 1442695040888963407ull;
			u32 x = (u32)((s >> 18 ^ s) >> 27), r = s >> 59;
			x = x >> r | x << (-r & 31);
			p[k] = (float)(x >> 8) * 0x1p-24f;
		}
		hit += fmaf(p[0], p[0], p[1] * p[1]) < 1.0f;
	}
	for (u32 d = 16; d > 0; d /= 2)
		hit += __shfl_down_sync(FULL, hit, d);
	if (lane_id() == 0)
		atomicAdd(hits, hit);
}
