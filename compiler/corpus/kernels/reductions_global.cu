// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// red: operations without a result, with scopes and orders.
KERNEL reductions_global(const u32 *in, u32 *cells, u64 *longs, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v = in[i];
#define RED(op, p, c, v) asm volatile("red." op " [%0], %1;" : : "l"(p), c(v) : "memory")
	RED("global.add.u32", cells, "r", v);
	RED("relaxed.gpu.global.min.s32", cells + 1, "r", v);
	RED("release.sys.global.or.b32", cells + 2, "r", v & 0x7070);
	RED("global.inc.u32", cells + 3, "r", 9);
	RED("max.u32", cells + 4, "r", v);
	RED("relaxed.cta.global.xor.b32", cells + 5, "r", v);
	RED("global.add.u64", longs, "l", (u64)v << 20);
	RED("global.max.s64", longs + 1, "l", (s64)(s32)v);
	u32 old;
	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(cells + 6) : "memory");
	RED("global.add.u32", cells + 7, "r", old);
}
