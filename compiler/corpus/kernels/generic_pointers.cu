// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// The data decides whether a pointer goes to global, shared or local memory.
KERNEL generic_pointers(const u32 *in, u32 *out, u32 *global) {
	__shared__ u32 shared[64];
	u32 t = threadIdx.x, i = global_thread(), local[2] = {t * 3, t * 5}, v = in[i];
	shared[t] = v;
	__syncthreads();
	u32 *p = v % 3 == 0 ? &shared[t ^ 1] : v % 3 == 1 ? &global[i] : &local[v / 3 & 1];
	u32 x = *p;
	__syncthreads();
	*p = x + 1;
	__syncthreads();
	out[i] = shared[t] + local[0] * 1000 + local[1] + x;
}
