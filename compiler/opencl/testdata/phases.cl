__kernel void k_phases(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 3;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[32] __attribute__((aligned(16)));
	bool r17 = 0, r18 = 0, r19 = 0, r20 = 0;
	ushort r16 = 0;
	uint r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0, r12 = 0, r13 = 0, r14 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0;

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
		case 2: goto P2;
		case 3: goto P3;
		case 4: goto P4;
		case 5: goto P5;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r14 = *(__global hg_b32 *)(hg_params + a);
	}
	r6 = (uint)get_local_id(0);
	r7 = (uint)hg->block[0];
	r8 = (uint)(hg_b % hg->grid[0]);
	r11 = (uint)(hg_t & 31);
	r12 = (uint)(hg_t >> 5);
	r10 = (uint)(r8 * r7 + r6);
	r1 = (ulong)((ulong)r10 * (ulong)4u + r0);
	{
		ulong a = r1;
		r9 = *(__global hg_b32 *)(a);
	}
	r10 = r6 * 4u;
	r3 = (ulong)(r10);
	r2 = 0UL;
	r2 = (ulong)(r2 + r3);
	r13 = 0u;
	r5 = (ulong)(r9);
	r16 = (ushort)(r9);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r17 = r11 < 12u;
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	if (!r17) goto B3;
B2:;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 4095u;
		w[2] = r9;
		goto hg_next;
	}
P1:;
	r9 = (uint)(r9 * 5u + r10);
	{ hg_at = 2; goto hg_dispatch; }
B3:;
	r19 = as_int(r9) > as_int(0u);
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xfffff000u;
		w[2] = r19;
		goto hg_next;
	}
P2:;
	r9 = (uint)(r9 ^ r10);
	{ hg_at = 2; goto hg_dispatch; }
B4:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
	}
	{
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q3:;
	r10 = (uint)(r6 ^ 33u);
	r10 = r10 * 4u;
	r4 = (ulong)(r10);
	r3 = 0UL;
	r3 = (ulong)(r3 + r4);
	{
		ulong a = r3;
		r10 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		hg_pc = 4;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r17 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P4:;
	r19 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q4:;
	if (r19) r9 = (uint)(r9 + r10);
	{
		ulong a = 8UL;
		r4 = *(__private hg_b64 *)(hg_local + (uint)(a));
	}
	r5 = (ulong)(r4 * 0x5851f42d4c957f2dUL + r5);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r16 = (ushort)(r16 + (ushort)7);
	r20 = r12 < 1u;
	if (!r20) { hg_at = 3; goto hg_dispatch; }
B5:;
	{
		hg_pc = 5;
		hg_bar = 2u & 15;
		hg_pf[16 + hg_bar] = 32u;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P5:;
	{ hg_at = 3; goto hg_dispatch; }
B6:;
	r13 = (uint)(r13 + 1u);
	r18 = r13 < r14;
	if (r18) { hg_at = 1; goto hg_dispatch; }
B7:;
	r10 = (uint)(r5);
	r9 = (uint)(r9 + r10);
	r10 = (uint)(r16);
	r9 = (uint)(r9 ^ r10);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B4;
	case 3: goto B6;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 44 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 46 * (ulong)hg_n + 1 * hg_t) = r17;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 48 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 50 * (ulong)hg_n + 1 * hg_t) = r17;
			*(__global hg_b8 *)(values + 51 * (ulong)hg_n + 1 * hg_t) = r19;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
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
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, 3u, 31u, &p);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 2:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 3:
			break;
		case 4:
			break;
		case 5:
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

__kernel void k_phases__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 3;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[32] __attribute__((aligned(16)));
	bool r17 = 0, r18 = 0, r19 = 0, r20 = 0;
	ushort r16 = 0;
	uint r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0, r12 = 0, r13 = 0, r14 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0;

	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r5 = *(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r12 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
		r13 = *(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t);
		r14 = *(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t);
		r16 = *(__global hg_b16 *)(values + 44 * (ulong)hg_n + 2 * hg_t);
		r17 = *(__global hg_b8 *)(values + 46 * (ulong)hg_n + 1 * hg_t);
		hg_load_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 6, hg_bar = 16;
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
		case 6: goto Q3;
		case 4: goto P4;
		case 5: goto P5;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r14 = *(__global hg_b32 *)(hg_params + a);
	}
	r6 = (uint)get_local_id(0);
	r7 = (uint)hg->block[0];
	r8 = (uint)(hg_b % hg->grid[0]);
	r11 = (uint)(hg_t & 31);
	r12 = (uint)(hg_t >> 5);
	r10 = (uint)(r8 * r7 + r6);
	r1 = (ulong)((ulong)r10 * (ulong)4u + r0);
	{
		ulong a = r1;
		r9 = *(__global hg_b32 *)(a);
	}
	r10 = r6 * 4u;
	r3 = (ulong)(r10);
	r2 = 0UL;
	r2 = (ulong)(r2 + r3);
	r13 = 0u;
	r5 = (ulong)(r9);
	r16 = (ushort)(r9);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r17 = r11 < 12u;
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	if (!r17) goto B3;
B2:;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 4095u;
		w[2] = r9;
		goto hg_next;
	}
P1:;
	r9 = (uint)(r9 * 5u + r10);
	{ hg_at = 2; goto hg_dispatch; }
B3:;
	r19 = as_int(r9) > as_int(0u);
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xfffff000u;
		w[2] = r19;
		goto hg_next;
	}
P2:;
	r9 = (uint)(r9 ^ r10);
	{ hg_at = 2; goto hg_dispatch; }
B4:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
	}
	{
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q3:;
	r10 = (uint)(r6 ^ 33u);
	r10 = r10 * 4u;
	r4 = (ulong)(r10);
	r3 = 0UL;
	r3 = (ulong)(r3 + r4);
	{
		ulong a = r3;
		r10 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		hg_pc = 4;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r17 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P4:;
	r19 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q4:;
	if (r19) r9 = (uint)(r9 + r10);
	{
		ulong a = 8UL;
		r4 = *(__private hg_b64 *)(hg_local + (uint)(a));
	}
	r5 = (ulong)(r4 * 0x5851f42d4c957f2dUL + r5);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r16 = (ushort)(r16 + (ushort)7);
	r20 = r12 < 1u;
	if (!r20) { hg_at = 3; goto hg_dispatch; }
B5:;
	{
		hg_pc = 5;
		hg_bar = 2u & 15;
		hg_pf[16 + hg_bar] = 32u;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P5:;
	{ hg_at = 3; goto hg_dispatch; }
B6:;
	r13 = (uint)(r13 + 1u);
	r18 = r13 < r14;
	if (r18) { hg_at = 1; goto hg_dispatch; }
B7:;
	r10 = (uint)(r5);
	r9 = (uint)(r9 + r10);
	r10 = (uint)(r16);
	r9 = (uint)(r9 ^ r10);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B4;
	case 3: goto B6;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 44 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 46 * (ulong)hg_n + 1 * hg_t) = r17;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 48 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 50 * (ulong)hg_n + 1 * hg_t) = r17;
			*(__global hg_b8 *)(values + 51 * (ulong)hg_n + 1 * hg_t) = r19;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
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
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, 3u, 31u, &p);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 2:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 3:
			break;
		case 4:
			break;
		case 5:
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

__kernel void k_phases__r2(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	uint hg_at = 0;
	const uint hg_w = 3;
	__local uint *hg_pf = (__local uint *)(hg_shared + (1024u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	uchar hg_local[32] __attribute__((aligned(16)));
	bool r17 = 0, r18 = 0, r19 = 0, r20 = 0;
	ushort r16 = 0;
	uint r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0, r12 = 0, r13 = 0, r14 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0;

	{
		const uint shared = ((1024u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r2 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r5 = *(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t);
		r10 = *(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t);
		r12 = *(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t);
		r13 = *(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t);
		r14 = *(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t);
		r16 = *(__global hg_b16 *)(values + 48 * (ulong)hg_n + 2 * hg_t);
		r17 = *(__global hg_b8 *)(values + 50 * (ulong)hg_n + 1 * hg_t);
		r19 = *(__global hg_b8 *)(values + 51 * (ulong)hg_n + 1 * hg_t);
		hg_load_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 7, hg_bar = 16;
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
		case 4: goto P4;
		case 7: goto Q4;
		case 5: goto P5;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	{
		ulong a = 8UL;
		r14 = *(__global hg_b32 *)(hg_params + a);
	}
	r6 = (uint)get_local_id(0);
	r7 = (uint)hg->block[0];
	r8 = (uint)(hg_b % hg->grid[0]);
	r11 = (uint)(hg_t & 31);
	r12 = (uint)(hg_t >> 5);
	r10 = (uint)(r8 * r7 + r6);
	r1 = (ulong)((ulong)r10 * (ulong)4u + r0);
	{
		ulong a = r1;
		r9 = *(__global hg_b32 *)(a);
	}
	r10 = r6 * 4u;
	r3 = (ulong)(r10);
	r2 = 0UL;
	r2 = (ulong)(r2 + r3);
	r13 = 0u;
	r5 = (ulong)(r9);
	r16 = (ushort)(r9);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r17 = r11 < 12u;
	{ hg_at = 1; goto hg_dispatch; }
B1:;
	if (!r17) goto B3;
B2:;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 4095u;
		w[2] = r9;
		goto hg_next;
	}
P1:;
	r9 = (uint)(r9 * 5u + r10);
	{ hg_at = 2; goto hg_dispatch; }
B3:;
	r19 = as_int(r9) > as_int(0u);
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xfffff000u;
		w[2] = r19;
		goto hg_next;
	}
P2:;
	r9 = (uint)(r9 ^ r10);
	{ hg_at = 2; goto hg_dispatch; }
B4:;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
	}
	{
		hg_pc = 3;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P3:;
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q3:;
	r10 = (uint)(r6 ^ 33u);
	r10 = r10 * 4u;
	r4 = (ulong)(r10);
	r3 = 0UL;
	r3 = (ulong)(r3 + r4);
	{
		ulong a = r3;
		r10 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		hg_pc = 4;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r17 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P4:;
	r19 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q4:;
	if (r19) r9 = (uint)(r9 + r10);
	{
		ulong a = 8UL;
		r4 = *(__private hg_b64 *)(hg_local + (uint)(a));
	}
	r5 = (ulong)(r4 * 0x5851f42d4c957f2dUL + r5);
	{
		ulong a = 8UL;
		*(__private hg_b64 *)(hg_local + (uint)(a)) = r5;
	}
	r16 = (ushort)(r16 + (ushort)7);
	r20 = r12 < 1u;
	if (!r20) { hg_at = 3; goto hg_dispatch; }
B5:;
	{
		hg_pc = 5;
		hg_bar = 2u & 15;
		hg_pf[16 + hg_bar] = 32u;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P5:;
	{ hg_at = 3; goto hg_dispatch; }
B6:;
	r13 = (uint)(r13 + 1u);
	r18 = r13 < r14;
	if (r18) { hg_at = 1; goto hg_dispatch; }
B7:;
	r10 = (uint)(r5);
	r9 = (uint)(r9 + r10);
	r10 = (uint)(r16);
	r9 = (uint)(r9 ^ r10);
	{
		ulong a = r1;
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B1;
	case 2: goto B4;
	case 3: goto B6;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 44 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 46 * (ulong)hg_n + 1 * hg_t) = r17;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((1024u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 64, 32), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r2;
			*(__global hg_b64 *)(values + 16 * (ulong)hg_n + 8 * hg_t) = r5;
			*(__global hg_b32 *)(values + 24 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b32 *)(values + 28 * (ulong)hg_n + 4 * hg_t) = r9;
			*(__global hg_b32 *)(values + 32 * (ulong)hg_n + 4 * hg_t) = r10;
			*(__global hg_b32 *)(values + 36 * (ulong)hg_n + 4 * hg_t) = r12;
			*(__global hg_b32 *)(values + 40 * (ulong)hg_n + 4 * hg_t) = r13;
			*(__global hg_b32 *)(values + 44 * (ulong)hg_n + 4 * hg_t) = r14;
			*(__global hg_b16 *)(values + 48 * (ulong)hg_n + 2 * hg_t) = r16;
			*(__global hg_b8 *)(values + 50 * (ulong)hg_n + 1 * hg_t) = r17;
			*(__global hg_b8 *)(values + 51 * (ulong)hg_n + 1 * hg_t) = r19;
			hg_save_local(values + 64 * (ulong)hg_n + 32 * (ulong)hg_t, hg_local, 0, 32);
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
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, 3u, 31u, &p);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 2:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r10 = v;
					hg_go = true;
				}
			}
			break;
		case 3:
			break;
		case 4:
			break;
		case 5:
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

