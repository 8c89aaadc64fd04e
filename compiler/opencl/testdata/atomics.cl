__kernel void k_atomics(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	const ulong hg_params = hg->params;
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (256u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r13 = 0, r14 = 0;
	ushort r11 = 0, r12 = 0;
	uint r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0;

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
	r6 = (uint)get_local_id(0);
	r7 = (uint)(r6 & 3u);
	r13 = r6 < 64u;
	r1 = (ulong)((ulong)r6 * (ulong)4u + r0);
	r2 = 0UL;
	r2 = (ulong)((ulong)r6 * (ulong)4u + r2);
	if (r13) {
		ulong a = r2;
		*(__local hg_b32 *)(hg_shared + (uint)(a)) = 0u;
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
	{
		ulong a = (r1 + 0x1000UL);
		r8 = *(__global hg_b32 *)(a);
	}
	{
		ulong a = r0;
		hg_atom_add_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 4UL);
		hg_atom_and_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 8UL);
		hg_atom_or_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 12UL);
		hg_atom_xor_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 16UL);
		hg_atom_min_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 20UL);
		hg_atom_max_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 24UL);
		hg_atom_min_s32_global(a, r8);
	}
	{
		ulong a = (r0 + 28UL);
		hg_atom_max_s32_global(a, r8);
	}
	{
		ulong a = (r0 + 32UL);
		hg_atom_inc_u32_global(a, 77u);
	}
	{
		ulong a = (r0 + 36UL);
		hg_atom_dec_u32_global(a, 50u);
	}
	{
		ulong a = (r0 + 40UL);
		hg_atom_add_f32_global(a, 0x3f800000u);
	}
	r2 = (ulong)(r8);
	r2 = r2 * 0x100000001UL;
	{
		ulong a = (r0 + 48UL);
		hg_atom_add_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 56UL);
		hg_atom_and_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 64UL);
		hg_atom_or_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 72UL);
		hg_atom_xor_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 80UL);
		hg_atom_min_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 88UL);
		hg_atom_max_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 96UL);
		hg_atom_min_s64_global(a, r2);
	}
	{
		ulong a = (r0 + 104UL);
		hg_atom_max_s64_global(a, r2);
	}
	{
		ulong a = (r0 + 112UL);
		hg_atom_add_f64_global(a, 0x3ff0000000000000UL);
	}
	{
		ulong a = (r0 + 120UL);
		hg_atom_add_f16x2_global(a, 0x3c003c00u);
	}
	{
		ulong a = (r0 + 124UL);
		hg_atom_add_f16_global(a, (ushort)15360);
	}
	{
		ulong a = (r0 + 126UL);
		hg_atom_add_bf16_global(a, (ushort)16256);
	}
	{
		ulong a = 0UL;
		hg_atom_add_u32_shared(a, hg_shared, r8);
	}
	{
		ulong a = 4UL;
		hg_atom_max_s32_shared(a, hg_shared, r8);
	}
	{
		ulong a = 8UL;
		hg_atom_inc_u32_shared(a, hg_shared, 1000u);
	}
	{
		ulong a = 12UL;
		hg_atom_add_f32_shared(a, hg_shared, 0x40000000u);
	}
	{
		ulong a = 16UL;
		hg_atom_add_u64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 24UL;
		hg_atom_xor_b64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 32UL;
		hg_atom_min_u64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 40UL;
		hg_atom_add_f64_shared(a, hg_shared, 0x4000000000000000UL);
	}
	{
		ulong a = (r0 + 128UL);
		mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint v0 = hg_atom_add_u32_global(a, 1u);
		mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		r10 = v0;
	}
	r3 = (ulong)((ulong)r10 * (ulong)4u + r0);
	{
		ulong a = (r3 + 0x2000UL);
		*(__global hg_b32 *)(a) = 1u;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_exch_b32_global(a, r6);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x4000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_cas_b32_global(a, r6, 0x3039u);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x5000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_cas_b32_global(a, r6, 0xd431u);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x6000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	r11 = (ushort)(r6);
	{
		ulong a = (r1 + 0x3002UL);
		ushort v0 = hg_atom_cas_b16_global(a, (ushort)0, r11);
		r12 = v0;
	}
	r9 = (uint)(r12);
	{
		ulong a = (r1 + 0x7000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r6;
	}
	r4 = 0UL | 0x1000000000000000UL;
	r4 = (ulong)(r4 + 128UL);
	r5 = 0UL | 0x2000000000000000UL;
	r14 = r7 == 1u;
	r3 = (ulong)(r0 + 132UL);
	r3 = (r14) ? r4 : r3;
	r14 = r7 == 2u;
	r3 = (r14) ? r5 : r3;
	{
		ulong a = r3;
		uint v0 = hg_atom_add_u32_generic(a, hg_shared, hg_local, 5u);
		r9 = v0;
	}
	{
		ulong a = (r3 + 4UL);
		hg_atom_add_f32_generic(a, hg_shared, hg_local, 0x3f800000u);
	}
	{
		ulong a = 0UL;
		r9 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	{
		ulong a = (r1 + 0x8000UL);
		*(__global hg_b32 *)(a) = r9;
	}
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
	r2 = 0UL;
	r2 = (ulong)((ulong)r6 * (ulong)4u + r2);
	if (r13) {
		ulong a = r2;
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	if (r13) {
		ulong a = (r1 + 0x9000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save1:;
	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 1);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r0;
		*(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t) = r7;
		*(__global hg_b8 *)(values + 24 * (ulong)hg_n + 1 * hg_t) = r13;
		hg_save_local(values + 32 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_save2:;
	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b8 *)(values + 16 * (ulong)hg_n + 1 * hg_t) = r13;
		hg_save_local(values + 32 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_atomics__r1(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uint hg_ph = 0;
	__local uint *hg_pf = (__local uint *)(hg_shared + (256u + ((hg->shared + 15) & ~15u)));
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r13 = 0, r14 = 0;
	ushort r11 = 0, r12 = 0;
	uint r6 = 0, r7 = 0, r8 = 0, r9 = 0, r10 = 0;
	ulong r0 = 0, r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0;

	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 16), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r0 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r1 = *(__global hg_b64 *)(values + 8 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 16 * (ulong)hg_n + 4 * hg_t);
		r7 = *(__global hg_b32 *)(values + 20 * (ulong)hg_n + 4 * hg_t);
		r13 = *(__global hg_b8 *)(values + 24 * (ulong)hg_n + 1 * hg_t);
		hg_load_local(values + 32 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
	{
		ulong a = (r1 + 0x1000UL);
		r8 = *(__global hg_b32 *)(a);
	}
	{
		ulong a = r0;
		hg_atom_add_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 4UL);
		hg_atom_and_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 8UL);
		hg_atom_or_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 12UL);
		hg_atom_xor_b32_global(a, r8);
	}
	{
		ulong a = (r0 + 16UL);
		hg_atom_min_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 20UL);
		hg_atom_max_u32_global(a, r8);
	}
	{
		ulong a = (r0 + 24UL);
		hg_atom_min_s32_global(a, r8);
	}
	{
		ulong a = (r0 + 28UL);
		hg_atom_max_s32_global(a, r8);
	}
	{
		ulong a = (r0 + 32UL);
		hg_atom_inc_u32_global(a, 77u);
	}
	{
		ulong a = (r0 + 36UL);
		hg_atom_dec_u32_global(a, 50u);
	}
	{
		ulong a = (r0 + 40UL);
		hg_atom_add_f32_global(a, 0x3f800000u);
	}
	r2 = (ulong)(r8);
	r2 = r2 * 0x100000001UL;
	{
		ulong a = (r0 + 48UL);
		hg_atom_add_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 56UL);
		hg_atom_and_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 64UL);
		hg_atom_or_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 72UL);
		hg_atom_xor_b64_global(a, r2);
	}
	{
		ulong a = (r0 + 80UL);
		hg_atom_min_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 88UL);
		hg_atom_max_u64_global(a, r2);
	}
	{
		ulong a = (r0 + 96UL);
		hg_atom_min_s64_global(a, r2);
	}
	{
		ulong a = (r0 + 104UL);
		hg_atom_max_s64_global(a, r2);
	}
	{
		ulong a = (r0 + 112UL);
		hg_atom_add_f64_global(a, 0x3ff0000000000000UL);
	}
	{
		ulong a = (r0 + 120UL);
		hg_atom_add_f16x2_global(a, 0x3c003c00u);
	}
	{
		ulong a = (r0 + 124UL);
		hg_atom_add_f16_global(a, (ushort)15360);
	}
	{
		ulong a = (r0 + 126UL);
		hg_atom_add_bf16_global(a, (ushort)16256);
	}
	{
		ulong a = 0UL;
		hg_atom_add_u32_shared(a, hg_shared, r8);
	}
	{
		ulong a = 4UL;
		hg_atom_max_s32_shared(a, hg_shared, r8);
	}
	{
		ulong a = 8UL;
		hg_atom_inc_u32_shared(a, hg_shared, 1000u);
	}
	{
		ulong a = 12UL;
		hg_atom_add_f32_shared(a, hg_shared, 0x40000000u);
	}
	{
		ulong a = 16UL;
		hg_atom_add_u64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 24UL;
		hg_atom_xor_b64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 32UL;
		hg_atom_min_u64_shared(a, hg_shared, r2);
	}
	{
		ulong a = 40UL;
		hg_atom_add_f64_shared(a, hg_shared, 0x4000000000000000UL);
	}
	{
		ulong a = (r0 + 128UL);
		mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		uint v0 = hg_atom_add_u32_global(a, 1u);
		mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		r10 = v0;
	}
	r3 = (ulong)((ulong)r10 * (ulong)4u + r0);
	{
		ulong a = (r3 + 0x2000UL);
		*(__global hg_b32 *)(a) = 1u;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_exch_b32_global(a, r6);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x4000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_cas_b32_global(a, r6, 0x3039u);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x5000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = (r1 + 0x3000UL);
		uint v0 = hg_atom_cas_b32_global(a, r6, 0xd431u);
		r9 = v0;
	}
	{
		ulong a = (r1 + 0x6000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	r11 = (ushort)(r6);
	{
		ulong a = (r1 + 0x3002UL);
		ushort v0 = hg_atom_cas_b16_global(a, (ushort)0, r11);
		r12 = v0;
	}
	r9 = (uint)(r12);
	{
		ulong a = (r1 + 0x7000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	{
		ulong a = 0UL;
		*(__private hg_b32 *)(hg_local + (uint)(a)) = r6;
	}
	r4 = 0UL | 0x1000000000000000UL;
	r4 = (ulong)(r4 + 128UL);
	r5 = 0UL | 0x2000000000000000UL;
	r14 = r7 == 1u;
	r3 = (ulong)(r0 + 132UL);
	r3 = (r14) ? r4 : r3;
	r14 = r7 == 2u;
	r3 = (r14) ? r5 : r3;
	{
		ulong a = r3;
		uint v0 = hg_atom_add_u32_generic(a, hg_shared, hg_local, 5u);
		r9 = v0;
	}
	{
		ulong a = (r3 + 4UL);
		hg_atom_add_f32_generic(a, hg_shared, hg_local, 0x3f800000u);
	}
	{
		ulong a = 0UL;
		r9 = *(__private hg_b32 *)(hg_local + (uint)(a));
	}
	{
		ulong a = (r1 + 0x8000UL);
		*(__global hg_b32 *)(a) = r9;
	}
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
	r2 = 0UL;
	r2 = (ulong)((ulong)r6 * (ulong)4u + r2);
	if (r13) {
		ulong a = r2;
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	if (r13) {
		ulong a = (r1 + 0x9000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
	return;
hg_save2:;
	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 16), values = area + shared;
		hg_save_shared(area, hg_shared, shared, hg_t, hg_n);
		if (hg_t == 0) {
			hg_status(hg, hg_b, 2);
		}
		*(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t) = r1;
		*(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t) = r6;
		*(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t) = r9;
		*(__global hg_b8 *)(values + 16 * (ulong)hg_n + 1 * hg_t) = r13;
		hg_save_local(values + 32 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	goto hg_out;
hg_out:;
}

__kernel void k_atomics__r2(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_n = hg->block[0] * hg->block[1] * hg->block[2];
	const uint hg_t = get_local_id(0) + hg->block[0] * (get_local_id(1) + hg->block[1] * get_local_id(2));
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	uchar hg_local[16] __attribute__((aligned(16)));
	bool r13 = 0;
	uint r6 = 0, r9 = 0;
	ulong r1 = 0, r2 = 0;

	{
		const uint shared = ((256u + hg->shared + 15) & ~15u);
		const ulong area = hg_area(hg, hg_b, hg_n, shared, 32, 16), values = area + shared;
		hg_load_shared(area, hg_shared, shared, hg_t, hg_n);
		r1 = *(__global hg_b64 *)(values + 0 * (ulong)hg_n + 8 * hg_t);
		r6 = *(__global hg_b32 *)(values + 8 * (ulong)hg_n + 4 * hg_t);
		r9 = *(__global hg_b32 *)(values + 12 * (ulong)hg_n + 4 * hg_t);
		r13 = *(__global hg_b8 *)(values + 16 * (ulong)hg_n + 1 * hg_t);
		hg_load_local(values + 32 * (ulong)hg_n + 16 * (ulong)hg_t, hg_local, 0, 16);
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
B0:;
	r2 = 0UL;
	r2 = (ulong)((ulong)r6 * (ulong)4u + r2);
	if (r13) {
		ulong a = r2;
		r9 = *(__local hg_b32 *)(hg_shared + (uint)(a));
	}
	if (r13) {
		ulong a = (r1 + 0x9000UL);
		*(__global hg_b32 *)(a) = r9;
	}
	goto hg_end;
hg_end:;
	if (hg_t == 0) {
		hg_status(hg, hg_b, 0xffffffffu);
	}
}

