// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Blocks in a row: each round of a block needs what the block before it made in
// that round. All threads wait together, with barriers in the loop.
KERNEL pipeline(const u32 *in, volatile u32 *steps, volatile u32 *made, u32 rounds) {
	__shared__ u32 ready, v[64];
	u32 t = threadIdx.x, b = blockIdx.x, x = in[b * 64 + t];
	for (u32 r = 0; r < rounds; r++) {
		do {
			__syncthreads();
			if (t == 0)
				ready = b == 0 ? rounds : made[b - 1];
			__syncthreads();
		} while (ready <= r);
		v[t] = b == 0 ? r : steps[((b - 1) * rounds + r) * 64 + t];
		__syncthreads();
		x = rotl(x, 3) + v[(t + 7) % 64] * 0x9e3779b9;
		steps[(b * rounds + r) * 64 + t] = x;
		__threadfence();
		__syncthreads();
		if (t == 0)
			made[b] = r + 1;
	}
}
