__kernel void k_collatz(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	bool hg_none = false;
	uint hg_round = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	bool r10 = 0, r11 = 0, r12 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

	if (hg_t == 0) {
		hg_pf[0] = hg_flagged(hg);
		hg_pf[2] = 0;
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	hg_none = hg_pf[0];
	if (hg_none) {
		goto hg_out;
	}
	hg_ph = 1;
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r9 = *(__global hg_b32 *)(hg_params + a);
	}
	r4 = (uint)get_local_id(0);
	r5 = (uint)hg->block[0];
	r6 = (uint)(hg_b % hg->grid[0]);
	r4 = (uint)(r6 * r5 + r4);
	r1 = (ulong)((ulong)r4 * (ulong)8u + r0);
	r7 = 0u;
	r8 = 0u;
B1:;
	r2 = (ulong)(r4);
	r2 = (ulong)(r2 + 1UL);
B2:;
	r11 = r2 > 1UL;
	if (!r11) goto B4;
B3:;
	r3 = (ulong)(r2 & 1UL);
	r10 = r3 != 0UL;
	if (r10) r3 = (ulong)(r2 * 3UL + 1UL);
	if (!r10) r3 = (ulong)(hg_shr_u64(r2, 1u));
	r2 = r3;
	r7 = (uint)(r7 + 1u);
	{ if ((++hg_round & 63) == 0 && hg_flagged(hg)) goto hg_save2; goto B2; }
B4:;
	r8 = (uint)(r8 + 1u);
	r12 = r8 < r9;
	if (r12) { if ((++hg_round & 63) == 0 && hg_flagged(hg)) goto hg_save1; goto B1; }
B5:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_end:;
	if (hg->state != 0) {
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 0xffffffffu;
	}
	goto hg_out;
hg_save1:;
	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 1;
		hg_pf[2] = 1;
		*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r8;
		*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r9;
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 2;
		hg_pf[2] = 1;
		*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 24 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r8;
		*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r9;
	}
	goto hg_out;
hg_out:;
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (hg_t == 0 && !hg_none) {
		hg_status(hg, hg_b, hg_pf[2] ? 0xfffffffeu : 0xffffffffu);
	}
}

__kernel void k_collatz__rt(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_at = 0;
	bool hg_none = false;
	uint hg_round = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	bool r10 = 0, r11 = 0, r12 = 0;
	uint r4 = 0, r7 = 0, r8 = 0, r9 = 0;
	ulong r1 = 0, r2 = 0, r3 = 0;

	if (hg_t == 0) {
		hg_pf[2] = 0;
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		switch (*(__global uint *)(values + 4 * hg_t)) {
		case 1:
			r1 = *(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t);
			r4 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
			r7 = *(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t);
			r8 = *(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t);
			r9 = *(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t);
			hg_at = 1;
			break;
		case 2:
			r1 = *(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t);
			r2 = *(__global hg_b64 *)(values + 24 * (ulong)hg_n + 8 * hg_t);
			r4 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
			r7 = *(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t);
			r8 = *(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t);
			r9 = *(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t);
			hg_at = 2;
			break;
		default: break;
		}
	}
	goto hg_dispatch;
B1:;
	r2 = (ulong)(r4);
	r2 = (ulong)(r2 + 1UL);
	{ hg_at = 2; goto hg_dispatch; }
B2:;
	r11 = r2 > 1UL;
	if (!r11) goto B4;
B3:;
	r3 = (ulong)(r2 & 1UL);
	r10 = r3 != 0UL;
	if (r10) r3 = (ulong)(r2 * 3UL + 1UL);
	if (!r10) r3 = (ulong)(hg_shr_u64(r2, 1u));
	r2 = r3;
	r7 = (uint)(r7 + 1u);
	{ if ((++hg_round & 63) == 0 && hg_flagged(hg)) goto hg_save2; { hg_at = 2; goto hg_dispatch; } }
B4:;
	r8 = (uint)(r8 + 1u);
	r12 = r8 < r9;
	if (r12) { if ((++hg_round & 63) == 0 && hg_flagged(hg)) goto hg_save1; { hg_at = 1; goto hg_dispatch; } }
B5:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B2;
	default: goto hg_end;
	}
hg_end:;
	if (hg->state != 0) {
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 0xffffffffu;
	}
	goto hg_out;
hg_save1:;
	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 1;
		hg_pf[2] = 1;
		*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r8;
		*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r9;
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		*(__global uint *)(values + 4 * hg_t) = 2;
		hg_pf[2] = 1;
		*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 24 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r8;
		*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r9;
	}
	goto hg_out;
hg_out:;
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (hg_t == 0 && !hg_none) {
		hg_status(hg, hg_b, hg_pf[2] ? 0xfffffffeu : 0xffffffffu);
	}
}

