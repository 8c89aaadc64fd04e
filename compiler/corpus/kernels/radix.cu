// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A radix sort, four bits a pass: count the digits of each block, add up the counts
// of all blocks, then move each number to its place. Numbers with the same digit
// keep their order.
KERNEL radix_count(const u32 *in, u32 *counts, u32 shift) {
	__shared__ u32 own[16];
	u32 t = threadIdx.x;
	if (t < 16)
		own[t] = 0;
	__syncthreads();
	atomicAdd(&own[in[global_thread()] >> shift & 15], 1u);
	__syncthreads();
	if (t < 16)
		counts[t * gridDim.x + blockIdx.x] = own[t];
}

KERNEL radix_scan(u32 *counts, u32 n) {
	__shared__ u32 v[128];
	u32 t = threadIdx.x, mine = t < n ? counts[t] : 0;
	v[t] = mine;
	__syncthreads();
#pragma unroll 1
	for (u32 d = 1; d < blockDim.x; d *= 2) {
		u32 below = t >= d ? v[t - d] : 0;
		__syncthreads();
		v[t] += below;
		__syncthreads();
	}
	if (t < n)
		counts[t] = v[t] - mine;
}

KERNEL radix_move(const u32 *in, u32 *out, const u32 *places, u32 shift) {
	__shared__ u8 digits[64];
	u32 t = threadIdx.x, v = in[global_thread()], digit = v >> shift & 15, before = 0;
	digits[t] = digit;
	__syncthreads();
#pragma unroll 1
	for (u32 i = 0; i < t; i++)
		before += digits[i] == digit;
	out[places[digit * gridDim.x + blockIdx.x] + before] = v;
}
