// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Every index and size there is, in three dimensions.
KERNEL grid3d(u32 *out) {
	u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	u32 threads = blockDim.x * blockDim.y * blockDim.z, *o = out + 8 * (block * threads + thread), x;
	o[0] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
	o[1] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
	o[2] = blockDim.x | blockDim.y << 8 | blockDim.z << 16;
	o[3] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
	o[4] = lane_id();
	o[5] = lanemask_lt();
	asm("mov.u32 %0, %%lanemask_ge;" : "=r"(x));
	o[6] = x;
	o[7] = warpSize;
}
