// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Floating point: what PTX adds to OpenCL's operations.

// A result's bits: PTX has one NaN.
static uint hg_bits_f32(float x) { return x != x ? 0x7fffffffu : as_uint(x); }

static ulong hg_bits_f64(double x) { return x != x ? 0x7ff8000000000000UL : as_ulong(x); }

// Subnormal numbers count as zeroes with their sign.
static float hg_ftz_f32(float x) { return fabs(x) < 0x1p-126f ? as_float(as_uint(x) & 0x80000000u) : x; }

static double hg_ftz_f64(double x) { return fabs(x) < 0x1p-1022 ? as_double(as_ulong(x) & 1UL << 63) : x; }

static float hg_ftz_f16(float x) { return fabs(x) < 0x1p-14f ? as_float(as_uint(x) & 0x80000000u) : x; }

static float hg_ftz_bf16(float x) { return hg_ftz_f32(x); }

// Between 0 and 1; NaN gives +0.
static float hg_sat_f32(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

static double hg_sat_f64(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }

// -0 is less than +0; a NaN gives way to a number.
static float hg_min_f32(float a, float b)
{
	if (a != a || b != b)
		return a != a && b != b ? as_float(0x7fffffff) : a != a ? b : a;
	return a == b ? as_float(as_uint(a) | as_uint(b)) : a < b ? a : b;
}

static float hg_max_f32(float a, float b)
{
	if (a != a || b != b)
		return a != a && b != b ? as_float(0x7fffffff) : a != a ? b : a;
	return a == b ? as_float(as_uint(a) & as_uint(b)) : a > b ? a : b;
}

static double hg_min_f64(double a, double b)
{
	if (a != a || b != b)
		return a != a && b != b ? as_double(0x7ff8000000000000UL) : a != a ? b : a;
	return a == b ? as_double(as_ulong(a) | as_ulong(b)) : a < b ? a : b;
}

static double hg_max_f64(double a, double b)
{
	if (a != a || b != b)
		return a != a && b != b ? as_double(0x7ff8000000000000UL) : a != a ? b : a;
	return a == b ? as_double(as_ulong(a) & as_ulong(b)) : a > b ? a : b;
}

// A NaN is the result if there is one.
static float hg_min_nan_f32(float a, float b) { return a != a || b != b ? as_float(0x7fffffff) : hg_min_f32(a, b); }

static float hg_max_nan_f32(float a, float b) { return a != a || b != b ? as_float(0x7fffffff) : hg_max_f32(a, b); }

// The numbers' signs, xored, are the result's.
static float hg_min_xorsign_f32(float a, float b)
{
	if (a != a && b != b)
		return as_float(0x7fffffff);
	return as_float(as_uint(hg_min_f32(fabs(a), fabs(b))) | ((as_uint(a) ^ as_uint(b)) & 0x80000000u));
}

static float hg_max_xorsign_f32(float a, float b)
{
	if (a != a && b != b)
		return as_float(0x7fffffff);
	return as_float(as_uint(hg_max_f32(fabs(a), fabs(b))) | ((as_uint(a) ^ as_uint(b)) & 0x80000000u));
}

static float hg_min_nan_xorsign_f32(float a, float b) { return a != a || b != b ? as_float(0x7fffffff) : hg_min_xorsign_f32(a, b); }

static float hg_max_nan_xorsign_f32(float a, float b) { return a != a || b != b ? as_float(0x7fffffff) : hg_max_xorsign_f32(a, b); }

// Negative numbers become +0.
static float hg_relu_f32(float x) { return x != x ? as_float(0x7fffffff) : x > 0.0f ? x : 0.0f; }

static float hg_from_f16(ushort h)
{
	uint s = (uint)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;

	if (e == 31)
		return as_float(s | 0x7f800000u | m << 13);
	if (e == 0)
		return as_float(s | as_uint((float)m * 0x1p-24f));
	return as_float(s | (e + 112) << 23 | m << 13);
}

// To the nearest.
static ushort hg_to_f16(float x)
{
	uint a = as_uint(x), s = a >> 16 & 0x8000, m;
	int e = (int)(a >> 23 & 255);

	a &= 0x7fffffffu;
	if (a > 0x7f800000u)
		return 0x7fff;
	if (a >= 0x477ff000u) // 65520 and more
		return (ushort)(s | 0x7c00);
	if (e >= 113) { // normal
		m = a + 0xfff + (a >> 13 & 1);
		return (ushort)(s | ((m >> 13) - (112 << 10)));
	}
	if (e < 102)
		return (ushort)s;
	m = (a & 0x7fffff) | 0x800000;
	e = 126 - e; // 13 + 113 - e
	uint q = m >> e, rem = m & ((1u << e) - 1), tie = 1u << (e - 1);
	return (ushort)(s | (q + (rem > tie || (rem == tie && q & 1))));
}

static float hg_from_bf16(ushort h) { return as_float((uint)h << 16); }

static ushort hg_to_bf16(float x)
{
	uint a = as_uint(x);

	return x != x ? 0x7fff : (ushort)((a + 0x7fff + (a >> 16 & 1)) >> 16);
}

// a*b is exact in a float; the sum is rounded to odd, and then once more.
static ushort hg_fma_f16(ushort a, ushort b, ushort c)
{
	float p = hg_from_f16(a) * hg_from_f16(b), z = hg_from_f16(c), s = p + z, t = s - p,
		e = (p - (s - t)) + (z - t);
	uint r = as_uint(s);

	if (isfinite(s) && e != 0.0f && (r & 1) == 0)
		r += (e > 0.0f) == (s > 0.0f) ? 1 : ~0u;
	return hg_to_f16(as_float(r));
}

static uint hg_testp(ulong a, int p, int eb, uint test)
{
	ulong top = 1UL << (p - 1 + eb), v = a & ~top, min = 1UL << (p - 1);
	bool inf = hg_isinf(a, p, eb), nan = hg_isnan(a, p, eb);

	return test == 0 ? !inf && !nan : test == 1 ? inf : test == 2 ? !nan : test == 3 ? nan
		: test == 4 ? (v >= min || v == 0) && !inf && !nan : v != 0 && v < min;
}

// To integers: the value has been rounded; beyond the ends it is the end. NaN is
// 0, or the highest bit if one of both types has 64 bits.
static uint hg_f32_u32(float x) { return x > 0.0f ? (x >= 0x1p32f ? ~0u : (uint)x) : 0; }

static int hg_f32_s32(float x) { return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? as_int(1u << 31) : (int)x; }

static ulong hg_f32_u64(float x) { return x != x ? 1UL << 63 : x > 0.0f ? (x >= 0x1p64f ? ~0UL : (ulong)x) : 0; }

static long hg_f32_s64(float x) { return x != x || x < -0x1p63f ? as_long(1UL << 63) : x >= 0x1p63f ? 0x7fffffffffffffffL : (long)x; }

static uint hg_f64_u32(double x) { return x != x ? 1u << 31 : x > 0.0 ? (x >= 0x1p32 ? ~0u : (uint)x) : 0; }

static int hg_f64_s32(double x) { return x != x || x < -0x1p31 ? as_int(1u << 31) : x >= 0x1p31 ? 0x7fffffff : (int)x; }

static ulong hg_f64_u64(double x) { return x != x ? 1UL << 63 : x > 0.0 ? (x >= 0x1p64 ? ~0UL : (ulong)x) : 0; }

static long hg_f64_s64(double x) { return x != x || x < -0x1p63 ? as_long(1UL << 63) : x >= 0x1p63 ? 0x7fffffffffffffffL : (long)x; }
