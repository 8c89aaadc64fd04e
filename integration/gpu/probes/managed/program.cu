// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// A program with __managed__ variables: which calls does the runtime make for them?
#include <cstdio>
#include <cuda_runtime.h>
__managed__ int big[65536];
__managed__ int small[4] = {11, 12, 13, 14};
__global__ void bump() { for (int i = threadIdx.x; i < 65536; i += blockDim.x) big[i] += 1; if (threadIdx.x < 4) small[threadIdx.x] += 1; }
int main()
{
	printf("PROGRAM starts, addresses by the host %p %p\n", (void *)big, (void *)small); fflush(stdout);
	big[5] = 40;
	printf("PROGRAM wrote by the CPU\n"); fflush(stdout);
	bump<<<1, 256>>>();
	printf("PROGRAM launch: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
	printf("PROGRAM big[5] %d small[0] %d\n", big[5], small[0]);
	void *p = nullptr; size_t n = 0;
	printf("PROGRAM cudaGetSymbolAddress: %s %p, size %s\n", cudaGetErrorName(cudaGetSymbolAddress(&p, big)), p, cudaGetErrorName(cudaGetSymbolSize(&n, big)));
	cudaPointerAttributes a;
	printf("PROGRAM attributes: %s type %d\n", cudaGetErrorName(cudaPointerGetAttributes(&a, big)), (int)a.type);
	return 0;
}
