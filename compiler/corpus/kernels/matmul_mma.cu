// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

// A product of 16x16 by 16x8 halves with mma, its operands from shared memory by
// ldmatrix.
KERNEL matmul_mma(const u16 *a, const u16 *b, float *c) {
	__shared__ __attribute__((aligned(16))) u16 as[16][16], bs[16][8];
	u32 t = threadIdx.x;
	for (u32 i = t; i < 256; i += 32)
		as[i / 16][i % 16] = a[i];
	for (u32 i = t; i < 128; i += 32)
		bs[i / 8][i % 8] = b[i];
	__syncthreads();
	u32 fa[4], fb[2];
	// The generic address of shared memory is a 64-bit one; the instruction wants
	// that of the space.
	u64 pa = (u64)__builtin_addressof(as[t % 16][t / 16 * 8]), pb = (u64)__builtin_addressof(bs[t % 16][0]);
	asm volatile("{.reg .b64 p; cvta.to.shared.u64 p, %4; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [p];}"
		     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "l"(pa) : "memory");
	asm volatile("{.reg .b64 p; cvta.to.shared.u64 p, %2; ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [p];}"
		     : "=r"(fb[0]), "=r"(fb[1]) : "l"(pb) : "memory");
	float d[4];
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
		     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
		     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "f"(1.0f));
	u32 row = t / 4, col = t % 4 * 2;
	c[row * 8 + col] = d[0];
	c[row * 8 + col + 1] = d[1];
	c[(row + 8) * 8 + col] = d[2];
	c[(row + 8) * 8 + col + 1] = d[3];
}
