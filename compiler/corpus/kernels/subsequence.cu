// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// The longest common subsequence: a barrier for each diagonal of the table.
KERNEL subsequence(const u8 *a, const u8 *b, u32 *out, u32 n) {
	__shared__ u16 row[3][65];
	u32 t = threadIdx.x, pair = blockIdx.x;
	if (t <= n)
		row[0][t] = row[1][t] = row[2][t] = 0;
	__syncthreads();
#pragma unroll 1
	for (u32 d = 2; d <= 2 * n; d++) {
		u32 i = t + 1, j = d - i;
		if (i <= n && j >= 1 && j <= n && i < d) {
			u16 v;
			if (a[pair * n + i - 1] == b[pair * n + j - 1])
				v = row[(d + 1) % 3][i - 1] + 1;
			else
				v = max(row[(d + 2) % 3][i - 1], row[(d + 2) % 3][i]);
			row[d % 3][i] = v;
		}
		__syncthreads();
	}
	if (t == 0)
		out[pair] = row[2 * n % 3][n];
}
