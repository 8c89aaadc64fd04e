__kernel void k_warp(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
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

__kernel void k_warp__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	const uint hg_w = 1;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 4;
	bool r8 = 0, r9 = 0;
	uint r6 = 0;
	ulong r1 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r8 = *(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
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

__kernel void k_warp__r2(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	const uint hg_w = 1;
	__local uint *hg_pf = (__local uint *)(hg_shared + (0u + ((hg->shared + 15) & ~15u)));
	__local uint *hg_x = hg_pf + 4;
	bool r8 = 0, r9 = 0;
	uint r6 = 0;
	ulong r1 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r8 = *(__global hg_b8 *)(values + 8 * (ulong)hg_n + 1 * hg_t);
		r9 = *(__global hg_b8 *)(values + 9 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
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

__kernel void k_warp__r3(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	bool r9 = 0;
	uint r6 = 0;
	ulong r1 = 0;

	{
		const uint shared = ((0u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 16, 0), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b8 *)(values + 12 * (ulong)hg_n + 1 * hg_t);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
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

