// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Clocks go forward, sleeping ends, and fences and prefetches change nothing.
KERNEL clocks(const u32 *in, u32 *out) {
	u64 before, after, ns;
	asm volatile("mov.u64 %0, %%clock64;" : "=l"(before));
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	asm volatile("nanosleep.u32 20;");
	asm volatile("prefetch.global.L2 [%0];" : : "l"(in + global_thread()));
	__threadfence_block();
	asm volatile("fence.sc.gpu;" : : : "memory");
	asm volatile("mov.u64 %0, %%clock64;" : "=l"(after));
	out[global_thread()] = in[global_thread()] + (after >= before) + (ns != 0);
}
