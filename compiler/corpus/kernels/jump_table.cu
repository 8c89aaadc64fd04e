// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// brx.idx: a jump to a place that the data chooses.
KERNEL jump_table(const u32 *in, u32 *out, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 v = in[i], r;
	asm volatile("{\n\t"
		     "places: .branchtargets A, B, C, D;\n\t"
		     "brx.idx %2, places;\n"
		     "A: add.u32 %0, %1, 5;\n\t"
		     "bra.uni E;\n"
		     "B: mul.lo.u32 %0, %1, 7;\n\t"
		     "bra E;\n"
		     "C: xor.b32 %0, %1, 0x55;\n\t"
		     "bra E;\n"
		     "D: not.b32 %0, %1;\n"
		     "E:\n\t}"
		     : "=&r"(r) : "r"(v), "r"(v % 4));
	out[i] = r;
}
