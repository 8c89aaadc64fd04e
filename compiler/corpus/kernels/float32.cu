// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Bitwise what IEEE 754 says; without the approximate functions.
KERNEL float32(const float *in, float *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 24 * i;
	o[0] = a + b;
	o[1] = a - b;
	o[2] = a * b;
	o[3] = a / b;
	o[4] = fmaf(a, b, c);
	o[5] = sqrt_rn(a < 0 ? -a : a);
	ASM2("min.f32", "f", o[6], a, b);
	ASM2("max.f32", "f", o[7], a, b);
	ASM1("abs.f32", "f", o[8], a);
	ASM1("neg.f32", "f", o[9], a);
	ASM2("add.rz.f32", "f", o[10], a, b);
	ASM2("add.rm.f32", "f", o[11], a, b);
	ASM2("mul.rp.f32", "f", o[12], a, b);
	ASM2("mul.rz.f32", "f", o[13], a, b);
	ASM3("fma.rm.f32", "f", o[14], a, b, c);
	ASM3("fma.rp.f32", "f", o[15], a, b, c);
	ASM2("div.rz.f32", "f", o[16], a, b);
	ASM1("sqrt.rp.f32", "f", o[17], b < 0 ? -b : b);
	ASM1("rcp.rn.f32", "f", o[18], b);
	ASM2("add.sat.f32", "f", o[19], a, b);
	ASM3("fma.rn.sat.f32", "f", o[20], a, b, c);
	ASM2("add.ftz.f32", "f", o[21], a, b);
	ASM2("mul.ftz.f32", "f", o[22], a, b);
	ASM2("copysign.f32", "f", o[23], a, b);
}
