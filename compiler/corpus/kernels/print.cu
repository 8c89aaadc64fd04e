// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// printf with arguments of all kinds.
KERNEL print(const s32 *in, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	s32 v = in[i];
	if (v < 0)
		printf("%u: %d is negative, %%, %c\n", i, v, 'a' + i % 26);
	else
		printf("%u: %05d %x %s %lld %.3f\n", i, v, v, v & 1 ? "odd" : "even", (s64)v << 32, v * 0.125);
}
