// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define D 16
#define TILE 16
#define LOG2E 1.4426950408889634f

// Attention in one pass over keys and values, a tile at a time: the maximum and the
// sum so far are corrected when a larger score comes.
KERNEL attention(const float *q, const float *k, const float *v, float *out, u32 keys) {
	__shared__ float ks[TILE][D], vs[TILE][D];
	u32 t = threadIdx.x, row = global_thread();
	float mine[D], acc[D], most = -__builtin_inff(), sum = 0;
	for (u32 i = 0; i < D; i++) {
		mine[i] = q[row * D + i];
		acc[i] = 0;
	}
#pragma unroll 1
	for (u32 base = 0; base < keys; base += TILE) {
		for (u32 i = t; i < TILE * D; i += blockDim.x) {
			ks[i / D][i % D] = k[base * D + i];
			vs[i / D][i % D] = v[base * D + i];
		}
		__syncthreads();
#pragma unroll 1
		for (u32 j = 0; j < TILE; j++) {
			float score = 0;
			for (u32 i = 0; i < D; i++)
				score = fmaf(mine[i], ks[j][i], score);
			score *= 0.25f * LOG2E;
			if (score > most) {
				float c = exp2_approx(most - score);
				sum *= c;
				for (u32 i = 0; i < D; i++)
					acc[i] *= c;
				most = score;
			}
			float p = exp2_approx(score - most);
			sum += p;
			for (u32 i = 0; i < D; i++)
				acc[i] = fmaf(p, vs[j][i], acc[i]);
		}
		__syncthreads();
	}
	for (u32 i = 0; i < D; i++)
		out[row * D + i] = acc[i] / sum;
}
