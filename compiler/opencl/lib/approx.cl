// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Approximate functions: OpenCL's own, which are at least as exact as PTX asks.

static float hg_rsqrt_f32(float x) { return x == 0.0f ? as_float((as_uint(x) & 0x80000000u) | 0x7f800000u) : 1.0f / sqrt(x); }

static double hg_rsqrt_f64(double x) { return x == 0.0 ? as_double((as_ulong(x) & 1UL << 63) | 0x7ffUL << 52) : 1.0 / sqrt(x); }

static float hg_lg2_f32(float x) { return x == 0.0f ? as_float(0xff800000u) : log2(x); }

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read and write the upper half only.
static ulong hg_gross(double y) { return y != y ? 0x7ff8000000000000UL : as_ulong(hg_ftz_f64(as_double(isinf(y) ? as_ulong(y) : (as_ulong(y) + (1UL << 31)) & ~0xffffffffUL))); }

static ulong hg_gross_rcp(ulong a) { return hg_gross(1.0 / hg_ftz_f64(as_double(a & ~0xffffffffUL))); }

static ulong hg_gross_rsqrt(ulong a) { return hg_gross(hg_rsqrt_f64(hg_ftz_f64(as_double(a & ~0xffffffffUL)))); }
