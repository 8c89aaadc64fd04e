// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL histogram_global(const u8 *in, u32 *bins, u32 n) {
	for (u32 i = global_thread(); i < n; i += global_threads())
		atomicAdd(&bins[in[i] / 4], 1u);
}
