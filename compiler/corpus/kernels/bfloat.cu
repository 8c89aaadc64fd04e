// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

KERNEL bfloat(const u16 *in, u16 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u16 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 10 * i;
	ASM3("fma.rn.bf16", "h", o[0], a, b, c);
	ASM3("fma.rn.relu.bf16", "h", o[1], a, b, c);
	ASM2("min.bf16", "h", o[2], a, b);
	ASM2("max.bf16", "h", o[3], a, b);
	ASM1("neg.bf16", "h", o[4], a);
	ASM1("abs.bf16", "h", o[5], a);
	float f = __builtin_bit_cast(float, (u32)a << 16);
	CVT("cvt.rn.bf16.f32", "h", o[6], "f", f * 1.003f);
	CVT("cvt.rz.bf16.f32", "h", o[7], "f", f * 1.003f);
	u32 x = (u32)b << 16 | a, y = (u32)a << 16 | c, z = (u32)c << 16 | b, r;
	ASM3("fma.rn.bf16x2", "r", r, x, y, z);
	o[8] = r, o[9] = r >> 16;
}
