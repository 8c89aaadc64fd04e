// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL bits(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 24 * i;
	u64 w = (u64)a << 32 | b;
	o[0] = __popc(a);
	o[1] = __clz(a);
	ASM1("brev.b32", "r", o[2], a);
	o[3] = __ffs(a);
	ASM1("bfind.u32", "r", o[4], a);
	ASM1("bfind.s32", "r", o[5], a);
	ASM1("bfind.shiftamt.u32", "r", o[6], a);
	// Position and length come from the lowest byte.
	ASM3("bfe.u32", "r", o[7], a, b, c);
	ASM3("bfe.s32", "r", o[8], a, b, c & 0x3f);
	asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(o[9]) : "r"(a), "r"(b), "r"(c & 31), "r"(b & 15));
	asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(o[10]) : "r"(a), "r"(b), "r"(c));
	asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(o[11]) : "r"(a), "r"(b), "r"(c));
	ASM3("prmt.b32", "r", o[12], a, b, c);
	ASM3("prmt.b32.f4e", "r", o[13], a, b, c);
	ASM3("prmt.b32.rc16", "r", o[14], a, b, c);
	ASM3("shf.l.wrap.b32", "r", o[15], a, b, c);
	ASM3("shf.r.clamp.b32", "r", o[16], a, b, c & 63);
	o[17] = a & ~b;
	o[18] = a ^ b;
	ASM1("cnot.b32", "r", o[19], a & 1);
	asm("popc.b64 %0, %1;" : "=r"(o[20]) : "l"(w));
	asm("clz.b64 %0, %1;" : "=r"(o[21]) : "l"(w));
	asm("{.reg .b64 t; brev.b64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(o[22]) : "l"(w));
	asm("{.reg .b64 t; bfe.s64 t, %1, %2, %3; cvt.u32.u64 %0, t;}" : "=r"(o[23]) : "l"(w), "r"(c & 63), "r"(c >> 8 & 63));
}
