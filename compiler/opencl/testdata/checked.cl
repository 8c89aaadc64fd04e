__kernel void k_checked(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (192u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	bool r10 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

	if (hg_t == 0) {
		hg_pf[116] = hg_flagged(hg);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (hg_pf[116]) {
		return;
	}
	uint hg_pc = 0, hg_bar = 16;
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
		case 0: goto B0;
		case 1: goto P1;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r4 = *(__global hg_b32 *)(hg_params + a);
	}
	r5 = (uint)get_local_id(0);
	r6 = (uint)hg->block[0];
	r7 = (uint)(hg_b % hg->grid[0]);
	r10 = r5 >= r4;
	if (!r10) goto B2;
B1:;
	hg_trap(hg->trap, 1, hg_b, hg_t);
	goto hg_end;
B2:;
	r2 = (ulong)(r5);
	r2 = (ulong)(hg_shl_b64(r2, 2u));
	r3 = 0UL;
	r3 = (ulong)(r3 + r2);
	r9 = r5 * 3u;
	{
		ulong a = r3;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
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
	r8 = (uint)(47u - r5);
	r2 = (ulong)(r8);
	r2 = (ulong)(hg_shl_b64(r2, 2u));
	r3 = 0UL;
	r3 = (ulong)(r3 + r2);
	{
		ulong a = r3;
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r7 * r6 + r5);
	r1 = (ulong)((ulong)r8 * (ulong)4u + r0);
	r9 = (uint)(r9 + r7);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((192u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r0;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r5;
			*(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r7;
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

__kernel void k_checked__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (192u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	bool r10 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0;

	{
		const uint shared = ((192u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r0 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r5 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r6 = *(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t);
		r7 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 2, hg_bar = 16;
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
		case 2: goto Q1;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r4 = *(__global hg_b32 *)(hg_params + a);
	}
	r5 = (uint)get_local_id(0);
	r6 = (uint)hg->block[0];
	r7 = (uint)(hg_b % hg->grid[0]);
	r10 = r5 >= r4;
	if (!r10) goto B2;
B1:;
	hg_trap(hg->trap, 1, hg_b, hg_t);
	goto hg_end;
B2:;
	r2 = (ulong)(r5);
	r2 = (ulong)(hg_shl_b64(r2, 2u));
	r3 = 0UL;
	r3 = (ulong)(r3 + r2);
	r9 = r5 * 3u;
	{
		ulong a = r3;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
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
	r8 = (uint)(47u - r5);
	r2 = (ulong)(r8);
	r2 = (ulong)(hg_shl_b64(r2, 2u));
	r3 = 0UL;
	r3 = (ulong)(r3 + r2);
	{
		ulong a = r3;
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	r8 = (uint)(r7 * r6 + r5);
	r1 = (ulong)((ulong)r8 * (ulong)4u + r0);
	r9 = (uint)(r9 + r7);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((192u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r0;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r5;
			*(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r7;
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

