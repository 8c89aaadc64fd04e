// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

#define QUARTER(a, b, c, d) \
	a += b, d = rotl(d ^ a, 16), c += d, b = rotl(b ^ c, 12), a += b, d = rotl(d ^ a, 8), c += d, b = rotl(b ^ c, 7)

// ChaCha20: a thread makes 64 bytes of the stream and adds them to the text.
KERNEL chacha(const u32 *key, u32 *text, u32 n) {
	u32 i = global_thread();
	if (i >= n)
		return;
	u32 in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
	for (u32 j = 0; j < 8; j++)
		in[4 + j] = key[j];
	in[12] = i;
	for (u32 j = 0; j < 3; j++)
		in[13 + j] = key[8 + j];
	for (u32 j = 0; j < 16; j++)
		x[j] = in[j];
#pragma unroll 1
	for (u32 round = 0; round < 10; round++) {
		QUARTER(x[0], x[4], x[8], x[12]);
		QUARTER(x[1], x[5], x[9], x[13]);
		QUARTER(x[2], x[6], x[10], x[14]);
		QUARTER(x[3], x[7], x[11], x[15]);
		QUARTER(x[0], x[5], x[10], x[15]);
		QUARTER(x[1], x[6], x[11], x[12]);
		QUARTER(x[2], x[7], x[8], x[13]);
		QUARTER(x[3], x[4], x[9], x[14]);
	}
	for (u32 j = 0; j < 16; j++)
		text[16 * i + j] ^= x[j] + in[j];
}
