// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// An element of a matrix that lies in a warp's words: at has the lane and which
// of its elements it is.
static uint hg_element(__local uint *w, uint n, uint at, uint per, uint bits)
{
	uint e = at & 255, v = w[(at >> 8) * n + e / per] >> (e % per * bits);

	return bits == 32 ? v : v & ((1u << bits) - 1);
}

static ulong hg_element64(__local uint *w, uint n, uint at)
{
	__local uint *p = w + (at >> 8) * n + 2 * (at & 255);

	return p[0] | (ulong)p[1] << 32;
}
