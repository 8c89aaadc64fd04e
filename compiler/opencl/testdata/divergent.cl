__kernel void k_divergent(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
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
	bool r13 = 0, r14 = 0, r15 = 0;
	uint r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, r11 = 0, r12 = 0;
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
		case 2: goto P2;
		case 3: goto P3;
		case 4: goto P4;
		case 5: goto P5;
		case 6: goto P6;
		case 7: goto P7;
		case 8: goto P8;
		case 9: goto P9;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	r4 = (uint)get_local_id(0);
	r5 = (uint)(hg_t & 31);
	r11 = (uint)(hg_t >> 5);
	r12 = (uint)hg->block[0];
	r1 = (ulong)((ulong)r4 * (ulong)32u + r0);
	{
		ulong a = r1;
		r6 = *(__global hg_b32 *)(a);
	}
	r15 = r5 < 16u;
	if (!r15) goto B4;
B1:;
	r8 = 8u;
	{ hg_at = 3; goto hg_dispatch; }
B2:;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 0xffffu;
		w[2] = r6;
		goto hg_next;
	}
P1:;
	r6 = (uint)(r6 + r7);
	r8 = (uint)(hg_shr_u32(r8, 1u));
	r13 = r8 != 0u;
	if (r13) { hg_at = 3; goto hg_dispatch; }
B3:;
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{ hg_at = 2; goto hg_dispatch; }
B4:;
	r13 = r5 == 20u;
	if (!r13) goto B6;
B5:;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = 77u;
	}
	goto hg_end;
B6:;
	r14 = r5 < 24u;
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xffef0000u;
		w[2] = r14;
		goto hg_next;
	}
P2:;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{ hg_at = 2; goto hg_dispatch; }
B7:;
	r14 = r5 == 20u;
	{
		hg_pc = 3;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xffefffffu;
		w[2] = !r14;
		goto hg_next;
	}
P3:;
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		hg_pc = 4;
		hg_bar = 0u & 15;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P4:;
	r7 = r4 * 4u;
	r3 = (ulong)(r7);
	r2 = 0UL;
	r2 = (ulong)(r2 + r3);
	r14 = r11 < 2u;
	if (!r14) goto B9;
B8:;
	r9 = r6 * 3u;
	{
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = r9;
	}
	{
		hg_pc = 5;
		hg_bar = 1u & 15;
		hg_pf[16 + hg_bar] = 124u;
		atomic_inc(hg_pf + hg_bar);
		hg_bar = 16;
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P5:;
	{
		hg_pc = 6;
		hg_bar = 3u & 15;
		hg_pf[16 + hg_bar] = 62u;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P6:;
	{ hg_at = 1; goto hg_dispatch; }
B9:;
	{
		hg_pc = 7;
		hg_bar = 1u & 15;
		hg_pf[16 + hg_bar] = 124u;
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P7:;
	{
		ulong a = (r2 + 0xffffffffffffff00UL);
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		hg_pc = 8;
		hg_bar = 4u & 15;
		hg_pf[16 + hg_bar] = 62u;
		atomic_inc(hg_pf + (r15 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P8:;
	r9 = hg_pf[80 + hg_bar];
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{ hg_at = 1; goto hg_dispatch; }
B10:;
	r13 = r6 > 100u;
	{
		hg_pc = 9;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r13 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P9:;
	r9 = hg_pf[80 + hg_bar];
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_dispatch:;
	switch (hg_at) {
	case 1: goto B10;
	case 2: goto B7;
	case 3: goto B2;
	default: goto hg_end;
	}
hg_end:;
		hg_over = true;
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
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 1, r8, 0x101fu, &p);
					r7 = v;
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
					r9 = v;
					hg_go = true;
				}
			}
			break;
		case 3:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v;
					hg_go = true;
				}
			}
			break;
		case 4:
			break;
		case 5:
			hg_go = true;
			break;
		case 6:
			break;
		case 7:
			break;
		case 8:
			break;
		case 9:
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
			}
		}
		hg_stop = hg_pf[112] == hg_n;
	}
	if (hg_t == 0 && hg_over) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

