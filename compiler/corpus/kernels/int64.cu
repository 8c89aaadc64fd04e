// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL int64(const u64 *in, u64 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u64 a = in[2 * i], b = in[2 * i + 1], *o = out + 16 * i;
	s64 sa = a, sb = b;
	o[0] = a + b;
	o[1] = a - b;
	o[2] = a * b;
	ASM2("mul.hi.u64", "l", o[3], a, b);
	ASM2("mul.hi.s64", "l", o[4], a, b);
	o[5] = a / (b | 1);
	o[6] = a % (b | 1);
	o[7] = sa / (sb | 3);
	o[8] = sa % (sb | 3);
	o[9] = min(sa, sb);
	o[10] = max(a, b);
	asm("shl.b64 %0, %1, %2;" : "=l"(o[11]) : "l"(a), "r"((u32)b & 127));
	asm("shr.s64 %0, %1, %2;" : "=l"(o[12]) : "l"(a), "r"((u32)b & 127));
	o[13] = (u64)(u32)a * (u32)b;
	o[14] = (s64)(s32)a * (s32)b;
	asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(o[15]) : "r"((u32)a), "r"((u32)b), "l"(a));
}
