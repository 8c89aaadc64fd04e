// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Dynamic shared memory cut into parts, behind a static array.
extern __shared__ u64 dynamic[];

KERNEL dynamic_shared(const u64 *in, u64 *out, u32 longs, u32 words) {
	__shared__ u16 fixed[64];
	u64 *a = dynamic;
	u32 *b = (u32 *)(a + longs), t = threadIdx.x;
	fixed[t] = t * 257;
	for (u32 i = t; i < longs; i += blockDim.x)
		a[i] = in[blockIdx.x * longs + i];
	for (u32 i = t; i < words; i += blockDim.x)
		b[i] = i * 0x01010101;
	__syncthreads();
	u32 size;
	asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
	for (u32 i = t; i < longs; i += blockDim.x)
		out[blockIdx.x * longs + i] = a[longs - 1 - i] + b[i % words] + fixed[i % 64] + size;
}
