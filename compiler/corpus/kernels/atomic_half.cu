// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// 16 bits: compare and swap, of which a multiplication is made, and added halves.
KERNEL atomic_half(u16 *cells, u32 *pair) {
	u16 *mine = cells + threadIdx.x % 4;
	u16 old = *(volatile u16 *)mine, seen;
	do {
		seen = old;
		asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;" : "=h"(old) : "l"(mine), "h"(seen), "h"((u16)(seen * 3 + 1)) : "memory");
	} while (old != seen);
	asm volatile("red.global.add.noftz.f16x2 [%0], %1;" : : "l"(pair), "r"(0x3c003800) : "memory");
}
