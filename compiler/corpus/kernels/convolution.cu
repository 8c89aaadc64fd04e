// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A filter in constant memory, which the host writes.
__constant__ float filter[5][5];

KERNEL convolution(const float *in, float *out, u32 w, u32 h) {
	u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= w || y >= h)
		return;
	float sum = 0;
#pragma unroll 1
	for (s32 dy = -2; dy <= 2; dy++)
		for (s32 dx = -2; dx <= 2; dx++) {
			s32 cx = min(max((s32)x + dx, 0), (s32)w - 1), cy = min(max((s32)y + dy, 0), (s32)h - 1);
			sum = fmaf(in[cy * w + cx], filter[dy + 2][dx + 2], sum);
		}
	out[y * w + x] = sum;
}
