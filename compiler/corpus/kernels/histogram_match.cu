// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Threads of a warp with the same value let one of them add for all.
KERNEL histogram_match(const u8 *in, u32 *bins) {
	u32 v = in[global_thread()];
	u32 same = __match_any_sync(FULL, v);
	if ((same & lanemask_lt()) == 0)
		atomicAdd(&bins[v], __popc(same));
}
