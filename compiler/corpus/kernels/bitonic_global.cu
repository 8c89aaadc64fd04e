// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// One step of a sort over all blocks; the host has the loops.
KERNEL bitonic_step(u32 *data, u32 j, u32 k) {
	u32 i = global_thread(), other = i ^ j;
	if (other > i) {
		u32 a = data[i], b = data[other];
		if ((a > b) == ((i & k) == 0)) {
			data[i] = b;
			data[other] = a;
		}
	}
}
