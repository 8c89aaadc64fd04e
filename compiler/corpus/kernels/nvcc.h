// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// What cuda.h has for clang and CUDA's headers don't have under that name: the same
// instructions.
#ifndef HETGPU_CORPUS_NVCC_H
#define HETGPU_CORPUS_NVCC_H

#include <mma.h>

#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_fabs fabs
#define __builtin_bitreverse32 __brev
#define __builtin_trap __trap

DEVICE float shfl_xor_float(u32 m, float v, u32 d) { return __shfl_xor_sync(m, v, d); }
DEVICE u32 lane_id() {
	u32 id;
	asm("mov.u32 %0, %%laneid;" : "=r"(id));
	return id;
}
DEVICE u32 lanemask_lt() {
	u32 m;
	asm("mov.u32 %0, %%lanemask_lt;" : "=r"(m));
	return m;
}

#define HETGPU_APPROX(name, op) \
	DEVICE float name(float a) { \
		float d; \
		asm(op ".f32 %0, %1;" : "=f"(d) : "f"(a)); \
		return d; \
	}
HETGPU_APPROX(exp2_approx, "ex2.approx")
HETGPU_APPROX(log2_approx, "lg2.approx")
HETGPU_APPROX(sin_approx, "sin.approx")
HETGPU_APPROX(cos_approx, "cos.approx")
HETGPU_APPROX(rsqrt_approx, "rsqrt.approx")
DEVICE float sqrt_rn(float a) { return __fsqrt_rn(a); }
DEVICE double sqrt_rn(double a) { return __dsqrt_rn(a); }

#endif
