// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

// A product of 16x32 by 32x8 signed bytes with mma; b lies by columns.
KERNEL matmul_int8(const u32 *a, const u32 *b, s32 *c) {
	u32 t = threadIdx.x, group = t / 4, lane = t % 4;
	u32 a0 = a[group * 8 + lane], a1 = a[(group + 8) * 8 + lane], a2 = a[group * 8 + lane + 4], a3 = a[(group + 8) * 8 + lane + 4];
	u32 b0 = b[group * 8 + lane], b1 = b[group * 8 + lane + 4];
	s32 d[4];
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
		     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
		     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(-5));
	for (u32 i = 0; i < 4; i++)
		c[(group + i / 2 * 8) * 8 + lane * 2 + i % 2] = d[i];
}
