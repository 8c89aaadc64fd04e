// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Numbers of 8 and of 19 bits, as matrix units take them.

// 10 bits of significand; the other 13 are zero. Modes as in softfloat.cl.
static uint hg_to_tf32(uint a, int mode)
{
	if ((a & 0x7fffffff) > 0x7f800000)
		return 0x7fffffff;
	if ((a & 0x7fffffff) != 0x7f800000)
		a += mode == 4 ? 0x1000 : mode == 0 ? 0xfff + (a >> 13 & 1) : 0;
	return a & 0xffffe000u;
}

// To e5m2, with the largest number instead of infinity (satfinite).
static uint hg_to_e5m2(float x, bool relu)
{
	uint r;

	if (x != x)
		return 0x7f;
	if (relu && !(x > 0.0f))
		return 0;
	r = (uint)hg_soft_cvt(as_uint(x), 24, 8, 3, 5, 0);
	return (r & 0x7f) >= 0x7c ? (r & 0x80) | 0x7b : r;
}

// To e4m3, which has no infinity: 448 is its largest number, 0x7f NaN.
static uint hg_to_e4m3(float x, bool relu)
{
	uint r;

	if (x != x)
		return 0x7f;
	if (relu && !(x > 0.0f))
		return 0;
	if (fabs(x) >= 448.0f)
		return (as_uint(x) >> 24 & 0x80) | 0x7e;
	// The same numbers with one more bit of exponent, and half the bias away.
	struct hg_num n = hg_unpack(as_uint(x), 24, 8);
	if (n.m == 0)
		return n.sign << 7;
	int drop = n.e < -6 ? 60 + (-6 - n.e) : 60;
	ulong m = hg_jam(n.m, drop - 2), q = m >> 2;
	if ((m & 3) > 2 || ((m & 3) == 2 && q & 1))
		q++;
	r = n.e < -6 ? (uint)q : (uint)(n.e + 6) * 8 + (uint)q;
	return n.sign << 7 | r;
}

// To halves: exact.
static uint hg_from_e5m2(uchar a, bool relu)
{
	uint r = (uint)a << 8;

	if ((a & 0x7f) > 0x7c)
		return 0x7fff;
	return relu && r >> 15 ? 0 : r;
}

static uint hg_from_e4m3(uchar a, bool relu)
{
	uint e = a >> 3 & 15, m = a & 7;
	float x = e == 0 ? (float)m * 0x1p-9f : as_float((e + 120) << 23 | m << 20);

	if ((a & 0x7f) == 0x7f)
		return 0x7fff;
	if (a >> 7)
		x = relu ? 0.0f : -x;
	return hg_to_f16(x);
}
