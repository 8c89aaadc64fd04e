// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Sum, minimum and maximum of signed numbers; two loads of 16 bytes a round.
KERNEL reduce_atomic(const uint4 *in, u64 *sum, s32 *least, s32 *most, u32 n) {
	u64 s = 0;
	s32 lo = 0x7fffffff, hi = -lo - 1;
	for (u32 i = global_thread(); i < n; i += global_threads()) {
		uint4 v = in[i];
		s += (u64)v.x + v.y + v.z + v.w;
		lo = min(min(lo, (s32)v.x), min((s32)v.y, min((s32)v.z, (s32)v.w)));
		hi = max(max(hi, (s32)v.x), max((s32)v.y, max((s32)v.z, (s32)v.w)));
	}
	atomicAdd(sum, s);
	atomicMin(least, lo);
	atomicMax(most, hi);
}
