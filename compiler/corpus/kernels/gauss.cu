// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define N 24

// Solves a system of equations by elimination with pivots, a block each: barriers
// in a loop with a branch that all threads take together.
KERNEL gauss(const double *in, double *x) {
	__shared__ double m[N][N + 1];
	__shared__ u32 pivot;
	u32 t = threadIdx.x;
	for (u32 i = t; i < N * (N + 1); i += blockDim.x)
		m[i / (N + 1)][i % (N + 1)] = in[blockIdx.x * N * (N + 1) + i];
	__syncthreads();
#pragma unroll 1
	for (u32 c = 0; c < N; c++) {
		if (t == 0) {
			u32 best = c;
			for (u32 r = c + 1; r < N; r++)
				if (__builtin_fabs(m[r][c]) > __builtin_fabs(m[best][c]))
					best = r;
			pivot = best;
		}
		__syncthreads();
		u32 p = pivot;
		if (p != c) {
			if (t <= N) {
				double v = m[p][t];
				m[p][t] = m[c][t];
				m[c][t] = v;
			}
			__syncthreads();
		}
		double factor = 0;
		if (t < N && t != c)
			factor = m[t][c] / m[c][c];
		__syncthreads();
		if (t < N && t != c)
			for (u32 i = c; i <= N; i++)
				m[t][i] = fma(-factor, m[c][i], m[t][i]);
		__syncthreads();
	}
	if (t < N)
		x[blockIdx.x * N + t] = m[t][N] / m[t][t];
}
