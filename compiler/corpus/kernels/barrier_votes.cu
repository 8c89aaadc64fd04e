// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL barrier_votes(const u32 *in, u32 *out) {
	u32 v = in[global_thread()], *o = out + 3 * global_thread();
	o[0] = __syncthreads_count(v % 3 == 0);
	o[1] = __syncthreads_and(v % 64 != 5) != 0;
	o[2] = __syncthreads_or(v % 64 == 9) != 0;
}
