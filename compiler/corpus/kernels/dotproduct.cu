// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Products of bytes, four at a time, and of 16-bit numbers with bytes, two at a time.
KERNEL dotproduct(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 6 * i;
	ASM3("dp4a.u32.u32", "r", o[0], a, b, c);
	ASM3("dp4a.s32.s32", "r", o[1], a, b, c);
	ASM3("dp4a.u32.s32", "r", o[2], a, b, c);
	ASM3("dp2a.lo.u32.u32", "r", o[3], a, b, c);
	ASM3("dp2a.hi.s32.s32", "r", o[4], a, b, c);
	ASM3("dp2a.lo.s32.u32", "r", o[5], a, b, c);
}
