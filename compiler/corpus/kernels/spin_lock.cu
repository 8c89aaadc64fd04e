// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

__device__ u32 lock;

// Blocks wait for one another: a lock, and a number that only its holder changes.
KERNEL spin_lock(u32 *number, u32 *seen) {
	if (threadIdx.x == 0) {
		while (atomicCAS(&lock, 0, 1) != 0)
			;
		__threadfence();
		u32 v = *(volatile u32 *)number;
		*(volatile u32 *)number = v * 3 + 1;
		__threadfence();
		atomicExch(&lock, 0);
		seen[blockIdx.x] = 1;
	}
}
