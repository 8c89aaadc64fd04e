// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Prefix sums by shuffles: of each warp, then of the warps' sums.
DEVICE u32 scan(u32 v) {
	for (u32 d = 1; d < 32; d *= 2) {
		u32 below = __shfl_up_sync(FULL, v, d);
		if (lane_id() >= d)
			v += below;
	}
	return v;
}

KERNEL scan_warp(const u32 *in, u32 *out) {
	__shared__ u32 warps[32];
	u32 t = threadIdx.x, v = scan(in[global_thread()]);
	if (t % 32 == 31)
		warps[t / 32] = v;
	__syncthreads();
	if (t < 32)
		warps[t] = scan(t < blockDim.x / 32 ? warps[t] : 0);
	__syncthreads();
	out[global_thread()] = v + (t >= 32 ? warps[t / 32 - 1] : 0);
}
