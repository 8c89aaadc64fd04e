// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL int16(const u16 *in, u16 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u16 a = in[2 * i], b = in[2 * i + 1], *o = out + 12 * i;
	ASM2("add.u16", "h", o[0], a, b);
	ASM2("sub.s16", "h", o[1], a, b);
	ASM2("mul.lo.u16", "h", o[2], a, b);
	ASM2("mul.hi.s16", "h", o[3], a, b);
	ASM2("div.u16", "h", o[4], a, (u16)(b | 1));
	ASM2("rem.s16", "h", o[5], a, (u16)(b | 3));
	ASM2("min.s16", "h", o[6], a, b);
	ASM2("max.u16", "h", o[7], a, b);
	ASM2("and.b16", "h", o[8], a, b);
	ASM1("not.b16", "h", o[9], a);
	asm("shr.s16 %0, %1, %2;" : "=h"(o[10]) : "h"(a), "r"((u32)b & 31));
	u32 wide;
	asm("mul.wide.s16 %0, %1, %2;" : "=r"(wide) : "h"(a), "h"(b));
	o[11] = wide >> 16 ^ wide;
}
