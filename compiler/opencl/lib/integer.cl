// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Integers: what C leaves undefined and PTX defines.

static uint hg_shl_b32(uint a, uint n) { return n > 31 ? 0 : a << n; }

static ulong hg_shl_b64(ulong a, uint n) { return n > 63 ? 0 : a << n; }

static uint hg_shr_u32(uint a, uint n) { return n > 31 ? 0 : a >> n; }

static ulong hg_shr_u64(ulong a, uint n) { return n > 63 ? 0 : a >> n; }

static int hg_shr_s32(int a, uint n) { return a >> min(n, 31u); }

static long hg_shr_s64(long a, uint n) { return a >> min(n, 63u); }

// A division by zero gives all ones, its remainder the dividend; hardware does
// the same, and a CPU would stop the program.
static ulong hg_div_u64(ulong a, ulong b) { return b == 0 ? ~0UL : a / b; }

static ulong hg_rem_u64(ulong a, ulong b) { return b == 0 ? a : a % b; }

static uint hg_div_u32(uint a, uint b) { return b == 0 ? ~0u : a / b; }

static uint hg_rem_u32(uint a, uint b) { return b == 0 ? a : a % b; }

// INT_MIN / -1 is INT_MIN.
static int hg_div_s32(int a, int b) { return b == 0 ? -1 : b == -1 ? as_int(0u - as_uint(a)) : a / b; }

static int hg_rem_s32(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }

static long hg_div_s64(long a, long b) { return b == 0 ? -1L : b == -1 ? as_long(0UL - as_ulong(a)) : a / b; }

static long hg_rem_s64(long a, long b) { return b == 0 ? a : b == -1 ? 0L : a % b; }

static uint hg_bfind_u32(uint a, bool shift) { return a == 0 ? ~0u : shift ? clz(a) : 31 - clz(a); }

static uint hg_bfind_u64(ulong a, bool shift) { return a == 0 ? ~0u : (uint)(shift ? clz(a) : 63 - clz(a)); }

static uint hg_bfind_s32(int a, bool shift) { return hg_bfind_u32(as_uint(a < 0 ? ~a : a), shift); }

static uint hg_bfind_s64(long a, bool shift) { return hg_bfind_u64(as_ulong(a < 0 ? ~a : a), shift); }

// The position of the n-th set bit from base upwards, downwards if n is negative.
static uint hg_fns(uint a, uint base, int n)
{
	int i = (int)base, step = n < 0 ? -1 : 1;

	if (base > 31)
		return ~0u;
	if (n == 0)
		return (a >> base) & 1 ? base : ~0u;
	for (n = n < 0 ? -n : n; i >= 0 && i < 32; i += step)
		if ((a >> i) & 1 && --n == 0)
			return (uint)i;
	return ~0u;
}

static uint hg_brev_b32(uint a)
{
	a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
	a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
	a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
	a = (a >> 8 & 0x00ff00ffu) | (a & 0x00ff00ffu) << 8;
	return a >> 16 | a << 16;
}

static ulong hg_brev_b64(ulong a) { return (ulong)hg_brev_b32((uint)a) << 32 | hg_brev_b32((uint)(a >> 32)); }

static ulong hg_bfe_u64(ulong a, uint pos, uint len)
{
	pos &= 255;
	len &= 255;
	if (len == 0 || pos > 63)
		return 0;
	return a >> pos & (len > 63 ? ~0UL : (1UL << len) - 1);
}

static uint hg_bfe_u32(uint a, uint pos, uint len) { return (uint)hg_bfe_u64(a, pos, len); }

// Bits beyond the field are copies of its highest bit, or of a's.
static ulong hg_bfe_s64(ulong a, uint pos, uint len)
{
	pos &= 255;
	len &= 255;
	if (len == 0)
		return 0;
	return as_ulong((pos + len > 63 ? as_long(a) : as_long(a << (64 - pos - len)))
		>> (pos + len > 63 ? min(pos, 63u) : 64 - len));
}

static uint hg_bfe_s32(uint a, uint pos, uint len)
{
	pos &= 255;
	len &= 255;
	if (len == 0)
		return 0;
	return as_uint((pos + len > 31 ? as_int(a) : as_int(a << (32 - pos - len)))
		>> (pos + len > 31 ? min(pos, 31u) : 32 - len));
}

static uint hg_bfi_b32(uint a, uint b, uint pos, uint len)
{
	pos &= 255;
	len &= 255;
	uint mask = len == 0 || pos > 31 ? 0 : (len > 31 ? ~0u : (1u << len) - 1) << pos;
	return (b & ~mask) | (pos > 31 ? 0 : a << pos & mask);
}

static ulong hg_bfi_b64(ulong a, ulong b, uint pos, uint len)
{
	pos &= 255;
	len &= 255;
	ulong mask = len == 0 || pos > 63 ? 0 : (len > 63 ? ~0UL : (1UL << len) - 1) << pos;
	return (b & ~mask) | (pos > 63 ? 0 : a << pos & mask);
}

// The n lowest bits of a, extended.
static uint hg_szext(uint a, uint n, bool sign)
{
	if (n > 31)
		return a;
	if (n == 0)
		return 0;
	return sign ? as_uint(as_int(a << (32 - n)) >> (32 - n)) : a & ((1u << n) - 1);
}

static uint hg_bmsk(uint pos, uint len)
{
	return pos > 31 ? 0 : (len > 31 ? ~0u : (1u << len) - 1) << pos;
}

static uint hg_lop3(uint a, uint b, uint c, uint lut)
{
	uint r = 0;

	r |= lut & 1 ? ~a & ~b & ~c : 0;
	r |= lut & 2 ? ~a & ~b & c : 0;
	r |= lut & 4 ? ~a & b & ~c : 0;
	r |= lut & 8 ? ~a & b & c : 0;
	r |= lut & 16 ? a & ~b & ~c : 0;
	r |= lut & 32 ? a & ~b & c : 0;
	r |= lut & 64 ? a & b & ~c : 0;
	r |= lut & 128 ? a & b & c : 0;
	return r;
}

static uint hg_shf(uint lo, uint hi, uint n, bool left, bool wrap)
{
	ulong v = (ulong)hi << 32 | lo;

	n = wrap ? n & 31 : min(n, 32u);
	return left ? (uint)(v << n >> 32) : (uint)(v >> n);
}

// Byte i of a vector of four, extended.
static int hg_byte(uint v, uint i, bool sign)
{
	uint b = v >> 8 * i & 255;

	return sign ? (int)as_char((uchar)b) : (int)b;
}

static uint hg_dp4a(uint a, uint b, uint c, bool as, bool bs)
{
	for (uint i = 0; i < 4; i++)
		c += as_uint(hg_byte(a, i, as) * hg_byte(b, i, bs));
	return c;
}

static uint hg_dp2a(uint a, uint b, uint c, bool as, bool bs, uint first)
{
	for (uint i = 0; i < 2; i++) {
		uint h = a >> 16 * i & 0xffff;
		c += as_uint((as ? (int)as_short((ushort)h) : (int)h) * hg_byte(b, first + i, bs));
	}
	return c;
}

static uint hg_prmt(uint a, uint b, uint sel)
{
	ulong v = (ulong)b << 32 | a;
	uint r = 0;

	for (uint i = 0; i < 4; i++) {
		uint s = sel >> 4 * i & 15, x = (uint)(v >> 8 * (s & 7)) & 255;
		r |= (s & 8 ? (x & 128 ? 255 : 0) : x) << 8 * i;
	}
	return r;
}

// Modes f4e (0), b4e (1), rc8 (2), ecl (3), ecr (4), rc16 (5): the selector that does it.
static uint hg_prmt_mode(uint a, uint b, uint c, uint mode)
{
	ulong v = (ulong)b << 32 | a;
	uint r = 0;

	c &= 3;
	for (uint i = 0; i < 4; i++) {
		uint k = mode == 0 ? c + i : mode == 1 ? (c - i) & 7 : mode == 2 ? c
			: mode == 3 ? max(c, i) : mode == 4 ? min(c, i) : (c & 1) * 2 + (i & 1);
		r |= ((uint)(v >> 8 * k) & 255) << 8 * i;
	}
	return r;
}
