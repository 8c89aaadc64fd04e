// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Threads of a warp together. Each has put its words into local memory: those of
// lane l begin at w[l * n]. m has the lanes that take part.

// The lanes that a warp has: the block's last one may have fewer than 32.
static uint hg_lanes(uint thread, uint threads)
{
	uint first = thread & ~31u;

	return threads - first < 32 ? (1u << (threads - first)) - 1 : ~0u;
}

// In general mode lanes come when they come. A lane's first word tells at what
// kind of operation it waits (1: it has ended), the second with whom. The result
// is the lanes that take part, or 0 as long as one has not come.
static uint hg_meet(__local uint *w, uint n, uint lane, uint lanes)
{
	uint kind = w[lane * n], mask = w[lane * n + 1], m = mask & lanes;

	for (uint l = 0; l < 32; l++) {
		if (!(m >> l & 1))
			continue;
		if (w[l * n] == 1)
			m &= ~(1u << l);
		else if (w[l * n] != kind || w[l * n + 1] != mask)
			return 0;
	}
	return m | 1u << lane;
}

// The lanes that are at the same operation now.
static uint hg_active(__local uint *w, uint n, uint lane, uint lanes)
{
	uint m = 0;

	for (uint l = 0; l < 32; l++)
		if ((lanes >> l & 1) && w[l * n] == w[lane * n])
			m |= 1u << l;
	return m;
}

// Modes: up, down, bfly, idx. in_range is whether the lane that is read is in the segment.
static uint hg_shfl(__local uint *w, uint n, uint lane, uint m, uint mode, uint b, uint c, bool *in_range)
{
	uint seg = c >> 8 & 31, clamp = c & 31, first = lane & seg, last = first | (clamp & ~seg);
	int j;

	b &= 31;
	j = mode == 0 ? (int)lane - (int)b : mode == 1 ? (int)(lane + b) : mode == 2 ? (int)(lane ^ b) : (int)(first | (b & ~seg));
	*in_range = mode == 0 ? j >= (int)last : j <= (int)last;
	if (!*in_range || !(m >> j & 1))
		j = (int)lane;
	return w[(uint)j * n];
}

static uint hg_ballot(__local uint *w, uint n, uint m)
{
	uint r = 0;

	for (uint l = 0; l < 32; l++)
		if ((m >> l & 1) && w[l * n] != 0)
			r |= 1u << l;
	return r;
}

// The lanes whose words (one or two) are lane's.
static uint hg_match(__local uint *w, uint n, uint lane, uint m, uint words)
{
	uint r = 0;

	for (uint l = 0; l < 32; l++)
		if ((m >> l & 1) && w[l * n] == w[lane * n] && (words < 2 || w[l * n + 1] == w[lane * n + 1]))
			r |= 1u << l;
	return r;
}

// Operations: add, and, or, xor, min, max; signed ones of min and max.
static uint hg_redux(__local uint *w, uint n, uint m, uint op, bool sign)
{
	bool begun = false;
	uint r = 0;

	for (uint l = 0; l < 32; l++) {
		if (!(m >> l & 1))
			continue;
		uint v = w[l * n];
		r = !begun ? v : op == 0 ? r + v : op == 1 ? r & v : op == 2 ? r | v : op == 3 ? r ^ v
			: op == 4 ? (sign ? as_uint(min(as_int(r), as_int(v))) : min(r, v))
			: sign ? as_uint(max(as_int(r), as_int(v))) : max(r, v);
		begun = true;
	}
	return r;
}

// Floats: min or max; with nan a NaN wins.
static uint hg_redux_f32(__local uint *w, uint n, uint m, bool greatest, bool nan)
{
	bool begun = false;
	float r = 0.0f;

	for (uint l = 0; l < 32; l++) {
		if (!(m >> l & 1))
			continue;
		float v = as_float(w[l * n]);
		r = !begun ? v : nan ? (greatest ? hg_max_nan_f32(r, v) : hg_min_nan_f32(r, v))
			: greatest ? hg_max_f32(r, v) : hg_min_f32(r, v);
		begun = true;
	}
	return as_uint(r);
}

// The barriers of general mode, of which one thread keeps the books: f has, for
// each of 16, how many have come, how many are awaited (0: all), how many of them
// with a true and with a false predicate; then whether it opens now, and the two
// numbers again as they were. Exited threads are not waited for.
static bool hg_books(__local uint *f, uint threads, uint exited)
{
	bool any = false;

	for (uint b = 0; b < 16; b++) {
		uint want = f[16 + b] != 0 ? f[16 + b] : threads - exited;
		bool opens = f[b] != 0 && f[b] >= want;
		f[64 + b] = opens;
		if (!opens)
			continue;
		any = true;
		f[80 + b] = f[32 + b];
		f[96 + b] = f[48 + b];
		f[b] = f[16 + b] = f[32 + b] = f[48 + b] = 0;
	}
	return any;
}

// A thread arrives at an mbarrier: bits 0 to 19 are how many threads each phase
// expects, 20 to 39 how many are still to come, bit 63 is the phase's parity. The
// result is what the mbarrier was.
static ulong hg_arrive(volatile __local ulong *p, uint count, bool drop)
{
	for (;;) {
		ulong old = *p, expected = old & 0xfffff, pending = old >> 20 & 0xfffff, phase = old >> 63 << 63;

		pending -= min((ulong)count, pending);
		if (drop)
			expected -= min((ulong)count, expected);
		if (pending == 0) {
			phase ^= 1UL << 63;
			pending = expected;
		}
		if (atom_cmpxchg(p, old, phase | pending << 20 | expected) == old)
			return old;
	}
}
