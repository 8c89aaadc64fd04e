// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// 32-bit integers: what C says, and the instructions that it has no words for.
KERNEL int32(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 24 * i;
	s32 sa = a, sb = b;
	o[0] = a + b;
	o[1] = a - b;
	o[2] = a * b;
	ASM2("mul.hi.u32", "r", o[3], a, b);
	ASM2("mul.hi.s32", "r", o[4], a, b);
	o[5] = a / (b | 1);
	o[6] = a % (b | 1);
	o[7] = sa / (sb | 3);
	o[8] = sa % (sb | 3);
	o[9] = min(a, b);
	o[10] = max(sa, sb);
	ASM1("abs.s32", "r", o[11], a);
	// Shifts by 32 and more give what is shifted in.
	ASM2("shl.b32", "r", o[12], a, b & 63);
	ASM2("shr.u32", "r", o[13], a, b & 63);
	ASM2("shr.s32", "r", o[14], a, b & 63);
	ASM3("mad.lo.s32", "r", o[15], a, b, c);
	ASM3("mad.hi.u32", "r", o[16], a, b, c);
	ASM3("sad.s32", "r", o[17], a, b, c);
	ASM2("mul24.lo.s32", "r", o[18], a, b);
	ASM2("mul24.hi.u32", "r", o[19], a, b);
	ASM1("neg.s32", "r", o[20], a);
	ASM2("add.sat.s32", "r", o[21], a, b);
	ASM2("sub.sat.s32", "r", o[22], a, b);
	ASM3("mad24.lo.u32", "r", o[23], a, b, c);
}
