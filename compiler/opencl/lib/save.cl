// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The state of a launch: status words, then an area for each block (see package
// pause: Plan.StatusBytes, AreaBytes).

// Whether the launch is to stop.
static uint hg_flagged(__global const struct hg_launch *hg)
{
	return hg->flag != 0 && hg->state != 0 && *(volatile __global uint *)hg->flag != 0;
}

static void hg_status(__global const struct hg_launch *hg, uint block, uint status)
{
	if (hg->state != 0)
		((__global uint *)hg->state)[block] = status;
}

// Where a block's area begins: shared memory of so many bytes lies there.
static ulong hg_area(__global const struct hg_launch *hg, uint block, uint threads, uint shared, uint values, uint local_bytes)
{
	ulong blocks = (ulong)hg->grid[0] * hg->grid[1] * hg->grid[2],
		bytes = shared + (ulong)threads * (values + local_bytes);

	return hg->state + ((4 * blocks + 15) & ~15UL) + block * bytes;
}

static void hg_save_shared(ulong to, __local uchar *s, uint bytes, uint t, uint n)
{
	for (uint i = 4 * t; i < bytes; i += 4 * n)
		*(__global hg_b32 *)(to + i) = *(__local hg_b32 *)(s + i);
}

static void hg_load_shared(ulong from, __local uchar *s, uint bytes, uint t, uint n)
{
	for (uint i = 4 * t; i < bytes; i += 4 * n)
		*(__local hg_b32 *)(s + i) = *(__global hg_b32 *)(from + i);
}

// How much of a stack of so many bytes is in use: from, its beginning, lies as much
// before it as there is above the top. A multiple of 16.
static uint hg_used(ulong top, long from, uint size)
{
	return ((uint)min(top - (ulong)from, (ulong)size) + 15) & ~15u;
}

static void hg_save_local(ulong to, __private uchar *l, uint at, uint bytes)
{
	for (uint i = at; i < at + bytes; i += 4)
		*(__global hg_b32 *)(to + i) = *(__private hg_b32 *)(l + i);
}

static void hg_load_local(ulong from, __private uchar *l, uint at, uint bytes)
{
	for (uint i = at; i < at + bytes; i += 4)
		*(__private hg_b32 *)(l + i) = *(__global hg_b32 *)(from + i);
}
