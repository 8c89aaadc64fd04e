// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Each thread goes round as often as its number says, before a barrier and behind the
// last one: a block can stop while some of its threads wait and some are in a loop.
KERNEL uneven(const u32 *in, u32 *out) {
	__shared__ u32 part[64];
	u32 t = threadIdx.x, x = in[global_thread()], h = x;
#pragma unroll 1
	for (u32 i = 0; i < x % 300; i++)
		h = (h ^ h >> 15) * 0x2c1b3c6d;
	part[t] = h;
	__syncthreads();
	u32 sum = 0;
#pragma unroll 1
	for (u32 i = 0; i <= t; i++)
		sum += part[i] ^ i;
	out[global_thread()] = sum;
}

// The same in a loop with two barriers, with loops in loops.
KERNEL uneven_rounds(const u32 *in, u32 *out, u32 rounds) {
	__shared__ u32 part[64];
	u32 t = threadIdx.x, x = in[global_thread()];
#pragma unroll 1
	for (u32 r = 0; r < rounds; r++) {
#pragma unroll 1
		for (u32 i = x % 5; i > 0; i--) {
#pragma unroll 1
			for (u32 j = t % 7 + i; j > 0; j--)
				x = (x ^ x >> 13) * 0x297a2d39 + j;
			x += i;
		}
		part[t] = x;
		__syncthreads();
		u32 other = part[(t + r) % blockDim.x];
#pragma unroll 1
		for (u32 i = other % 11; i > 0; i--)
			other = other / 2 + x;
		__syncthreads();
		x += other;
	}
	out[global_thread()] = x;
}
