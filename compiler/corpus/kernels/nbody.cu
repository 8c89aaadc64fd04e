// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Steps of bodies that attract one another, a tile of them in shared memory.
KERNEL nbody(const float4 *in, float4 *out, u32 n, float dt) {
	__shared__ float4 tile[32];
	u32 t = threadIdx.x;
	float4 me = in[global_thread()];
	float ax = 0, ay = 0, az = 0;
#pragma unroll 1
	for (u32 base = 0; base < n; base += blockDim.x) {
		tile[t] = in[base + t];
		__syncthreads();
#pragma unroll 1
		for (u32 j = 0; j < blockDim.x; j++) {
			float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
			float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
			float inv = 1.0f / sqrt_rn(r2);
			float s = tile[j].w * inv * inv * inv;
			ax = fmaf(dx, s, ax);
			ay = fmaf(dy, s, ay);
			az = fmaf(dz, s, az);
		}
		__syncthreads();
	}
	out[global_thread()] = float4{fmaf(ax, dt, me.x), fmaf(ay, dt, me.y), fmaf(az, dt, me.z), me.w};
}
