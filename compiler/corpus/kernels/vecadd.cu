// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL vecadd(const float *a, const float *b, float *c, u32 n) {
	u32 i = global_thread();
	if (i < n)
		c[i] = a[i] + b[i];
}
