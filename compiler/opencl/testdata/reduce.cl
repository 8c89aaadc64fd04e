__kernel void k_reduce(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
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
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
		hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_reduce__r1(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

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
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 4, hg_bar = 16;
	bool hg_go = true, hg_stop = false, hg_over = false;
	for (uint i = hg_t; i < 116; i += hg_n)
		hg_pf[i] = i == 113;
	hg_x[hg_t * hg_w] = 0;
	for (;;) {
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (hg_stop) {
			break;
		}
		if (!hg_pf[113 + (hg_ph & 1)]) {
			if (hg_t == 0) {
				hg_trap(hg->trap, 3, hg_b, hg_t);
			}
			break;
		}
		if (hg_bar < 16 && hg_pc != 65535u) {
			hg_go = hg_pf[64 + hg_bar];
		}
		switch (hg_go ? hg_pc : 65535u) {
		case 1: goto P1;
		case 4: goto Q1;
		case 2: goto P2;
		case 3: goto P3;
		default: goto hg_next;
		}
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
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		hg_pc = 1;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P1:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q1:;
	r6 = (uint)(hg_shr_u32(r5, 1u));
	{ hg_at = 2; goto hg_dispatch; }
B2:;
	r12 = r4 < r6;
	if (!r12) { hg_at = 3; goto hg_dispatch; }
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
	{ hg_at = 3; goto hg_dispatch; }
B4:;
	{
		hg_pc = 2;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P2:;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q2:;
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) { hg_at = 2; goto hg_dispatch; }
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
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q3:;
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) { hg_at = 1; goto hg_dispatch; }
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B2;
	case 3: goto B4;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
		}
		goto hg_out;
hg_out:;
		hg_pc = 65535u;
		hg_x[hg_t * hg_w] = 1;
		atomic_inc(hg_pf + 112);
hg_next:;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		hg_ph++;
		hg_go = false;
		switch (hg_pc) {
		case 1:
			break;
		case 2:
			break;
		case 3:
			break;
		default: break;
		}
		if (hg_go) {
			hg_pf[113 + (hg_ph & 1)] = 1;
		}
		if (hg_t == 0) {
			hg_pf[113 + (~hg_ph & 1)] = 0;
			if (hg_books(hg_pf, hg_n, hg_pf[112])) {
				hg_pf[113 + (hg_ph & 1)] = 1;
				hg_pf[115] = hg_flagged(hg);
			}
		}
		hg_stop = hg_pf[112] == hg_n;
	}
	if (hg_t == 0 && hg_over) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

__kernel void k_reduce__r2(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

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
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 4, hg_bar = 16;
	bool hg_go = true, hg_stop = false, hg_over = false;
	for (uint i = hg_t; i < 116; i += hg_n)
		hg_pf[i] = i == 113;
	hg_x[hg_t * hg_w] = 0;
	for (;;) {
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (hg_stop) {
			break;
		}
		if (!hg_pf[113 + (hg_ph & 1)]) {
			if (hg_t == 0) {
				hg_trap(hg->trap, 3, hg_b, hg_t);
			}
			break;
		}
		if (hg_bar < 16 && hg_pc != 65535u) {
			hg_go = hg_pf[64 + hg_bar];
		}
		switch (hg_go ? hg_pc : 65535u) {
		case 1: goto P1;
		case 2: goto P2;
		case 4: goto Q2;
		case 3: goto P3;
		default: goto hg_next;
		}
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
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		hg_pc = 1;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P1:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q1:;
	r6 = (uint)(hg_shr_u32(r5, 1u));
	{ hg_at = 2; goto hg_dispatch; }
B2:;
	r12 = r4 < r6;
	if (!r12) { hg_at = 3; goto hg_dispatch; }
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
	{ hg_at = 3; goto hg_dispatch; }
B4:;
	{
		hg_pc = 2;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P2:;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q2:;
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) { hg_at = 2; goto hg_dispatch; }
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
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q3:;
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) { hg_at = 1; goto hg_dispatch; }
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B2;
	case 3: goto B4;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
		}
		goto hg_out;
hg_out:;
		hg_pc = 65535u;
		hg_x[hg_t * hg_w] = 1;
		atomic_inc(hg_pf + 112);
hg_next:;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		hg_ph++;
		hg_go = false;
		switch (hg_pc) {
		case 1:
			break;
		case 2:
			break;
		case 3:
			break;
		default: break;
		}
		if (hg_go) {
			hg_pf[113 + (hg_ph & 1)] = 1;
		}
		if (hg_t == 0) {
			hg_pf[113 + (~hg_ph & 1)] = 0;
			if (hg_books(hg_pf, hg_n, hg_pf[112])) {
				hg_pf[113 + (hg_ph & 1)] = 1;
				hg_pf[115] = hg_flagged(hg);
			}
		}
		hg_stop = hg_pf[112] == hg_n;
	}
	if (hg_t == 0 && hg_over) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

__kernel void k_reduce__r3(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r12 = 0, r13 = 0, r14 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

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
		hg_load_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 4, hg_bar = 16;
	bool hg_go = true, hg_stop = false, hg_over = false;
	for (uint i = hg_t; i < 116; i += hg_n)
		hg_pf[i] = i == 113;
	hg_x[hg_t * hg_w] = 0;
	for (;;) {
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (hg_stop) {
			break;
		}
		if (!hg_pf[113 + (hg_ph & 1)]) {
			if (hg_t == 0) {
				hg_trap(hg->trap, 3, hg_b, hg_t);
			}
			break;
		}
		if (hg_bar < 16 && hg_pc != 65535u) {
			hg_go = hg_pf[64 + hg_bar];
		}
		switch (hg_go ? hg_pc : 65535u) {
		case 1: goto P1;
		case 2: goto P2;
		case 3: goto P3;
		case 4: goto Q3;
		default: goto hg_next;
		}
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
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r7;
	}
	{
		hg_pc = 1;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P1:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q1:;
	r6 = (uint)(hg_shr_u32(r5, 1u));
	{ hg_at = 2; goto hg_dispatch; }
B2:;
	r12 = r4 < r6;
	if (!r12) { hg_at = 3; goto hg_dispatch; }
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
	{ hg_at = 3; goto hg_dispatch; }
B4:;
	{
		hg_pc = 2;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P2:;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q2:;
	r6 = (uint)(hg_shr_u32(r6, 1u));
	r14 = r6 != 0u;
	if (r14) { hg_at = 2; goto hg_dispatch; }
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
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q3:;
	r9 = (uint)(r9 + 1u);
	r13 = r9 < r10;
	if (r13) { hg_at = 1; goto hg_dispatch; }
B6:;
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r7;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B2;
	case 3: goto B4;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
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
			hg_save_local(values + 48 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 16);
		}
		goto hg_out;
hg_out:;
		hg_pc = 65535u;
		hg_x[hg_t * hg_w] = 1;
		atomic_inc(hg_pf + 112);
hg_next:;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		hg_ph++;
		hg_go = false;
		switch (hg_pc) {
		case 1:
			break;
		case 2:
			break;
		case 3:
			break;
		default: break;
		}
		if (hg_go) {
			hg_pf[113 + (hg_ph & 1)] = 1;
		}
		if (hg_t == 0) {
			hg_pf[113 + (~hg_ph & 1)] = 0;
			if (hg_books(hg_pf, hg_n, hg_pf[112])) {
				hg_pf[113 + (hg_ph & 1)] = 1;
				hg_pf[115] = hg_flagged(hg);
			}
		}
		hg_stop = hg_pf[112] == hg_n;
	}
	if (hg_t == 0 && hg_over) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

