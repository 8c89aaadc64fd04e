// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
// needs sm_80
#include "cuda.h"

// Copies from global to shared memory that go on by themselves, two tiles deep.
KERNEL cp_async(const u32 *in, u32 *out, u32 tiles) {
	__shared__ __attribute__((aligned(16))) u32 buffer[2][128];
	u32 t = threadIdx.x, sum = 0;
	const u32 *from = in + blockIdx.x * tiles * 128;
#define FETCH(i) \
	asm volatile("{.reg .b64 s, g; cvta.to.shared.u64 s, %0; cvta.to.global.u64 g, %1; cp.async.ca.shared.global [s], [g], 16; cp.async.commit_group;}" \
		     : : "l"(&buffer[(i) % 2][4 * t]), "l"(from + (i) * 128 + 4 * t) : "memory")
	FETCH(0);
#pragma unroll 1
	for (u32 i = 0; i < tiles; i++) {
		if (i + 1 < tiles) {
			FETCH(i + 1);
			asm volatile("cp.async.wait_group 1;" : : : "memory");
		} else {
			asm volatile("cp.async.wait_all;" : : : "memory");
		}
		__syncthreads();
		for (u32 j = 0; j < 4; j++)
			sum = sum * 3 + buffer[i % 2][(t * 4 + j * 33) % 128];
		__syncthreads();
	}
	out[global_thread()] = sum;
}
