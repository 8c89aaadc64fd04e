__kernel void k_spaces(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	__global const ulong *hg_vars = (__global const ulong *)hg->vars;
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (256u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[64] __attribute__((aligned(16)));
	bool r15 = 0, r16 = 0;
	ushort r13 = 0;
	uint r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0, r12 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0, r6 = 0;

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
	{
		ulong a = 8UL;
		r1 = *(__global hg_b64 *)(hg_params + a);
	}
	r7 = (uint)get_local_id(0);
	r15 = r7 < 64u;
	r2 = (ulong)((ulong)r7 * (ulong)4u + r0);
	{
		ulong a = r2;
		r9 = *(__global hg_b32 *)(a);
	}
	if (!r15) goto B2;
B1:;
	r8 = r7 * 4u;
	r3 = (ulong)(r8);
	r4 = 0UL;
	r4 = (ulong)(r4 + r3);
	{
		ulong a = r4;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
	}
	{
		ulong a = 8UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r9;
	}
	{
		ulong a = 16UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r7;
		*(__private hg_b32 *)(hg_local + (uint)(a + 4)) = r9;
	}
	{
		ulong a = 10UL;
		r13 = *(__private hg_b16 *)(hg_local + (uint)(a));
	}
	r10 = (uint)(r13);
	r5 = 0UL | 0x1000000000000000UL;
	r5 = (ulong)(r5 + r3);
	{
		ulong a = r5;
		r11 = hg_ld_b32(a, hg_shared, hg_local, hg_params);
	}
	r10 = (uint)(r10 + r11);
	r6 = 0UL;
	r6 = r6 | 0x2000000000000000UL;
	r16 = (r6 & 0xf000000000000000UL) == 0x2000000000000000UL;
	r12 = (r16) ? 1000u : 0u;
	r10 = (uint)(r10 + r12);
	r11 = (uint)(r7 & 1u);
	r15 = r11 == 0u;
	r5 = (r15) ? r5 : r6;
	r11 = (uint)(r7 & 3u);
	r15 = r11 == 3u;
	r5 = (r15) ? r2 : r5;
	{
		ulong a = (r5 + 2UL);
		hg_st_b16(a, hg_shared, hg_local, r13);
	}
	{
		ulong a = (r5 + 3UL);
		r11 = (uint)(int)(char)(hg_ld_b8(a, hg_shared, hg_local, hg_params));
	}
	r10 = (uint)(r10 + r11);
	{
		ulong a = 16UL;
		uint v0 = *(__private hg_b32 *)(hg_local + (uint)(a));
		uint v1 = *(__private hg_b32 *)(hg_local + (uint)(a + 4));
		r11 = v0;
		r12 = v1;
	}
	r10 = (uint)(r11 * r12 + r10);
	{
		ulong a = hg_vars[1];
		r3 = *(__global hg_b64 *)(a);
	}
	r11 = (uint)(r3);
	r10 = r10 * r11;
	{
		ulong a = (hg_vars[0] + 9UL);
		r11 = (uint)(uchar)(*(__global hg_b8 *)(a));
	}
	r10 = (uint)(r10 + r11);
	r11 = (uint)(r7 & 15u);
	r3 = (ulong)(r11);
	r4 = hg_vars[0];
	r4 = (ulong)(r4 + r3);
	{
		ulong a = (r4 + 16UL);
		r11 = (uint)(int)(char)(*(__global hg_b8 *)(a));
	}
	r10 = (uint)(r10 + r11);
	r8 = (uint)(hg_shl_b32(r7, 3u));
	r3 = (ulong)(r8);
	r4 = 256UL;
	r4 = (ulong)(r4 + r3);
	{
		ulong a = r4;
		*(volatile __local hg_b64 *)(hg_shared + (uint)(a)) = r1;
	}
	{
		ulong a = r4;
		r3 = *(__local hg_b64 *)(hg_shared + (uint)(a));
	}
	r11 = (uint)(r3);
	r10 = (uint)(r10 + r11);
	r11 = (uint)hg->shared;
	r10 = (uint)(r10 + r11);
	{
		ulong a = (r2 + 256UL);
		*(__global hg_b32 *)(a) = r10;
	}
B2:;
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

