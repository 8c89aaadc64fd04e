// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A loop that each thread leaves when it knows.
KERNEL mandelbrot(u16 *out, u32 w, u32 h, float scale, u32 limit) {
	u32 px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
	if (px >= w || py >= h)
		return;
	float cx = fmaf((float)px, scale, -2.0f), cy = fmaf((float)py, scale, -1.2f), x = 0, y = 0;
	u32 i = 0;
	for (; i < limit; i++) {
		float xx = x * x, yy = y * y;
		if (xx + yy > 4.0f)
			break;
		y = fmaf(2.0f * x, y, cy);
		x = xx - yy + cx;
	}
	out[py * w + px] = i;
}
