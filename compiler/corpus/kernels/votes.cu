// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"

KERNEL votes(const u32 *in, u32 *out) {
	u32 v = in[global_thread()], *o = out + 9 * global_thread(), lane = lane_id();
	o[0] = __ballot_sync(FULL, v & 1);
	o[1] = __any_sync(FULL, v % 64 == 0);
	o[2] = __all_sync(FULL, v % 64 != 0);
	o[3] = __uni_sync(FULL, v % 128 < 127);
	o[4] = __activemask();
	__syncwarp();
	if (lane % 3 == 0) {
		o[5] = __ballot_sync(0x49249249, v & 4);
		o[6] = __all_sync(0x49249249, v & 8);
	} else {
		o[5] = __ballot_sync(0xb6db6db6, v & 16);
		o[6] = __any_sync(0xb6db6db6, v & 32);
	}
	o[7] = __match_any_sync(FULL, v & 3);
	u32 all;
	asm volatile("{.reg .pred p; match.all.sync.b32 %0|p, %1, 0xffffffff; @!p add.u32 %0, %0, 5;}" : "=&r"(all) : "r"(v / 1024));
	o[8] = all;
}
