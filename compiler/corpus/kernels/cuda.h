// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the corpus use of CUDA, so that clang compiles them where
// no toolkit is: words, thread indices, and functions through clang's builtins or
// the PTX instruction itself.
//
// For nvcc, which has CUDA's own headers, nvcc.h has the rest.
#ifndef HETGPU_CORPUS_CUDA_H
#define HETGPU_CORPUS_CUDA_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__ void
#define DEVICE static inline __device__

#ifdef __NVCC__
#include "nvcc.h"
#else

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __noinline__ __attribute__((noinline))
#include <__clang_cuda_builtin_vars.h>

DEVICE s32 __syncthreads_count(s32 p) { return __nvvm_bar0_popc(p); }
DEVICE s32 __syncthreads_and(s32 p) { return __nvvm_bar0_and(p); }
DEVICE s32 __syncthreads_or(s32 p) { return __nvvm_bar0_or(p); }
DEVICE void __syncwarp(u32 mask = FULL) { __nvvm_bar_warp_sync(mask); }
DEVICE void __threadfence() { __nvvm_membar_gl(); }
DEVICE void __threadfence_block() { __nvvm_membar_cta(); }

// The last argument of the instruction has the segment's mask and the clamp.
DEVICE u32 shfl_c(u32 width, u32 clamp) { return ((32 - width) << 8) | clamp; }
DEVICE u32 __shfl_sync(u32 m, u32 v, u32 lane, u32 width = 32) { return __nvvm_shfl_sync_idx_i32(m, v, lane, shfl_c(width, 31)); }
DEVICE u32 __shfl_up_sync(u32 m, u32 v, u32 d, u32 width = 32) { return __nvvm_shfl_sync_up_i32(m, v, d, shfl_c(width, 0)); }
DEVICE u32 __shfl_down_sync(u32 m, u32 v, u32 d, u32 width = 32) { return __nvvm_shfl_sync_down_i32(m, v, d, shfl_c(width, 31)); }
DEVICE u32 __shfl_xor_sync(u32 m, u32 v, u32 d, u32 width = 32) { return __nvvm_shfl_sync_bfly_i32(m, v, d, shfl_c(width, 31)); }
DEVICE float shfl_xor_float(u32 m, float v, u32 d) { return __nvvm_shfl_sync_bfly_f32(m, v, d, shfl_c(32, 31)); }
DEVICE u32 __ballot_sync(u32 m, bool p) { return __nvvm_vote_ballot_sync(m, p); }
DEVICE bool __any_sync(u32 m, bool p) { return __nvvm_vote_any_sync(m, p); }
DEVICE bool __all_sync(u32 m, bool p) { return __nvvm_vote_all_sync(m, p); }
DEVICE bool __uni_sync(u32 m, bool p) { return __nvvm_vote_uni_sync(m, p); }
DEVICE u32 __match_any_sync(u32 m, u32 v) { return __nvvm_match_any_sync_i32(m, v); }
DEVICE u32 lane_id() { return __nvvm_read_ptx_sreg_laneid(); }
DEVICE u32 lanemask_lt() { return __nvvm_read_ptx_sreg_lanemask_lt(); }
DEVICE u32 __activemask() {
	u32 m;
	asm volatile("activemask.b32 %0;" : "=r"(m));
	return m;
}

DEVICE u32 atomicAdd(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((s32 *)p, v); }
DEVICE s32 atomicAdd(s32 *p, s32 v) { return __nvvm_atom_add_gen_i(p, v); }
DEVICE u64 atomicAdd(u64 *p, u64 v) { return __nvvm_atom_add_gen_ll((s64 *)p, v); }
DEVICE float atomicAdd(float *p, float v) { return __nvvm_atom_add_gen_f(p, v); }
DEVICE double atomicAdd(double *p, double v) { return __nvvm_atom_add_gen_d(p, v); }
DEVICE u32 atomicSub(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((s32 *)p, 0 - v); }
DEVICE u32 atomicAnd(u32 *p, u32 v) { return __nvvm_atom_and_gen_i((s32 *)p, v); }
DEVICE u32 atomicOr(u32 *p, u32 v) { return __nvvm_atom_or_gen_i((s32 *)p, v); }
DEVICE u32 atomicXor(u32 *p, u32 v) { return __nvvm_atom_xor_gen_i((s32 *)p, v); }
DEVICE u32 atomicExch(u32 *p, u32 v) { return __nvvm_atom_xchg_gen_i((s32 *)p, v); }
DEVICE u32 atomicCAS(u32 *p, u32 old, u32 v) { return __nvvm_atom_cas_gen_i((s32 *)p, old, v); }
DEVICE u32 atomicMin(u32 *p, u32 v) { return __nvvm_atom_min_gen_ui(p, v); }
DEVICE s32 atomicMin(s32 *p, s32 v) { return __nvvm_atom_min_gen_i(p, v); }
DEVICE u32 atomicMax(u32 *p, u32 v) { return __nvvm_atom_max_gen_ui(p, v); }
DEVICE s32 atomicMax(s32 *p, s32 v) { return __nvvm_atom_max_gen_i(p, v); }
DEVICE u32 atomicInc(u32 *p, u32 v) { return __nvvm_atom_inc_gen_ui(p, v); }
DEVICE u32 atomicDec(u32 *p, u32 v) { return __nvvm_atom_dec_gen_ui(p, v); }
DEVICE u64 atomicAnd(u64 *p, u64 v) { return __nvvm_atom_and_gen_ll((s64 *)p, v); }
DEVICE u64 atomicOr(u64 *p, u64 v) { return __nvvm_atom_or_gen_ll((s64 *)p, v); }
DEVICE u64 atomicXor(u64 *p, u64 v) { return __nvvm_atom_xor_gen_ll((s64 *)p, v); }
DEVICE u64 atomicExch(u64 *p, u64 v) { return __nvvm_atom_xchg_gen_ll((s64 *)p, v); }
DEVICE u64 atomicCAS(u64 *p, u64 old, u64 v) { return __nvvm_atom_cas_gen_ll((s64 *)p, old, v); }
DEVICE u64 atomicMin(u64 *p, u64 v) { return __nvvm_atom_min_gen_ull(p, v); }
DEVICE s64 atomicMin(s64 *p, s64 v) { return __nvvm_atom_min_gen_ll(p, v); }
DEVICE u64 atomicMax(u64 *p, u64 v) { return __nvvm_atom_max_gen_ull(p, v); }
DEVICE s64 atomicMax(s64 *p, s64 v) { return __nvvm_atom_max_gen_ll(p, v); }

DEVICE u32 __popc(u32 v) { return __builtin_popcount(v); }
DEVICE u32 __clz(u32 v) { return v ? __builtin_clz(v) : 32; }
DEVICE u32 __ffs(u32 v) { return __builtin_ffs(v); }
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float exp2_approx(float a) { return __nvvm_ex2_approx_f(a); }
DEVICE float log2_approx(float a) { return __nvvm_lg2_approx_f(a); }
DEVICE float sin_approx(float a) { return __nvvm_sin_approx_f(a); }
DEVICE float cos_approx(float a) { return __nvvm_cos_approx_f(a); }
DEVICE float rsqrt_approx(float a) { return __nvvm_rsqrt_approx_f(a); }
DEVICE float sqrt_rn(float a) { return __nvvm_sqrt_rn_f(a); }
DEVICE double sqrt_rn(double a) { return __nvvm_sqrt_rn_d(a); }
DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }

// Vectors as CUDA has them: aligned to their size.
struct alignas(8) uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(4) uchar4 { u8 x, y, z, w; };

extern "C" __device__ int printf(const char *, ...);
#endif

DEVICE u32 global_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u32 global_threads() { return gridDim.x * blockDim.x; }
DEVICE u32 rotr(u32 v, u32 n) { return (v >> n) | (v << (32 - n)); }
DEVICE u32 rotl(u32 v, u32 n) { return (v << n) | (v >> (32 - n)); }

// One instruction: its opcode, the letter of the operands' constraint, operands.
#define ASM1(op, c, d, a) asm(op " %0, %1;" : "=" c(d) : c(a))
#define ASM2(op, c, d, a, b) asm(op " %0, %1, %2;" : "=" c(d) : c(a), c(b))
#define ASM3(op, c, d, x, y, z) asm(op " %0, %1, %2, %3;" : "=" c(d) : c(x), c(y), c(z))
#define CVT(op, cd, d, cs, a) asm(op " %0, %1;" : "=" cd(d) : cs(a))

template <typename T> DEVICE T min(T a, T b) { return a < b ? a : b; }
template <typename T> DEVICE T max(T a, T b) { return a > b ? a : b; }
template <typename T> DEVICE void swap(T &a, T &b) {
	T t = a;
	a = b;
	b = t;
}

#endif
