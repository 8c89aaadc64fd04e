// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A long loop without a barrier: random walks whose lengths differ.
KERNEL free_loop(u64 *state, u32 *out, u32 most) {
	u32 i = global_thread(), rounds = 0;
	u64 s = state[i];
	s32 x = 0;
#pragma unroll 1
	while (rounds < most) {
		s ^= s << 13;
		s ^= s >> 7;
		s ^= s << 17;
		x += s & 1 ? 1 : -1;
		rounds++;
		if (x == 20 || x == -20)
			break;
	}
	state[i] = s;
	out[2 * i] = x;
	out[2 * i + 1] = rounds;
}
