__kernel void k_reduce(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
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
	{
		ulong a = 8UL;
		r10 = *(__global hg_b32 *)(hg_params + a);
	}
	r4 = (uint)get_local_id(0);
	r5 = (uint)hg->block[0];
	r11 = (uint)(hg_b % hg->grid[0]);
	r8 = (uint)(r11 * r5 + r4);
	r1 = (ulong)((ulong)r8 * (ulong)4u + r0);
	{
		ulong a = r1;
		r7 = *(__global hg_b32 *)(a);
	}
	r8 = r4 * 4u;
	r3 = (ulong)(r8);
	r2 = 0UL;
	r2 = (ulong)(r2 + r3);
	r9 = 0u;
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r4;
	}
B1:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save1;
		}
	}
	r6 = (uint)(hg_shr_u32(r5, 1u));
B2:;
	r12 = r4 < r6;
	if (!r12) goto B4;
B3:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B4:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B2;
B5:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) goto B1;
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save3:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 3);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_reduce__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r1 = 0, r2 = 0, r3 = 0;

	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r4 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
		r5 = *(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t);
		r7 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r10 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
	r6 = (uint)(hg_shr_u32(r5, 1u));
B1:;
	r12 = r4 < r6;
	if (!r12) goto B3;
B2:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B3:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B1;
B4:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (!r13) goto B6;
B5:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save1;
		}
	}
	r6 = (uint)(hg_shr_u32(r5, 1u));
	goto B7;
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
B7:;
	r12 = r4 < r6;
	if (!r12) goto B9;
B8:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B9:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B7;
B10:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) goto B5;
	goto B6;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save3:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 3);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_reduce__r2(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r1 = 0, r2 = 0, r3 = 0;

	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r4 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
		r5 = *(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t);
		r6 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r7 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
		r10 = *(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t);
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (!r14) goto B2;
B1:;
	r12 = r4 < r6;
	if (r12) goto B3;
	goto B4;
B2:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) goto B5;
	goto B6;
B3:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B4:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B1;
	goto B2;
B5:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save1;
		}
	}
	r6 = (uint)(hg_shr_u32(r5, 1u));
	goto B7;
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
B7:;
	r12 = r4 < r6;
	if (!r12) goto B9;
B8:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B9:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B7;
B10:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) goto B5;
	goto B6;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save3:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 3);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_reduce__r3(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r1 = 0, r2 = 0, r3 = 0;

	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r4 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
		r5 = *(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t);
		r7 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r10 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (!r13) goto B2;
B1:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save1;
		}
	}
	r6 = (uint)(hg_shr_u32(r5, 1u));
	goto B3;
B2:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
B3:;
	r12 = r4 < r6;
	if (!r12) goto B5;
B4:;
	r8 = r6 * 4u;
	r3 = (ulong)(r8);
	r3 = (ulong)(r2 + r3);
	{
		ulong a = r3;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = r2;
		r11 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r8 + r11);
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r8;
	}
B5:;
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save2;
		}
	}
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) goto B3;
B6:;
	{
		ulong a = 0UL;
		r8 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = 0UL;
		r11 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	r11 = (uint)(r11 * 0x19660du + r8);
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r11;
	}
	r7 = (uint)(r7 ^ r11);
	{
		__local uint *f = hg_pf + (hg_ph++ & 1);
		if (hg_t == 0) {
			*f = hg_flagged(hg);
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (*f) {
			goto hg_save3;
		}
	}
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) goto B1;
	goto B2;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save3:;
	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 48, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 3);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r4;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r5;
		*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

