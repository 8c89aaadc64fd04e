// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// Variables as the compiler makes them, and kernels that use them. VARIABLE is
// __managed__ or __device__.
#ifndef VARIABLE
#define VARIABLE __managed__
#endif
VARIABLE int big[65536];
VARIABLE int small[4] = {11, 12, 13, 14};
__device__ int plain[65536];
__device__ int tiny[4] = {21, 22, 23, 24};
extern "C" __global__ void bump()
{
	for (int i = threadIdx.x; i < 65536; i += blockDim.x) {
		big[i] += 1;
		plain[i] += 1;
	}
	if (threadIdx.x < 4)
		small[threadIdx.x] += 1, tiny[threadIdx.x] += 1;
}
