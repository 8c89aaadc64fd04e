// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Generic addresses: the highest four bits tell the space (ir.SharedWindow ...).

static uchar hg_ld_b8(ulong a, __local uchar *s, __private uchar *l, ulong p)
{
	uint w = (uint)(a >> 60);
	ulong o = a & 0xfffffffffffffffUL;

	return w == 0 ? *(__global hg_b8 *)o : w == 1 ? *(__local hg_b8 *)(s + (uint)o)
		: w == 2 ? *(__private hg_b8 *)(l + (uint)o) : *(__global hg_b8 *)(p + o);
}

static ushort hg_ld_b16(ulong a, __local uchar *s, __private uchar *l, ulong p)
{
	uint w = (uint)(a >> 60);
	ulong o = a & 0xfffffffffffffffUL;

	return w == 0 ? *(__global hg_b16 *)o : w == 1 ? *(__local hg_b16 *)(s + (uint)o)
		: w == 2 ? *(__private hg_b16 *)(l + (uint)o) : *(__global hg_b16 *)(p + o);
}

static uint hg_ld_b32(ulong a, __local uchar *s, __private uchar *l, ulong p)
{
	uint w = (uint)(a >> 60);
	ulong o = a & 0xfffffffffffffffUL;

	return w == 0 ? *(__global hg_b32 *)o : w == 1 ? *(__local hg_b32 *)(s + (uint)o)
		: w == 2 ? *(__private hg_b32 *)(l + (uint)o) : *(__global hg_b32 *)(p + o);
}

static ulong hg_ld_b64(ulong a, __local uchar *s, __private uchar *l, ulong p)
{
	uint w = (uint)(a >> 60);
	ulong o = a & 0xfffffffffffffffUL;

	return w == 0 ? *(__global hg_b64 *)o : w == 1 ? *(__local hg_b64 *)(s + (uint)o)
		: w == 2 ? *(__private hg_b64 *)(l + (uint)o) : *(__global hg_b64 *)(p + o);
}

static void hg_st_b8(ulong a, __local uchar *s, __private uchar *l, uchar v)
{
	uint w = (uint)(a >> 60), o = (uint)a;

	if (w == 0)
		*(__global hg_b8 *)a = v;
	else if (w == 1)
		*(__local hg_b8 *)(s + o) = v;
	else
		*(__private hg_b8 *)(l + o) = v;
}

static void hg_st_b16(ulong a, __local uchar *s, __private uchar *l, ushort v)
{
	uint w = (uint)(a >> 60), o = (uint)a;

	if (w == 0)
		*(__global hg_b16 *)a = v;
	else if (w == 1)
		*(__local hg_b16 *)(s + o) = v;
	else
		*(__private hg_b16 *)(l + o) = v;
}

static void hg_st_b32(ulong a, __local uchar *s, __private uchar *l, uint v)
{
	uint w = (uint)(a >> 60), o = (uint)a;

	if (w == 0)
		*(__global hg_b32 *)a = v;
	else if (w == 1)
		*(__local hg_b32 *)(s + o) = v;
	else
		*(__private hg_b32 *)(l + o) = v;
}

static void hg_st_b64(ulong a, __local uchar *s, __private uchar *l, ulong v)
{
	uint w = (uint)(a >> 60), o = (uint)a;

	if (w == 0)
		*(__global hg_b64 *)a = v;
	else if (w == 1)
		*(__local hg_b64 *)(s + o) = v;
	else
		*(__private hg_b64 *)(l + o) = v;
}

// The first error of a launch: its code, block and thread.
static void hg_trap(ulong trap, uint code, uint block, uint thread)
{
	if (trap != 0 && atomic_cmpxchg((volatile __global uint *)trap, 0, code) == 0) {
		((__global ulong *)trap)[1] = block;
		((__global ulong *)trap)[2] = thread;
	}
}
