// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

// A barrier object in shared memory: all threads arrive, then test its phase.
KERNEL mbarrier(const u32 *in, u32 *out, u32 rounds) {
	__shared__ u64 bar;
	__shared__ u32 v[64];
	u32 t = threadIdx.x, x = in[global_thread()];
	u64 address;
	asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(&bar));
	if (t == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "l"(address), "r"(64) : "memory");
	__syncthreads();
#pragma unroll 1
	for (u32 r = 0; r < 2 * rounds; r++) {
		if (r % 2 == 0)
			v[t] = x;
		else
			x = x * 5 + v[(t + r) % 64];
		u64 state;
		asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "l"(address) : "memory");
		u32 done;
		do
			asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
				     : "=r"(done) : "l"(address), "l"(state) : "memory");
		while (!done);
	}
	out[global_thread()] = x;
}
