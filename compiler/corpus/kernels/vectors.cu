// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Vector loads and stores of all widths, and numbers of one byte.
KERNEL vectors(const uint4 *in, uint4 *out, const uchar4 *pixels, uchar4 *grey, const double *d, double *e, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	uint4 v = in[i];
	out[i] = uint4{v.w + 1, v.z ^ v.x, v.y - v.x, v.x};
	uchar4 p = pixels[i];
	u8 y = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
	grey[i] = uchar4{y, (u8)(255 - y), (u8)(y + p.w), p.w};
	double x, z;
	asm("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(x), "=d"(z) : "l"(d + 2 * i));
	asm volatile("st.global.v2.f64 [%0], {%1, %2};" : : "l"(e + 2 * i), "d"(z), "d"(x + z) : "memory");
}
