// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_75
#include "cuda.h"

// The functions of which PTX says how far they may be off.
KERNEL approx(const float *in, float *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	float a = in[i], p = a < 0 ? -a : a, *o = out + 10 * i;
	o[0] = exp2_approx(a);
	o[1] = log2_approx(p + 2);
	o[2] = sin_approx(a * 0.2f);
	o[3] = cos_approx(a * 0.2f);
	o[4] = rsqrt_approx(p + 0.25f);
	ASM1("rcp.approx.f32", "f", o[5], p + 0.5f);
	ASM1("sqrt.approx.f32", "f", o[6], p);
	asm("div.approx.f32 %0, %1, %2;" : "=f"(o[7]) : "f"(a), "f"(p + 1));
	asm("div.full.f32 %0, %1, %2;" : "=f"(o[8]) : "f"(a), "f"(p + 3));
	ASM1("tanh.approx.f32", "f", o[9], a);
}
