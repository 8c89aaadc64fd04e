// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Every operation on 32 bits of global memory. What an operation returns depends
// on the order; sums of it don't.
KERNEL atomics32(const u32 *in, u32 *cells, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v = in[i];
	atomicAdd(&cells[0], v);
	atomicSub(&cells[1], v);
	atomicAnd(&cells[2], v | 0x00ff00ff);
	atomicOr(&cells[3], v & 0x0f0f0f0f);
	atomicXor(&cells[4], v);
	atomicMin(&cells[5], v);
	atomicMax(&cells[6], v);
	atomicMin((s32 *)&cells[7], (s32)v);
	atomicMax((s32 *)&cells[8], (s32)v);
	atomicInc(&cells[9], 100);
	atomicDec(&cells[10], 70);
	atomicAdd(&cells[11], atomicExch(&cells[12], 5));
	u32 old = cells[13], seen;
	do {
		seen = old;
		old = atomicCAS(&cells[13], seen, seen * 3 + 1);
	} while (old != seen);
	atomicAdd(&cells[14], atomicAdd(&cells[15], 1u));
}
