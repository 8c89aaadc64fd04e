// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

// Each block makes the table in shared memory, then each thread takes a message.
KERNEL crc32(const u8 *data, u32 *sums, u32 length) {
	__shared__ u32 table[256];
	for (u32 i = threadIdx.x; i < 256; i += blockDim.x) {
		u32 c = i;
		for (u32 k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
		table[i] = c;
	}
	__syncthreads();
	u32 c = FULL;
#pragma unroll 1
	for (u32 i = 0; i < length; i++)
		c = table[(c ^ data[global_thread() * length + i]) & 255] ^ c >> 8;
	sums[global_thread()] = ~c;
}
