// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// One pattern for every NaN.
DEVICE u64 bits(float f) { return f != f ? 0x7fffffff : __builtin_bit_cast(u32, f); }
DEVICE u64 bits(double f) { return f != f ? 0x7fffffffffffffff : __builtin_bit_cast(u64, f); }

// Conversions: to integers they saturate, NaN gives 0 or the
// smallest number.
KERNEL convert(const float *floats, const double *doubles, const s64 *longs, u64 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	float f = floats[i];
	double d = doubles[i];
	s64 l = longs[i];
	u64 *o = out + 24 * i;
	u32 r;
	float g;
	double h;
	CVT("cvt.rzi.s32.f32", "r", r, "f", f); o[0] = r;
	CVT("cvt.rni.u32.f32", "r", r, "f", f); o[1] = r;
	CVT("cvt.rmi.s32.f32", "r", r, "f", f); o[2] = r;
	CVT("cvt.rpi.s64.f32", "l", o[3], "f", f);
	CVT("cvt.rzi.u64.f32", "l", o[4], "f", f);
	CVT("cvt.rni.s32.f64", "r", r, "d", d); o[5] = r;
	CVT("cvt.rzi.u64.f64", "l", o[6], "d", d);
	CVT("cvt.rmi.s64.f64", "l", o[7], "d", d);
	CVT("cvt.rn.f32.s64", "f", g, "l", l); o[8] = bits(g);
	CVT("cvt.rz.f32.u64", "f", g, "l", l); o[9] = bits(g);
	CVT("cvt.rp.f32.s32", "f", g, "r", (s32)l); o[10] = bits(g);
	CVT("cvt.rn.f64.s64", "d", h, "l", l); o[11] = bits(h);
	CVT("cvt.rm.f64.u64", "d", h, "l", l); o[12] = bits(h);
	CVT("cvt.rn.f32.f64", "f", g, "d", d); o[13] = bits(g);
	CVT("cvt.rz.f32.f64", "f", g, "d", d); o[14] = bits(g);
	CVT("cvt.f64.f32", "d", h, "f", f); o[15] = bits(h);
	CVT("cvt.rni.f32.f32", "f", g, "f", f); o[16] = bits(g);
	CVT("cvt.rpi.f64.f64", "d", h, "d", d); o[17] = bits(h);
	CVT("cvt.sat.f32.f32", "f", g, "f", f); o[18] = bits(g);
	CVT("cvt.sat.s8.s64", "r", r, "l", l); o[19] = r;
	CVT("cvt.sat.u16.s64", "r", r, "l", l); o[20] = r;
	CVT("cvt.sat.u32.s64", "r", r, "l", l); o[21] = r;
	o[22] = (s64)(signed char)l;
	o[23] = (u64)(u16)l;
}
