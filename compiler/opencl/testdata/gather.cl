__kernel void k_gather(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_round = 0;
	uint hg_any = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (256u + ((hg->shared + 15) & ~15u)));
	bool r5 = 0, r6 = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
	uint r1 = 0, r3 = 0, r4 = 0, r8 = 0, r10 = 0, r11 = 0;
	ulong r0 = 0, r2 = 0, r7 = 0, r9 = 0;

	if (hg_t == 0) {
		hg_pf[0] = hg_flagged(hg);
		hg_pf[4] = 0;
		hg_pf[5] = 0;
		hg_pf[6] = 0;
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
	r1 = (uint)get_local_id(0);
	r2 = (ulong)r1 * (ulong)4u;
	r0 = (ulong)(r0 + r2);
	{
		ulong a = r0;
		r3 = *(__global hg_b32 *)(a);
	}
	r4 = (uint)(r3 & 255u);
	r5 = r1 > 50u;
	r11 = 0u;
B1:;
	r12 = r11 != 0u;
B2:;
	if (r5) goto B8;
B3:;
B4:;
	r3 = (uint)(r3 * 5u + r4);
	r4 = (uint)(r4 - 1u);
	r6 = as_int(r4) > as_int(0u);
	if (r6) goto B6;
B5:;
	r12 = r11 > 1u;
	if (r12) goto B11;
	goto B7;
B6:;
	r15 = (++hg_round & 63) == 0 && hg_flagged(hg);
	if (r15) goto B12;
	goto B4;
B7:;
B8:;
	r7 = 0UL;
	r7 = (ulong)(r7 + r2);
	{
		ulong a = r7;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r3;
	}
B9:;
	r13 = r11 > 1u;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1), *a = hg_pf + 4 + hg_any;
		hg_any = hg_any < 2 ? hg_any + 1 : 0;
		if (hg_t == 0) {
			*f = hg_flagged(hg);
			hg_pf[4 + hg_any] = 0;
		}
		if (r13) *a = 1;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		r14 = *a != 0;
		if (*f || *a) {
			goto hg_save1;
		}
	}
B10:;
	r8 = (uint)(r1 ^ 1u);
	r9 = (ulong)r8 * (ulong)4u;
	r7 = 0UL;
	r7 = (ulong)(r7 + r9);
	{
		ulong a = r7;
		r10 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r0;
		*(__global hg_b32 *)(a) = r10;
	}
	goto hg_end;
B11:;
	goto B9;
B12:;
	r11 = 2u;
	goto B5;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r0;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r1;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r3;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r11;
		*(__global hg_b8 *)(values + 32 * (ulong)hg_n + 1 * hg_t) = r14;
	}
	goto hg_out;
hg_out:;
}

__kernel void k_gather__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	uint hg_round = 0;
	uint hg_any = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (256u + ((hg->shared + 15) & ~15u)));
	bool r6 = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
	uint r1 = 0, r3 = 0, r4 = 0, r8 = 0, r10 = 0, r11 = 0;
	ulong r0 = 0, r2 = 0, r7 = 0, r9 = 0;

	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r0 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r1 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
		r3 = *(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t);
		r4 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r11 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r14 = *(__global hg_b8 *)(values + 32 * (ulong)hg_n + 1 * hg_t);
	}
	if (hg_t == 0) {
		hg_pf[4] = 0;
		hg_pf[5] = 0;
		hg_pf[6] = 0;
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
B1:;
	r11 = (uint)(max(r11, 1u));
	goto B3;
B2:;
	r8 = (uint)(r1 ^ 1u);
	r9 = (ulong)r8 * (ulong)4u;
	r7 = 0UL;
	r7 = (ulong)(r7 + r9);
	{
		ulong a = r7;
		r10 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r0;
		*(__global hg_b32 *)(a) = r10;
	}
	goto hg_end;
B3:;
	r12 = r11 != 0u;
B4:;
	switch (r11) {
	case 0: goto B6;
	case 1: goto B6;
	default: goto B7;
	}
B6:;
	r13 = r11 > 1u;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1), *a = hg_pf + 4 + hg_any;
		hg_any = hg_any < 2 ? hg_any + 1 : 0;
		if (hg_t == 0) {
			*f = hg_flagged(hg);
			hg_pf[4 + hg_any] = 0;
		}
		if (r13) *a = 1;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		r14 = *a != 0;
		if (*f || *a) {
			goto hg_save1;
		}
	}
	goto B2;
B7:;
	r11 = 0u;
	goto B11;
B8:;
	r7 = 0UL;
	r7 = (ulong)(r7 + r2);
	{
		ulong a = r7;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r3;
	}
	goto B6;
B11:;
	r3 = (uint)(r3 * 5u + r4);
	r4 = (uint)(r4 - 1u);
	r6 = as_int(r4) > as_int(0u);
	if (!r6) goto B13;
B12:;
	r15 = (++hg_round & 63) == 0 && hg_flagged(hg);
	if (r15) goto B14;
	goto B11;
B13:;
	r12 = r11 > 1u;
	if (r12) goto B15;
	goto B16;
B14:;
	r11 = 2u;
	goto B13;
B15:;
	goto B6;
B16:;
	goto B8;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 0), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r0;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r1;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r3;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r11;
		*(__global hg_b8 *)(values + 32 * (ulong)hg_n + 1 * hg_t) = r14;
	}
	goto hg_out;
hg_out:;
}

