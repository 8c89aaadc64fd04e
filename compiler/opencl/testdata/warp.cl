__kernel void k_warp(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 2;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 4;
	bool r8 = 0, r9 = 0;
	uint r3 = 0, r4 = 0, r6 = 0, r7 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0;

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
	r3 = (uint)get_local_id(0);
	r1 = (ulong)((ulong)r3 * (ulong)128u + r0);
	{
		ulong a = r1;
		r4 = *(__global hg_b32 *)(a);
	}
	r7 = (uint)(r4 & 31u);
	r8 = r7 < 9u;
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		bool p;
		uint v = hg_shfl(w, hg_w, hg_t & 31, m, 0, 3u, 0u, &p);
		r6 = v;
		r9 = p;
	}
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		bool p;
		uint v = hg_shfl(w, hg_w, hg_t & 31, m, 1, 5u, 0x181fu, &p);
		r6 = v;
		r9 = p;
	}
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		bool p;
		uint v = hg_shfl(w, hg_w, hg_t & 31, m, 2, 16u, 31u, &p);
		r6 = v;
	}
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		bool p;
		uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, r7, 0x101fu, &p);
		r6 = v;
		r9 = p;
	}
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_ballot(w, hg_w, m);
		r6 = v;
	}
	{
		ulong a = (r1 + 28UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_ballot(w, hg_w, m);
		r9 = v == m;
	}
	r6 = (r9) ? 1u : 0u;
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_ballot(w, hg_w, m);
		r9 = v != 0;
	}
	if (r9) r6 = (uint)(r6 + 2u);
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = !r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_ballot(w, hg_w, m);
		r9 = v == m || v == 0;
	}
	if (r9) r6 = (uint)(r6 + 4u);
	{
		ulong a = (r1 + 32UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r7 = (uint)(r4 & 3u);
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r7;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
		r6 = v;
	}
	{
		ulong a = (r1 + 36UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r2 = (ulong)(r7);
	r2 = (ulong)(hg_shl_b64(r2, 32u));
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = (uint)r2;
		w[hg_t * hg_w + 1] = (uint)(r2 >> 32);
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_match(w, hg_w, hg_t & 31, m, 2);
		r6 = v;
	}
	{
		ulong a = (r1 + 40UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = 7u;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
		r6 = v == m ? m : 0;
		r9 = v == m;
	}
	{
		ulong a = (r1 + 44UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r7;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
		r6 = v == m ? m : 0;
		r9 = v == m;
	}
	if (r9) r6 = (uint)(r6 + 1u);
	{
		ulong a = (r1 + 48UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 0, false);
	}
	{
		ulong a = (r1 + 52UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 4, true);
	}
	{
		ulong a = (r1 + 56UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 5, false);
	}
	{
		ulong a = (r1 + 60UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 1, false);
	}
	{
		ulong a = (r1 + 64UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 2, false);
	}
	{
		ulong a = (r1 + 68UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w + 0] = r4;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		w += (hg_t & ~31u) * hg_w;
		uint m = hg_lanes(hg_t, hg_n);
		r6 = hg_redux(w, hg_w, m, 3, false);
	}
	{
		ulong a = (r1 + 72UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint m = hg_lanes(hg_t, hg_n);
		r6 = m;
	}
	{
		ulong a = (r1 + 76UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint m = hg_lanes(hg_t, hg_n);
		r6 = 31 - clz(m & (0 - m));
		r9 = (m & (0 - m)) == 1u << (hg_t & 31);
	}
	if (r9) r6 = (uint)(r6 + 100u);
	{
		ulong a = (r1 + 80UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint m = hg_lanes(hg_t, hg_n);
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint v = 0;
		for (uint i = 0; i < hg_n; i++)
			v += w[i * hg_w];
		r6 = v;
	}
	{
		ulong a = (r1 + 84UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint v = 0;
		for (uint i = 0; i < hg_n; i++)
			v += w[i * hg_w];
		r9 = (hg_n - v) == 0;
	}
	r6 = (r9) ? 1u : 0u;
	{
		__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;
		w[hg_t * hg_w] = r8;
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint v = 0;
		for (uint i = 0; i < hg_n; i++)
			v += w[i * hg_w];
		r9 = (v) != 0;
	}
	if (r9) r6 = (uint)(r6 + 2u);
	{
		ulong a = (r1 + 88UL);
		*(__global hg_b32 *)(a) = r6;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

__kernel void k_warp__r1(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 4;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	bool r8 = 0, r9 = 0;
	uint r3 = 0, r4 = 0, r6 = 0, r7 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r8 = *(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 25, hg_bar = 16;
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
		case 5: goto P5;
		case 6: goto P6;
		case 7: goto P7;
		case 8: goto P8;
		case 9: goto P9;
		case 10: goto P10;
		case 11: goto P11;
		case 12: goto P12;
		case 13: goto P13;
		case 14: goto P14;
		case 15: goto P15;
		case 16: goto P16;
		case 17: goto P17;
		case 18: goto P18;
		case 19: goto P19;
		case 20: goto P20;
		case 21: goto P21;
		case 22: goto P22;
		case 25: goto Q22;
		case 23: goto P23;
		case 24: goto P24;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	r3 = (uint)get_local_id(0);
	r1 = (ulong)((ulong)r3 * (ulong)128u + r0);
	{
		ulong a = r1;
		r4 = *(__global hg_b32 *)(a);
	}
	r7 = (uint)(r4 & 31u);
	r8 = r7 < 9u;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P1:;
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P2:;
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 3;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 4;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P3:;
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 4;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 5;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P4:;
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 5;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 6;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P5:;
	{
		ulong a = (r1 + 28UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 6;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 7;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P6:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 7;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 8;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P7:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		hg_pc = 8;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 9;
		w[1] = 0xffffffffu;
		w[2] = !r8;
		goto hg_next;
	}
P8:;
	if (r9) r6 = (uint)(r6 + 4u);
	{
		ulong a = (r1 + 32UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r7 = (uint)(r4 & 3u);
	{
		hg_pc = 9;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 10;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P9:;
	{
		ulong a = (r1 + 36UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r2 = (ulong)(r7);
	r2 = (ulong)(hg_shl_b64(r2, 32u));
	{
		hg_pc = 10;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 11;
		w[1] = 0xffffffffu;
		w[2] = (uint)r2;
		w[3] = (uint)(r2 >> 32);
		goto hg_next;
	}
P10:;
	{
		ulong a = (r1 + 40UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 11;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = 7u;
		goto hg_next;
	}
P11:;
	{
		ulong a = (r1 + 44UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 12;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P12:;
	if (r9) r6 = (uint)(r6 + 1u);
	{
		ulong a = (r1 + 48UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 13;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 13;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P13:;
	{
		ulong a = (r1 + 52UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 14;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 14;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P14:;
	{
		ulong a = (r1 + 56UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 15;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 15;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P15:;
	{
		ulong a = (r1 + 60UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 16;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 16;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P16:;
	{
		ulong a = (r1 + 64UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 17;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 17;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P17:;
	{
		ulong a = (r1 + 68UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 18;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 18;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P18:;
	{
		ulong a = (r1 + 72UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 19;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 19;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P19:;
	{
		ulong a = (r1 + 76UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 20;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 20;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P20:;
	if (r9) r6 = (uint)(r6 + 100u);
	{
		ulong a = (r1 + 80UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 21;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 21;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P21:;
	{
		hg_pc = 22;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P22:;
	r6 = hg_pf[80 + hg_bar];
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q22:;
	{
		ulong a = (r1 + 84UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 23;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P23:;
	r9 = (hg_pf[96 + hg_bar]) == 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q23:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 24;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P24:;
	r9 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q24:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		ulong a = (r1 + 88UL);
		*(__global hg_b32 *)(a) = r6;
	}
	goto hg_end;
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r8;
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b8 *)(values + 8 * (ulong)hg_n + 1 * hg_t) = r8;
			*(__global hg_b8 *)(values + 9 * (ulong)hg_n + 1 * hg_t) = r9;
		}
		goto hg_out;
hg_save3:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 3);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r9;
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
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 0, 3u, 0u, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 1, 5u, 0x181fu, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 2, 16u, 31u, &p);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 4:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, r7, 0x101fu, &p);
					r6 = v;
					r9 = p;
					hg_go = true;
				}
			}
			break;
		case 5:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 6:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 7:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v != 0;
					hg_go = true;
				}
			}
			break;
		case 8:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m || v == 0;
					hg_go = true;
				}
			}
			break;
		case 9:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 10:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 2);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 11:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 12:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 13:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 0, false);
					hg_go = true;
				}
			}
			break;
		case 14:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 4, true);
					hg_go = true;
				}
			}
			break;
		case 15:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 5, false);
					hg_go = true;
				}
			}
			break;
		case 16:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 1, false);
					hg_go = true;
				}
			}
			break;
		case 17:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 2, false);
					hg_go = true;
				}
			}
			break;
		case 18:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 3, false);
					hg_go = true;
				}
			}
			break;
		case 19:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_active(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = m;
					hg_go = true;
				}
			}
			break;
		case 20:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = 31 - clz(m & (0 - m));
					r9 = (m & (0 - m)) == 1u << (hg_t & 31);
					hg_go = true;
				}
			}
			break;
		case 21:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					hg_go = true;
				}
			}
			break;
		case 22:
			break;
		case 23:
			break;
		case 24:
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

__kernel void k_warp__r2(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 4;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	bool r8 = 0, r9 = 0;
	uint r3 = 0, r4 = 0, r6 = 0, r7 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r8 = *(__global hg_b8 *)(values + 8 * (ulong)hg_n + 1 * hg_t);
		r9 = *(__global hg_b8 *)(values + 9 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 25, hg_bar = 16;
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
		case 5: goto P5;
		case 6: goto P6;
		case 7: goto P7;
		case 8: goto P8;
		case 9: goto P9;
		case 10: goto P10;
		case 11: goto P11;
		case 12: goto P12;
		case 13: goto P13;
		case 14: goto P14;
		case 15: goto P15;
		case 16: goto P16;
		case 17: goto P17;
		case 18: goto P18;
		case 19: goto P19;
		case 20: goto P20;
		case 21: goto P21;
		case 22: goto P22;
		case 23: goto P23;
		case 25: goto Q23;
		case 24: goto P24;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	r3 = (uint)get_local_id(0);
	r1 = (ulong)((ulong)r3 * (ulong)128u + r0);
	{
		ulong a = r1;
		r4 = *(__global hg_b32 *)(a);
	}
	r7 = (uint)(r4 & 31u);
	r8 = r7 < 9u;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P1:;
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P2:;
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 3;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 4;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P3:;
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 4;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 5;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P4:;
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 5;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 6;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P5:;
	{
		ulong a = (r1 + 28UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 6;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 7;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P6:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 7;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 8;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P7:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		hg_pc = 8;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 9;
		w[1] = 0xffffffffu;
		w[2] = !r8;
		goto hg_next;
	}
P8:;
	if (r9) r6 = (uint)(r6 + 4u);
	{
		ulong a = (r1 + 32UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r7 = (uint)(r4 & 3u);
	{
		hg_pc = 9;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 10;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P9:;
	{
		ulong a = (r1 + 36UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r2 = (ulong)(r7);
	r2 = (ulong)(hg_shl_b64(r2, 32u));
	{
		hg_pc = 10;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 11;
		w[1] = 0xffffffffu;
		w[2] = (uint)r2;
		w[3] = (uint)(r2 >> 32);
		goto hg_next;
	}
P10:;
	{
		ulong a = (r1 + 40UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 11;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = 7u;
		goto hg_next;
	}
P11:;
	{
		ulong a = (r1 + 44UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 12;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P12:;
	if (r9) r6 = (uint)(r6 + 1u);
	{
		ulong a = (r1 + 48UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 13;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 13;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P13:;
	{
		ulong a = (r1 + 52UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 14;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 14;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P14:;
	{
		ulong a = (r1 + 56UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 15;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 15;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P15:;
	{
		ulong a = (r1 + 60UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 16;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 16;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P16:;
	{
		ulong a = (r1 + 64UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 17;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 17;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P17:;
	{
		ulong a = (r1 + 68UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 18;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 18;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P18:;
	{
		ulong a = (r1 + 72UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 19;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 19;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P19:;
	{
		ulong a = (r1 + 76UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 20;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 20;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P20:;
	if (r9) r6 = (uint)(r6 + 100u);
	{
		ulong a = (r1 + 80UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 21;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 21;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P21:;
	{
		hg_pc = 22;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P22:;
	r6 = hg_pf[80 + hg_bar];
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q22:;
	{
		ulong a = (r1 + 84UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 23;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P23:;
	r9 = (hg_pf[96 + hg_bar]) == 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q23:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 24;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P24:;
	r9 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q24:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		ulong a = (r1 + 88UL);
		*(__global hg_b32 *)(a) = r6;
	}
	goto hg_end;
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r8;
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b8 *)(values + 8 * (ulong)hg_n + 1 * hg_t) = r8;
			*(__global hg_b8 *)(values + 9 * (ulong)hg_n + 1 * hg_t) = r9;
		}
		goto hg_out;
hg_save3:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 3);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r9;
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
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 0, 3u, 0u, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 1, 5u, 0x181fu, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 2, 16u, 31u, &p);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 4:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, r7, 0x101fu, &p);
					r6 = v;
					r9 = p;
					hg_go = true;
				}
			}
			break;
		case 5:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 6:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 7:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v != 0;
					hg_go = true;
				}
			}
			break;
		case 8:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m || v == 0;
					hg_go = true;
				}
			}
			break;
		case 9:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 10:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 2);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 11:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 12:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 13:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 0, false);
					hg_go = true;
				}
			}
			break;
		case 14:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 4, true);
					hg_go = true;
				}
			}
			break;
		case 15:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 5, false);
					hg_go = true;
				}
			}
			break;
		case 16:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 1, false);
					hg_go = true;
				}
			}
			break;
		case 17:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 2, false);
					hg_go = true;
				}
			}
			break;
		case 18:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 3, false);
					hg_go = true;
				}
			}
			break;
		case 19:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_active(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = m;
					hg_go = true;
				}
			}
			break;
		case 20:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = 31 - clz(m & (0 - m));
					r9 = (m & (0 - m)) == 1u << (hg_t & 31);
					hg_go = true;
				}
			}
			break;
		case 21:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					hg_go = true;
				}
			}
			break;
		case 22:
			break;
		case 23:
			break;
		case 24:
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

__kernel void k_warp__r3(__global const struct hg_launch *hg, __local uchar *hg_shared)
{
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	const uint hg_w = 4;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 120;
	bool r8 = 0, r9 = 0;
	uint r3 = 0, r4 = 0, r6 = 0, r7 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	uint hg_pc = 25, hg_bar = 16;
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
		case 5: goto P5;
		case 6: goto P6;
		case 7: goto P7;
		case 8: goto P8;
		case 9: goto P9;
		case 10: goto P10;
		case 11: goto P11;
		case 12: goto P12;
		case 13: goto P13;
		case 14: goto P14;
		case 15: goto P15;
		case 16: goto P16;
		case 17: goto P17;
		case 18: goto P18;
		case 19: goto P19;
		case 20: goto P20;
		case 21: goto P21;
		case 22: goto P22;
		case 23: goto P23;
		case 24: goto P24;
		case 25: goto Q24;
		default: goto hg_next;
		}
B0:;
	{
		ulong a = 0UL;
		r0 = *(__global hg_b64 *)(hg_params + a);
	}
	r3 = (uint)get_local_id(0);
	r1 = (ulong)((ulong)r3 * (ulong)128u + r0);
	{
		ulong a = r1;
		r4 = *(__global hg_b32 *)(a);
	}
	r7 = (uint)(r4 & 31u);
	r8 = r7 < 9u;
	{
		hg_pc = 1;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 2;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P1:;
	{
		ulong a = (r1 + 4UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 8UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 2;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 3;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P2:;
	{
		ulong a = (r1 + 12UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 3;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 4;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P3:;
	{
		ulong a = (r1 + 16UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 4;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 5;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P4:;
	{
		ulong a = (r1 + 20UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r6 = (r9) ? 1u : 0u;
	{
		ulong a = (r1 + 24UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 5;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 6;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P5:;
	{
		ulong a = (r1 + 28UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 6;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 7;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P6:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 7;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 8;
		w[1] = 0xffffffffu;
		w[2] = r8;
		goto hg_next;
	}
P7:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		hg_pc = 8;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 9;
		w[1] = 0xffffffffu;
		w[2] = !r8;
		goto hg_next;
	}
P8:;
	if (r9) r6 = (uint)(r6 + 4u);
	{
		ulong a = (r1 + 32UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r7 = (uint)(r4 & 3u);
	{
		hg_pc = 9;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 10;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P9:;
	{
		ulong a = (r1 + 36UL);
		*(__global hg_b32 *)(a) = r6;
	}
	r2 = (ulong)(r7);
	r2 = (ulong)(hg_shl_b64(r2, 32u));
	{
		hg_pc = 10;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 11;
		w[1] = 0xffffffffu;
		w[2] = (uint)r2;
		w[3] = (uint)(r2 >> 32);
		goto hg_next;
	}
P10:;
	{
		ulong a = (r1 + 40UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 11;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = 7u;
		goto hg_next;
	}
P11:;
	{
		ulong a = (r1 + 44UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 12;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 12;
		w[1] = 0xffffffffu;
		w[2] = r7;
		goto hg_next;
	}
P12:;
	if (r9) r6 = (uint)(r6 + 1u);
	{
		ulong a = (r1 + 48UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 13;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 13;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P13:;
	{
		ulong a = (r1 + 52UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 14;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 14;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P14:;
	{
		ulong a = (r1 + 56UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 15;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 15;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P15:;
	{
		ulong a = (r1 + 60UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 16;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 16;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P16:;
	{
		ulong a = (r1 + 64UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 17;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 17;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P17:;
	{
		ulong a = (r1 + 68UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 18;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 18;
		w[1] = 0xffffffffu;
		w[2] = r4;
		goto hg_next;
	}
P18:;
	{
		ulong a = (r1 + 72UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 19;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 19;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P19:;
	{
		ulong a = (r1 + 76UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 20;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 20;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P20:;
	if (r9) r6 = (uint)(r6 + 100u);
	{
		ulong a = (r1 + 80UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 21;
		hg_bar = 16;
		__local uint *w = hg_x + hg_t * hg_w;
		w[0] = 21;
		w[1] = 0xffffffffu;
		goto hg_next;
	}
P21:;
	{
		hg_pc = 22;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P22:;
	r6 = hg_pf[80 + hg_bar];
	if (hg_pf[115]) {
		goto hg_save1;
	}
Q22:;
	{
		ulong a = (r1 + 84UL);
		*(__global hg_b32 *)(a) = r6;
	}
	{
		hg_pc = 23;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P23:;
	r9 = (hg_pf[96 + hg_bar]) == 0;
	if (hg_pf[115]) {
		goto hg_save2;
	}
Q23:;
	r6 = (r9) ? 1u : 0u;
	{
		hg_pc = 24;
		hg_bar = 0u & 15;
		hg_pf[16 + hg_bar] = 0u;
		atomic_inc(hg_pf + (r8 ? 32 : 48) + hg_bar);
		atomic_inc(hg_pf + hg_bar);
		hg_x[hg_t * hg_w] = 0;
		goto hg_next;
	}
P24:;
	r9 = (hg_pf[80 + hg_bar]) != 0;
	if (hg_pf[115]) {
		goto hg_save3;
	}
Q24:;
	if (r9) r6 = (uint)(r6 + 2u);
	{
		ulong a = (r1 + 88UL);
		*(__global hg_b32 *)(a) = r6;
	}
	goto hg_end;
hg_end:;
		hg_over = true;
		goto hg_out;
hg_save1:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 1);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r8;
		}
		goto hg_out;
hg_save2:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 2);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b8 *)(values + 8 * (ulong)hg_n + 1 * hg_t) = r8;
			*(__global hg_b8 *)(values + 9 * (ulong)hg_n + 1 * hg_t) = r9;
		}
		goto hg_out;
hg_save3:;
		{
			const uint shared = ((0u + hg->shared + 15) & ~15u);
			const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
			hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
			if (hg_t == 0) {
				hg_status(hg, hg_b, 3);
			}
			*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
			*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
			*(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t) = r9;
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
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 0, 3u, 0u, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 1, 5u, 0x181fu, &p);
					r6 = v;
					r9 = p;
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
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 2, 16u, 31u, &p);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 4:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					bool p;
					uint v = hg_shfl(w, hg_w, hg_t & 31, m, 3, r7, 0x101fu, &p);
					r6 = v;
					r9 = p;
					hg_go = true;
				}
			}
			break;
		case 5:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 6:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 7:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v != 0;
					hg_go = true;
				}
			}
			break;
		case 8:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_ballot(w, hg_w, m);
					r9 = v == m || v == 0;
					hg_go = true;
				}
			}
			break;
		case 9:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 10:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 2);
					r6 = v;
					hg_go = true;
				}
			}
			break;
		case 11:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 12:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					uint v = hg_match(w, hg_w, hg_t & 31, m, 1);
					r6 = v == m ? m : 0;
					r9 = v == m;
					hg_go = true;
				}
			}
			break;
		case 13:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 0, false);
					hg_go = true;
				}
			}
			break;
		case 14:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 4, true);
					hg_go = true;
				}
			}
			break;
		case 15:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 5, false);
					hg_go = true;
				}
			}
			break;
		case 16:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 1, false);
					hg_go = true;
				}
			}
			break;
		case 17:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 2, false);
					hg_go = true;
				}
			}
			break;
		case 18:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = hg_redux(w, hg_w, m, 3, false);
					hg_go = true;
				}
			}
			break;
		case 19:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_active(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = m;
					hg_go = true;
				}
			}
			break;
		case 20:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					r6 = 31 - clz(m & (0 - m));
					r9 = (m & (0 - m)) == 1u << (hg_t & 31);
					hg_go = true;
				}
			}
			break;
		case 21:
			{
				__local uint *w = hg_x + (hg_t & ~31u) * hg_w;
				uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));
				if (m != 0) {
					w += 2;
					hg_go = true;
				}
			}
			break;
		case 22:
			break;
		case 23:
			break;
		case 24:
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

