// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Every operation on shared memory, 32 and 64 bits.
KERNEL atomics_shared(const u32 *in, u32 *words, u64 *longs, u32 n) {
	__shared__ u32 c[12];
	__shared__ u64 d[8];
	u32 t = threadIdx.x;
	if (t < 12)
		c[t] = words[t];
	if (t < 8)
		d[t] = longs[t];
	__syncthreads();
	for (u32 i = t; i < n; i += blockDim.x) {
		u32 v = in[i];
		u64 w = (u64)v << 32 | ~v;
		atomicAdd(&c[0], v);
		atomicAnd(&c[1], v | 0xf0f0f0f0);
		atomicOr(&c[2], v & 0x11111111);
		atomicXor(&c[3], v);
		atomicMin(&c[4], v);
		atomicMax((s32 *)&c[5], (s32)v);
		atomicInc(&c[6], 50);
		atomicDec(&c[7], 60);
		atomicExch(&c[8], 77);
		u32 old = c[9], seen;
		do {
			seen = old;
			old = atomicCAS(&c[9], seen, seen * 5 + 3);
		} while (old != seen);
		atomicAdd(&d[0], w);
		atomicAnd(&d[1], w | 0xff00ff00ff00ff00);
		atomicOr(&d[2], w & 0x0101010101010101);
		atomicXor(&d[3], w);
		atomicMin((s64 *)&d[4], (s64)w);
		atomicMax(&d[5], w);
		u64 old64 = d[6], seen64;
		do {
			seen64 = old64;
			old64 = atomicCAS(&d[6], seen64, seen64 * 7 + 1);
		} while (old64 != seen64);
		atomicExch(&d[7], 99ull);
	}
	__syncthreads();
	if (t < 12)
		words[t] = c[t];
	if (t < 8)
		longs[t] = d[t];
}
