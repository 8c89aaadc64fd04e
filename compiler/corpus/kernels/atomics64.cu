// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL atomics64(const u64 *in, u64 *cells, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u64 v = in[i];
	atomicAdd(&cells[0], v);
	atomicAnd(&cells[1], v | 0x00ff00ff00ff00ff);
	atomicOr(&cells[2], v & 0x0f0f0f0f0f0f0f0f);
	atomicXor(&cells[3], v);
	atomicMin(&cells[4], v);
	atomicMax(&cells[5], v);
	atomicMin((s64 *)&cells[6], (s64)v);
	atomicMax((s64 *)&cells[7], (s64)v);
	atomicExch(&cells[8], 123ull);
	u64 old = cells[9], seen;
	do {
		seen = old;
		old = atomicCAS(&cells[9], seen, seen * 3 + 1);
	} while (old != seen);
	atomicAdd(&cells[10], atomicAdd(&cells[11], 1ull));
}
