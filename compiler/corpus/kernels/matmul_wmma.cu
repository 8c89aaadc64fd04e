// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Tiles of 16 by 16 halves, a warp each, the sum in 32 bits; b lies by columns.
KERNEL matmul_wmma(const u16 *a, const u16 *b, float *c, u32 n) {
	u32 row = blockIdx.y * 16, col = blockIdx.x * 16;
	float acc[8] = {};
#pragma unroll 1
	for (u32 k = 0; k < n; k += 16) {
		s32 fa[8], fb[8];
		__hmma_m16n16k16_ld_a(fa, (const s32 *)(a + row * n + k), n, 0);
		__hmma_m16n16k16_ld_b(fb, (const s32 *)(b + col * n + k), n, 1);
		__hmma_m16n16k16_mma_f32f32(acc, fa, fb, acc, 1, 0);
	}
	__hmma_m16n16k16_st_c_f32(c + row * n + col, acc, n, 0);
}
