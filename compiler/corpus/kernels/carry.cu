// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Multiplies numbers of 128 bits, and adds and subtracts, in words of 32 bits that
// hand on their carry.
KERNEL carry(const uint4 *in, uint4 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	uint4 a = in[2 * i], b = in[2 * i + 1], s, d, p;
	asm("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
	    : "=&r"(s.x), "=&r"(s.y), "=&r"(s.z), "=&r"(s.w)
	    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w));
	asm("sub.cc.u32 %0, %4, %8;\n\tsubc.cc.u32 %1, %5, %9;\n\tsubc.cc.u32 %2, %6, %10;\n\tsubc.u32 %3, %7, %11;"
	    : "=&r"(d.x), "=&r"(d.y), "=&r"(d.z), "=&r"(d.w)
	    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w));
	// Of the product the lower 128 bits.
	asm("mul.lo.u32 %0, %4, %8;\n\t"
	    "mul.hi.u32 %1, %4, %8;\n\t"
	    "mad.lo.cc.u32 %1, %4, %9, %1;\n\t"
	    "madc.hi.u32 %2, %4, %9, 0;\n\t"
	    "mad.lo.cc.u32 %1, %5, %8, %1;\n\t"
	    "madc.hi.cc.u32 %2, %5, %8, %2;\n\t"
	    "addc.u32 %3, 0, 0;\n\t"
	    "mad.lo.cc.u32 %2, %4, %10, %2;\n\t"
	    "madc.hi.u32 %3, %4, %10, %3;\n\t"
	    "mad.lo.cc.u32 %2, %5, %9, %2;\n\t"
	    "madc.hi.u32 %3, %5, %9, %3;\n\t"
	    "mad.lo.cc.u32 %2, %6, %8, %2;\n\t"
	    "madc.hi.u32 %3, %6, %8, %3;\n\t"
	    "mad.lo.u32 %3, %4, %11, %3;\n\t"
	    "mad.lo.u32 %3, %5, %10, %3;\n\t"
	    "mad.lo.u32 %3, %6, %9, %3;\n\t"
	    "mad.lo.u32 %3, %7, %8, %3;"
	    : "=&r"(p.x), "=&r"(p.y), "=&r"(p.z), "=&r"(p.w)
	    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w));
	out[3 * i] = s;
	out[3 * i + 1] = d;
	out[3 * i + 2] = p;
}
