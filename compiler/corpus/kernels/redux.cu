// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

// Reductions over the threads of a warp in one instruction, all of them and parts.
KERNEL redux(const u32 *in, u32 *out) {
	u32 v = in[global_thread()], *o = out + 8 * global_thread(), m = threadIdx.x & 1 ? 0xaaaaaaaa : 0x55555555;
#define REDUX(i, op, mask) asm volatile("redux.sync." op " %0, %1, %2;" : "=r"(o[i]) : "r"(v), "r"(mask))
	REDUX(0, "add.u32", FULL);
	REDUX(1, "min.u32", FULL);
	REDUX(2, "max.s32", FULL);
	REDUX(3, "xor.b32", FULL);
	if (threadIdx.x & 1) {
		REDUX(4, "and.b32", m);
		REDUX(5, "add.s32", m);
	} else {
		REDUX(4, "or.b32", m);
		REDUX(5, "min.s32", m);
	}
	REDUX(6, "max.u32", FULL);
	o[7] = v;
}
