// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// The loop that a pause has to stop: rounds of a barrier until the data says stop.
KERNEL long_loop(const u32 *in, u32 *out, u32 most, u32 last) {
	__shared__ u32 v[64], stop;
	u32 t = threadIdx.x, x = in[global_thread()], rounds = 0;
	if (t == 0)
		stop = 0;
	v[t] = x;
	__syncthreads();
	while (!stop) {
		u32 y = v[(t + 7) % 64];
		__syncthreads();
		x = rotl(x, 3) + y * 0x9e3779b9;
		v[t] = x;
		rounds++;
		if (t == 0 && (rounds == most || (x & 0xfff) == last))
			stop = 1;
		__syncthreads();
	}
	out[2 * global_thread()] = x;
	out[2 * global_thread() + 1] = rounds;
}
