// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

DEVICE u32 warp_sum(u32 v) {
	for (u32 d = 16; d > 0; d /= 2)
		v += __shfl_down_sync(FULL, v, d);
	return v;
}

KERNEL reduce_shuffle(const u32 *in, u32 *out, u32 n) {
	__shared__ u32 warps[32];
	u32 sum = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	for (u32 i = global_thread(); i < n; i += global_threads())
		sum += in[i];
	sum = warp_sum(sum);
	if (lane == 0)
		warps[warp] = sum;
	__syncthreads();
	if (warp == 0) {
		sum = warp_sum(lane < blockDim.x / 32 ? warps[lane] : 0);
		if (lane == 0)
			atomicAdd(out, sum);
	}
}
