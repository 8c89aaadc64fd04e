// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A round of the game of life on a torus.
KERNEL life(const u8 *in, u8 *out, u32 w, u32 h) {
	u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= w || y >= h)
		return;
	u32 alive = 0;
	for (s32 dy = -1; dy <= 1; dy++)
		for (s32 dx = -1; dx <= 1; dx++)
			if (dx != 0 || dy != 0)
				alive += in[(y + h + dy) % h * w + (x + w + dx) % w];
	out[y * w + x] = alive == 3 || (alive == 2 && in[y * w + x]);
}
