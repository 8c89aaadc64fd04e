// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// All ways to shuffle: modes, parts of a warp, distances that leave them, whether a
// thread got another's value, and a warp whose halves go different ways.
KERNEL shuffles(const u32 *in, u32 *out) {
	u32 v = in[global_thread()], *o = out + 14 * global_thread(), lane = lane_id(), p;
	o[0] = __shfl_sync(FULL, v, 7);
	o[1] = __shfl_sync(FULL, v, lane * 5 + 3, 8);
	o[2] = __shfl_up_sync(FULL, v, 3);
	o[3] = __shfl_up_sync(FULL, v, lane / 4, 16);
	o[4] = __shfl_down_sync(FULL, v, 9);
	o[5] = __shfl_down_sync(FULL, v, 2, 4);
	o[6] = __shfl_xor_sync(FULL, v, 21);
	o[7] = __shfl_xor_sync(FULL, v, lane & 3, 4);
	asm volatile("{.reg .pred p; shfl.sync.up.b32 %0|p, %2, 5, 0x800, 0xffffffff; selp.u32 %1, 1, 0, p;}" : "=r"(o[8]), "=r"(p) : "r"(v));
	o[9] = p;
	asm volatile("{.reg .pred p; shfl.sync.idx.b32 %0|p, %2, %3, 0x1017, 0xffffffff; selp.u32 %1, 1, 0, p;}" : "=r"(o[10]), "=r"(p) : "r"(v), "r"(lane + 6));
	o[11] = p;
	if (lane < 16)
		o[12] = __shfl_xor_sync(0xffff, v, 8);
	else
		o[12] = __shfl_xor_sync(0xffff0000, v, 1) + 1;
	o[13] = __shfl_sync(FULL, v, lane / 2);
}
