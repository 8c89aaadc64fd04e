// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A warp a row: mean and variance by shuffles, then the row scaled.
KERNEL layernorm(const float *in, float *out, const float *gain, u32 n) {
	u32 lane = lane_id(), row = global_thread() / 32;
	float sum = 0, squares = 0;
	for (u32 i = lane; i < n; i += 32)
		sum += in[row * n + i];
	for (u32 d = 16; d > 0; d /= 2)
		sum += shfl_xor_float(FULL, sum, d);
	float mean = sum / (float)n;
	for (u32 i = lane; i < n; i += 32) {
		float d = in[row * n + i] - mean;
		squares = fmaf(d, d, squares);
	}
	for (u32 d = 16; d > 0; d /= 2)
		squares += shfl_xor_float(FULL, squares, d);
	float scale = rsqrt_approx(squares / (float)n + 1e-5f);
	for (u32 i = lane; i < n; i += 32)
		out[row * n + i] = (in[row * n + i] - mean) * scale * gain[i];
}
