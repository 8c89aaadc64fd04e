// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// 16-bit floats, single and in pairs.
KERNEL float16(const u16 *in, u16 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u16 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 20 * i;
	ASM2("add.f16", "h", o[0], a, b);
	ASM2("sub.f16", "h", o[1], a, b);
	ASM2("mul.f16", "h", o[2], a, b);
	ASM3("fma.rn.f16", "h", o[3], a, b, c);
	ASM1("neg.f16", "h", o[4], a);
	ASM1("abs.f16", "h", o[5], a);
	ASM2("add.sat.f16", "h", o[6], a, b);
	float f;
	CVT("cvt.f32.f16", "f", f, "h", a);
	u32 bits = __builtin_bit_cast(u32, f);
	o[7] = bits >> 16;
	o[8] = bits;
	CVT("cvt.rn.f16.f32", "h", o[9], "f", f * 1.001f);
	CVT("cvt.rz.f16.f32", "h", o[10], "f", f * 1.001f);
	CVT("cvt.rzi.s16.f16", "h", o[11], "h", a);
	CVT("cvt.rn.f16.s32", "h", o[12], "r", (s32)a - b);
	u32 x = (u32)b << 16 | a, y = (u32)a << 16 | c, z = (u32)c << 16 | b, r;
	ASM2("add.f16x2", "r", r, x, y);
	o[13] = r, o[14] = r >> 16;
	ASM3("fma.rn.f16x2", "r", r, x, y, z);
	o[15] = r, o[16] = r >> 16;
	u32 lt;
	asm("{.reg .pred p; setp.lt.f16 p, %1, %2; selp.u32 %0, 1, 0, p;}" : "=r"(lt) : "h"(a), "h"(b));
	o[17] = lt;
	asm("{.reg .pred p, q; setp.geu.f16x2 p|q, %1, %2; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}" : "=&r"(lt) : "r"(x), "r"(y));
	o[18] = lt;
	double d;
	CVT("cvt.f64.f16", "d", d, "h", b);
	CVT("cvt.rn.f16.f64", "h", o[19], "d", d * 0.3);
}
