// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A warp a row; the parts are added up by shuffles.
KERNEL matvec(const float *m, const float *v, float *out, u32 rows, u32 cols) {
	u32 row = global_thread() / 32, lane = lane_id();
	if (row >= rows)
		return;
	float sum = 0;
	for (u32 i = lane; i < cols; i += 32)
		sum = fmaf(m[row * cols + i], v[i], sum);
	for (u32 d = 16; d > 0; d /= 2)
		sum += shfl_xor_float(FULL, sum, d);
	if (lane == 0)
		out[row] = sum;
}
