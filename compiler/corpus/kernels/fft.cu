// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// A transform of 128 complex numbers a block, by halves, in shared memory.
KERNEL fft(const float2 *in, float2 *out, const float2 *roots) {
	__shared__ float2 v[128];
	u32 t = threadIdx.x, n = 2 * blockDim.x, base = blockIdx.x * n, bits = __clz(n) + 1;
	for (u32 i = t; i < n; i += blockDim.x)
		v[__builtin_bitreverse32(i) >> bits] = in[base + i];
#pragma unroll 1
	for (u32 half = 1; half < n; half *= 2) {
		__syncthreads();
		u32 k = t % half, a = (t / half) * 2 * half + k, b = a + half;
		float2 w = roots[k * (n / 2 / half)], x = v[a], y = v[b];
		float re = fmaf(w.x, y.x, -(w.y * y.y)), im = fmaf(w.x, y.y, w.y * y.x);
		v[a] = float2{x.x + re, x.y + im};
		v[b] = float2{x.x - re, x.y - im};
	}
	__syncthreads();
	for (u32 i = t; i < n; i += blockDim.x)
		out[base + i] = v[i];
}
