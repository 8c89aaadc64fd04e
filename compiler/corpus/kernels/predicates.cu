// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Comparisons with NaN, predicates that are combined, and guards.
KERNEL predicates(const float *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	float a = in[2 * i], b = in[2 * i + 1];
	u32 r = 0, t;
#define TEST(op, bit) \
	asm("{.reg .pred p; setp." op ".f32 p, %1, %2; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "f"(a), "f"(b)); \
	r |= t << bit
	TEST("eq", 0);
	TEST("ne", 1);
	TEST("lt", 2);
	TEST("le", 3);
	TEST("gt", 4);
	TEST("ge", 5);
	TEST("equ", 6);
	TEST("neu", 7);
	TEST("ltu", 8);
	TEST("leu", 9);
	TEST("gtu", 10);
	TEST("geu", 11);
	TEST("num", 12);
	TEST("nan", 13);
	asm("{.reg .pred p, q, x; setp.lt.f32 x, %1, 0f00000000; setp.gt.and.f32 p|q, %1, %2, x; selp.u32 %0, 1, 0, p; @q or.b32 %0, %0, 2;"
	    " @!x or.b32 %0, %0, 4;}" : "=&r"(t) : "f"(a), "f"(b));
	r |= t << 14;
	asm("set.lt.u32.f32 %0, %1, %2;" : "=r"(t) : "f"(a), "f"(b));
	r |= t << 17 & 1 << 17;
	asm("slct.u32.f32 %0, 1, 0, %1;" : "=r"(t) : "f"(a));
	r |= t << 18;
	asm("{.reg .pred p; testp.subnormal.f32 p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "f"(a));
	r |= t << 19;
	asm("{.reg .pred p; testp.finite.f32 p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(t) : "f"(b));
	r |= t << 20;
	asm("{.reg .pred p, q, x; setp.lt.f32 p, %1, %2; setp.lt.f32 q, %2, 0f3f800000; xor.pred x, p, q; not.pred q, x; selp.u32 %0, 2, 0, q;"
	    " @p add.u32 %0, %0, 1;}" : "=&r"(t) : "f"(a), "f"(b));
	out[i] = r | t << 21;
}
