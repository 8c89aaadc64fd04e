// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define LOG2E 1.4426950408889634f

DEVICE float block_max(float v, float *shared) {
	for (u32 d = 16; d > 0; d /= 2)
		v = fmaxf(v, shfl_xor_float(FULL, v, d));
	if (lane_id() == 0)
		shared[threadIdx.x / 32] = v;
	__syncthreads();
	v = shared[0];
	for (u32 w = 1; w < blockDim.x / 32; w++)
		v = fmaxf(v, shared[w]);
	__syncthreads();
	return v;
}

DEVICE float block_sum(float v, float *shared) {
	for (u32 d = 16; d > 0; d /= 2)
		v += shfl_xor_float(FULL, v, d);
	if (lane_id() == 0)
		shared[threadIdx.x / 32] = v;
	__syncthreads();
	v = shared[0];
	for (u32 w = 1; w < blockDim.x / 32; w++)
		v += shared[w];
	__syncthreads();
	return v;
}

// A block a row.
KERNEL softmax(const float *in, float *out, u32 n) {
	__shared__ float shared[32];
	const float *row = in + blockIdx.x * n;
	float most = -__builtin_inff(), sum = 0;
	for (u32 i = threadIdx.x; i < n; i += blockDim.x)
		most = fmaxf(most, row[i]);
	most = block_max(most, shared);
	for (u32 i = threadIdx.x; i < n; i += blockDim.x)
		sum += exp2_approx((row[i] - most) * LOG2E);
	sum = block_sum(sum, shared);
	for (u32 i = threadIdx.x; i < n; i += blockDim.x)
		out[blockIdx.x * n + i] = exp2_approx((row[i] - most) * LOG2E) / sum;
}
