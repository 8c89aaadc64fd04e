__kernel void k_print(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	__global const ulong *hg_vars = (__global const ulong *)hg->vars;
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[112] __attribute__((aligned(16)));
	bool r6 = 0;
	uint r4 = 0, r5 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

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
	r4 = (uint)get_local_id(0);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r4;
	}
	r5 = (uint)(3u - r4);
	{
		ulong a = 4UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r5;
	}
	{
		ulong a = 8UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r5;
	}
	{
		ulong a = 12UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = 0xbeefu;
	}
	{
		ulong a = 16UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = 0xdeadbeef01UL;
	}
	r5 = (uint)(r4 + 97u);
	{
		ulong a = 24UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r5;
	}
	{
		ulong a = 32UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = 0x400921fb54442d18UL;
	}
	r3 = hg_vars[2];
	{
		ulong a = 40UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r3;
	}
	{
		ulong a = 48UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = 77u;
	}
	{
		ulong a = 56UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = 0xffffffffffffffffUL;
	}
	{
		ulong a = 64UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r4;
	}
	{
		ulong a = 68UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = 5u;
	}
	{
		ulong a = 72UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = 2748u;
	}
	r1 = hg_vars[0];
	r1 = r1;
	r2 = 0UL;
	r2 = r2 | 0x2000000000000000UL;
	{
		int v = hg_printf(r1, r2, hg_shared, hg_local, hg_params);
		r5 = as_uint(v);
	}
	r2 = (ulong)((ulong)r4 * (ulong)4u + r0);
	{
		ulong a = r2;
		*(__global hg_b32 *)(a) = r5;
	}
	r6 = r4 > 3u;
	if (!r6) goto B2;
B1:;
	r1 = hg_vars[1];
	r1 = r1;
	r2 = 0UL;
	r2 = r2 | 0x2000000000000000UL;
	{
		int v = hg_printf(r1, r2, hg_shared, hg_local, hg_params);
		r5 = as_uint(v);
	}
B2:;
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

