// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A loop over the grid, so that any grid does.
KERNEL saxpy(float a, const float *x, float *y, u32 n) {
	for (u32 i = global_thread(); i < n; i += global_threads())
		y[i] = fmaf(a, x[i], y[i]);
}
