__kernel void k_sregs(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	uint r2 = 0, r3 = 0, r4 = 0;
	ulong r0 = 0, r1 = 0;

	if (hg_t == 0) {
		hg_pf[0] = hg_flagged(hg);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (hg_pf[0]) {
		return;
	}
	hg_ph = 1;
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	r2 = (uint)(hg_b / hg->grid[0] / hg->grid[1]);
	r4 = (uint)hg->grid[1];
	r3 = (uint)(hg_b / hg->grid[0] % hg->grid[1]);
	r2 = (uint)(r2 * r4 + r3);
	r4 = (uint)hg->grid[0];
	r3 = (uint)(hg_b % hg->grid[0]);
	r2 = (uint)(r2 * r4 + r3);
	r4 = (uint)hg->block[2];
	r3 = (uint)get_local_id(2);
	r2 = (uint)(r2 * r4 + r3);
	r4 = (uint)hg->block[1];
	r3 = (uint)get_local_id(1);
	r2 = (uint)(r2 * r4 + r3);
	r4 = (uint)hg->block[0];
	r3 = (uint)get_local_id(0);
	r2 = (uint)(r2 * r4 + r3);
	r1 = (ulong)((ulong)r2 * (ulong)64u + r0);
	r4 = (uint)get_local_id(0);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)get_local_id(1);
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)get_local_id(2);
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(hg_b % hg->grid[0]);
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(hg_b / hg->grid[0] % hg->grid[1]);
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(hg_b / hg->grid[0] / hg->grid[1]);
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(hg_t & 31);
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(hg_t >> 5);
	{
		ulong a = (r1 + 28UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)((hg_n + 31) >> 5);
	{
		ulong a = (r1 + 32UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(1u << (hg_t & 31));
	{
		ulong a = (r1 + 36UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(~0u >> (31 - (hg_t & 31)));
	{
		ulong a = (r1 + 40UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)((1u << (hg_t & 31)) - 1);
	{
		ulong a = (r1 + 44UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(~0u << (hg_t & 31));
	{
		ulong a = (r1 + 48UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)(~1u << (hg_t & 31));
	{
		ulong a = (r1 + 52UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)32;
	{
		ulong a = (r1 + 56UL);
		*(__global hg_b32 *)(a) = r4;
	}
	r4 = (uint)hg->grid[2];
	{
		ulong a = (r1 + 60UL);
		*(__global hg_b32 *)(a) = r4;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

