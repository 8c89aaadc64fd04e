// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL float64(const double *in, double *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	double a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + 16 * i;
	o[0] = a + b;
	o[1] = a - b;
	o[2] = a * b;
	o[3] = a / b;
	o[4] = fma(a, b, c);
	o[5] = sqrt_rn(a < 0 ? -a : a);
	ASM2("min.f64", "d", o[6], a, b);
	ASM2("max.f64", "d", o[7], a, b);
	ASM1("abs.f64", "d", o[8], a);
	ASM2("add.rz.f64", "d", o[9], a, b);
	ASM2("mul.rm.f64", "d", o[10], a, b);
	ASM3("fma.rp.f64", "d", o[11], a, b, c);
	ASM2("div.rm.f64", "d", o[12], a, b);
	ASM1("sqrt.rz.f64", "d", o[13], b < 0 ? -b : b);
	ASM1("rcp.rp.f64", "d", o[14], b);
	ASM2("copysign.f64", "d", o[15], a, b);
}
