// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Keeps the odd values of each block in their order: votes say where each goes.
KERNEL compact(const u32 *in, u32 *out, u32 *counts) {
	__shared__ u32 warps[8];
	u32 t = threadIdx.x, warp = t / 32, v = in[global_thread()];
	bool keep = v & 1;
	u32 votes = __ballot_sync(FULL, keep);
	if (lane_id() == 0)
		warps[warp] = __popc(votes);
	__syncthreads();
	u32 before = 0, total = 0;
	for (u32 w = 0; w < blockDim.x / 32; w++) {
		if (w == warp)
			before = total;
		total += warps[w];
	}
	if (keep)
		out[blockIdx.x * blockDim.x + before + __popc(votes & lanemask_lt())] = v;
	if (t == 0)
		counts[blockIdx.x] = total;
}
